"""All built-in misbehaviours, by party: the classes of the modules below that have a name, in this order.

A class added to one of these modules is found automatically; a new module needs one line here. Classes with the same
name override the same decision in different protocols.
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
from testbed.adversary.selection import batches, candidates, early, lists, rebatch, rounds

_MODULES: tuple[ModuleType, ...] = (
    candidates,
    early,
    rounds,
    lists,
    parallel_sums,
    batches,
    rebatch,
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
    """Return the classes derived from `base` that define a name, in source order."""
    return tuple(
        kind
        for module in _MODULES
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, base)
        # Only classes of the module itself: imported ones belong to their own module.
        and kind.__module__ == module.__name__
        and "name" in vars(kind)
    )


SERVER = _declared(ServerMisbehaviour)
CLIENTS = _declared(ClientMisbehaviour)
OF_PARTY: dict[str, tuple[type[Misbehaviour], ...]] = {"server": SERVER, "clients": CLIENTS}


def names(party: str, protocols: Iterable[str] | None = None) -> list[str]:
    """Return the names of misbehaviours, in the order above.

    Args:
        party: "server" or "clients".
        protocols: only misbehaviours that apply to one of these; None: all.
    """
    chosen = None if protocols is None else set(protocols)
    matches = [
        kind.name
        for kind in OF_PARTY[party]
        if chosen is None or (chosen & set(kind.applies_to) and not kind.only_follows)
    ]
    return list(dict.fromkeys(matches))


def kinds_of(party: str, name: str) -> list[type[Misbehaviour]]:
    """Return the classes with this name.

    Args:
        party: "server" or "clients".
        name: of a misbehaviour.
    """
    return [kind for kind in OF_PARTY[party] if kind.name == name]


def update_recovered(detail: str) -> bool:
    """Return whether the detail of an `attack` event reports that a single client's update was recovered."""
    name, _, text = detail.partition(": ")
    declared = [kind.update_recovered for kind in kinds_of("server", name) if kind.update_recovered is not None]
    return any(pattern.search(text) for pattern in declared)
