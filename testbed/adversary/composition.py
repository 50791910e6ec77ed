"""From the `adversary:` section to the classes that run: the server with decisions overridden, the clients' roles."""

from collections.abc import Iterable, Sequence
from typing import Any

from testbed.adversary.catalogue import kinds_of
from testbed.adversary.clients import SkipNoise
from testbed.adversary.misbehaviour import (
    SERVER_KINDS,
    AggregationMisbehaviour,
    AttackContext,
    ClientMisbehaviour,
    Misbehaviour,
    SelectionMisbehaviour,
    ServerMisbehaviour,
    TrainingMisbehaviour,
    dishonest_role,
    malicious_server,
)
from testbed.adversary.section import AdversarySection, Named, name_of, options
from testbed.aggregation.contract import AggregationProtocol
from testbed.errors import ExperimentError
from testbed.parties.client import RoleSpec
from testbed.plugins.classes import plugin_class
from testbed.randomness import Randomness
from testbed.selection.contract import SelectionProtocol
from testbed.training.server import Broadcast
from testbed.workload.contract import Workload
from testbed.workload.section import WorkloadSection

_OVERRIDDEN: dict[type[ServerMisbehaviour], type] = {
    SelectionMisbehaviour: SelectionProtocol,
    AggregationMisbehaviour: AggregationProtocol,
    TrainingMisbehaviour: Broadcast,
}
"""Whose decisions a misbehaviour of each kind overrides."""


class Adversary:
    """What an experiment's `adversary:` section means for its servers and clients.

    Args:
        section: the section.
        population: number of clients n.
        rounds: of the experiment.
        randomness: the experiment's, which draws the dishonest clients.
        enough_to_break: dishonest participants that break the aggregation.

    Attributes:
        dishonest: their numbers.

    Raises:
        ExperimentError: a user-defined class cannot be found, is none of a misbehaviour, or lacks the options given.
    """

    def __init__(
        self, section: AdversarySection, population: int, rounds: int, randomness: Randomness, enough_to_break: int = 1
    ) -> None:
        self.dishonest = section.drawn(population, randomness)
        given: dict[type[Misbehaviour], Any] = {}
        self._server = {name_of(one): _found("server", one, given) for one in section.server}
        self._clients = {name_of(one): _found("clients", one, given) for one in section.clients}
        for party, kinds in (("server", self._server), ("clients", self._clients)):
            for name, (first, *_) in kinds.items():
                if ":" in name:  # the others are checked with the experiment
                    _checked(section, party, name, given[first], population)
        self._context = AttackContext(self.dishonest, given, rounds, section.from_round, section.every, enough_to_break)
        self._unused = set(self._server)

    @property
    def skips_noise(self) -> frozenset[int]:
        """The clients that add no noise in the rounds that are attacked."""
        kinds = [kind for found in self._clients.values() for kind in found]
        return self.dishonest if any(issubclass(kind, SkipNoise) for kind in kinds) else frozenset()

    def with_attacks(self, honest: Any, protocols: Iterable[str]) -> Any:
        """The class of the server that runs instead of `honest`, which has the decisions of `protocols`."""
        wanted, kinds = set(protocols), []
        for name, found in self._server.items():
            for kind in [kind for kind in found if wanted & set(kind.applies_to)][:1]:
                _check_overrides(name, kind, honest)
                kinds.append(kind)
                self._unused.discard(name)
        return malicious_server(honest, kinds, self._context)

    def roles(self, specs: Sequence[RoleSpec]) -> list[RoleSpec]:
        """`specs`, and after them what the dishonest clients do instead; their accomplices' roles are extended too."""
        more = []
        for spec in specs:
            kinds = [kind for found in self._clients.values() for kind in found if kind.concerns(spec)]
            if kinds:
                only = self.dishonest if spec.only is None else spec.only & self.dishonest
                more.append(RoleSpec(dishonest_role(spec.role, kinds, self._context), spec.parameters, only))
        return [*specs, *more]

    def check_learning(self, section: WorkloadSection) -> None:
        """Raise `ExperimentError` for a misbehaviour that cannot be carried out with this `workload:` section."""
        for kind in self._context.options:
            kind.check_learning(section)

    def check_workload(self, workload: Workload) -> None:
        """Raise `ExperimentError` for a misbehaviour that cannot be carried out with what the clients learn."""
        for kind, chosen in self._context.options.items():
            kind.check_workload(workload, chosen)

    def check_used(self, specs: Sequence[RoleSpec]) -> None:
        """Raise `ExperimentError` for a misbehaviour that no server of the run, or no role in `specs`, is open to."""
        idle = [("server", name) for name in self._server if name in self._unused]
        idle += [
            ("clients", name)
            for name, found in self._clients.items()
            if not any(kind.concerns(spec) for spec in specs for kind in found)
        ]
        for party, name in idle:
            raise ExperimentError(f"adversary.{party}: {name} applies to none of this run's protocols; leave it out")


def _check_overrides(name: str, kind: type[ServerMisbehaviour], honest: type) -> None:
    overridden = next(protocol for base, protocol in _OVERRIDDEN.items() if issubclass(kind, base))
    if not issubclass(honest, overridden):
        raise ExperimentError(
            f"adversary.server: {name} overrides decisions of {overridden.__name__} and applies to "
            f"{', '.join(kind.applies_to)}; {honest.__name__} is none"
        )


def _checked(section: AdversarySection, party: str, name: str, chosen: Any, population: int) -> None:
    try:
        section.check_options(party, name, chosen, population)
    except ValueError as error:
        raise ExperimentError(f"adversary.{error}") from None


def _found(party: str, one: Named, given: dict[type[Misbehaviour], Any]) -> list[Any]:
    """The classes that an entry names; notes the options of each in `given`."""
    name = name_of(one)
    kinds: list[Any] = list(kinds_of(party, name))
    if ":" in name:
        kinds = [plugin_class(name, f"adversary.{party}")]
        bases = tuple(SERVER_KINDS) if party == "server" else (ClientMisbehaviour,)
        if not (isinstance(kinds[0], type) and issubclass(kinds[0], bases)):
            allowed = " or ".join(f"{base.__module__}.{base.__name__}" for base in bases)
            raise ExperimentError(f"adversary.{party}: {name} is no subclass of {allowed}")
    for kind in kinds:
        try:
            given[kind] = options(kind, one)
        except ValueError as error:
            raise ExperimentError(f"adversary.{party}: {error}") from None
    return kinds
