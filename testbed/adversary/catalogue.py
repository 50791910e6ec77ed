"""Every built-in misbehaviour, by party: the classes with a name of their own in the modules below, in this order.

One more in one of these modules is a class and nothing else; a new module is one more line. Classes of one name
override the same decision in different protocols.
"""

from collections.abc import Iterable
from types import ModuleType

from testbed.adversary import (
    clients,
    committees,
    crafted_models,
    e_seafl,
    flamingo,
    flamingo_framing,
    flamingo_labels,
    incomplete_batches,
    lightsecagg,
    lightsecagg_clients,
    one_shot,
    pine,
    poisoned_samples,
    poisoned_updates,
)
from testbed.adversary.misbehaviour import ClientMisbehaviour, Misbehaviour, ServerMisbehaviour
from testbed.adversary.secagg import dishonest_clients, dropped_honest, parallel_sums, reconstruction, small_sums
from testbed.adversary.selection import batches, candidates, early, lists, rounds

_MODULES: tuple[ModuleType, ...] = (
    candidates,
    early,
    rounds,
    lists,
    parallel_sums,
    batches,
    reconstruction,
    small_sums,
    dropped_honest,
    lightsecagg,
    lightsecagg_clients,
    incomplete_batches,
    flamingo,
    flamingo_labels,
    flamingo_framing,
    one_shot,
    pine,
    e_seafl,
    committees,
    crafted_models,
    clients,
    poisoned_updates,
    poisoned_samples,
    dishonest_clients,
)


def _declared(base: type[Misbehaviour]) -> tuple[type[Misbehaviour], ...]:
    """The classes that derive from `base` and say their name, in the order in which they are written down."""
    return tuple(
        kind
        for module in _MODULES
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, base)
        and kind.__module__ == module.__name__
        and "name" in vars(kind)
    )


SERVER = _declared(ServerMisbehaviour)
CLIENTS = _declared(ClientMisbehaviour)
OF_PARTY: dict[str, tuple[type[Misbehaviour], ...]] = {"server": SERVER, "clients": CLIENTS}


def names(party: str, protocols: Iterable[str] | None = None) -> list[str]:
    """The misbehaviours of "server" or "clients", in the order above; only those that apply to one of `protocols`."""
    wanted = None if protocols is None else set(protocols)
    found = [
        kind.name
        for kind in OF_PARTY[party]
        if wanted is None or (wanted & set(kind.applies_to) and not kind.only_follows)
    ]
    return list(dict.fromkeys(found))


def kinds_of(party: str, name: str) -> list[type[Misbehaviour]]:
    """The classes of one name."""
    return [kind for kind in OF_PARTY[party] if kind.name == name]


def update_recovered(detail: str) -> bool:
    """Whether the detail of an `attack` event says, as its misbehaviour does, that a single client's update was had."""
    name, _, said = detail.partition(": ")
    declared = [kind.update_recovered for kind in kinds_of("server", name) if kind.update_recovered is not None]
    return any(pattern.search(said) for pattern in declared)
