"""What a misbehaviour is: a class that overrides some decisions of an honest server, or some handlers of a client.

A malicious server is ``type("Malicious...", (Misbehaviour, AnotherOne, HonestServer), {})``: each misbehaviour calls
`super()` for what it does not change, so that they compose, the first one outermost. A dishonest client's role is made
the same way from the honest role. The built-in misbehaviours are listed in `catalogue`; one of the user's own,
named ``package.module:Name`` in an experiment, is a subclass of `SelectionMisbehaviour`, `AggregationMisbehaviour`,
`TrainingMisbehaviour` or `ClientMisbehaviour`, whichever it overrides.
"""

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from testbed.aggregation.contract import Aggregate, AggregationProtocol, AggregationRound
from testbed.network import Network
from testbed.parties.client import Role, RoleSpec
from testbed.selection.contract import Selection, SelectionProtocol, SelectionRound
from testbed.training import Asked, Broadcast, Train, TrainingRound
from testbed.workload.contract import Samples, Workload
from testbed.workload.section import WorkloadSection


class MisbehaviourOptions(BaseModel):
    """What an experiment may say about a misbehaviour: ``{understate-population: {to: 0.5}}``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def check(self, population: int, dishonest: Set[int]) -> None:
        """Raise `ValueError` (one line: option, what is wrong) for what can never happen in this experiment.

        Args:
            population: number of clients.
            dishonest: the clients that the experiment lists; empty where they are drawn.
        """


@dataclass(frozen=True)
class AttackContext:
    """What the malicious server and the dishonest clients know.

    Attributes:
        dishonest: the numbers of the clients that work for the server.
        options: of each misbehaviour, by its class.
        rounds: of the experiment.
        from_round: the first round that is attacked.
        every: of the rounds from then on, every so many-th is attacked.
        enough_to_break: dishonest participants that break the aggregation; 1 where it takes none.
    """

    dishonest: frozenset[int]
    options: Mapping[type["Misbehaviour"], Any] = field(default_factory=dict)
    rounds: int = 2**40
    from_round: int = 1
    every: int = 1
    enough_to_break: int = 1

    def attacks(self, round_number: int) -> bool:
        """Whether this round is attacked; in the others everybody behaves."""
        return round_number >= self.from_round and (round_number - self.from_round) % self.every == 0

    def options_of(self, kind: type["Misbehaviour"]) -> Any:
        """The options that the experiment gives a misbehaviour, or its defaults."""
        return self.options[kind] if kind in self.options else kind.Options()


class Misbehaviour:
    """One thing that a party does otherwise than the protocol says.

    Attributes:
        name: as an experiment says it.
        applies_to: names of the selection or aggregation protocols whose decisions it overrides, or "train".
        only_follows: whether it does its part where another class of the same name applies, and nothing by itself.
        added_stages: those of questions that it adds to the protocols'.
        depends_on_rounds: whether it acts by how many rounds the experiment has (`AttackContext.rounds`), so that a
            longer run differs from its first round on.
        Options: what an experiment may set; may be replaced by a subclass of `MisbehaviourOptions`.
        update_recovered: found in what `record_attack` says where it has had a single client's update; None: it never
            says so.
        context: whom and when; `malicious_server` and `dishonest_role` set it.
    """

    name: ClassVar[str]
    applies_to: ClassVar[tuple[str, ...]]
    only_follows: ClassVar[bool] = False
    added_stages: ClassVar[tuple[str, ...]] = ()
    depends_on_rounds: ClassVar[bool] = False
    Options: ClassVar[type[MisbehaviourOptions]] = MisbehaviourOptions
    update_recovered: ClassVar[re.Pattern[str] | None] = None
    context: ClassVar[AttackContext]

    @classmethod
    def check_learning(cls, section: WorkloadSection) -> None:
        """Raise `ExperimentError` (one line) for a `workload:` section that this cannot be done with; reads no data."""

    @classmethod
    def check_workload(cls, workload: Workload, options: Any) -> None:
        """Raise `ExperimentError` (one line) for a workload that this cannot be done with; `options` are its own."""

    @property
    def dishonest(self) -> frozenset[int]:
        """The clients that work for the server."""
        return self.context.dishonest


class ServerMisbehaviour(Misbehaviour):
    """Mixed into the server side of a protocol, which then overrides some decisions; one of the three kinds below.

    Attributes:
        overrides: whose decisions.
        accomplice_roles: roles that the dishonest clients play along with it, after those of the honest server.
        attacking: whether the round under way is attacked; where not, a misbehaviour leaves everything to `super()`.
        network: the round's, for `record_attack`.
        at_stage: of what `record_attack` records, where decisions are made before it begins; None: the one under way.
    """

    overrides: ClassVar[type]
    accomplice_roles: ClassVar[tuple[type[Role], ...]] = ()
    at_stage: ClassVar[str | None] = None
    attacking: bool = False
    network: Network

    def record_attack(self, kind: type["ServerMisbehaviour"], detail: str) -> None:
        """Record that `kind` (the class that says so) has been carried out in this round."""
        self.network.record_event("server", "attack", f"{kind.name}: {detail}", self.at_stage)


class SelectionMisbehaviour(ServerMisbehaviour):
    """Overrides decisions of a selection protocol: ``class Mine(SelectionMisbehaviour, LottoServer)``."""

    overrides = SelectionProtocol

    if TYPE_CHECKING:  # what `super()` finds in the honest server

        async def select(self, round_: SelectionRound) -> Selection:
            raise NotImplementedError


class AggregationMisbehaviour(ServerMisbehaviour):
    """Overrides decisions of an aggregation protocol: ``class Mine(AggregationMisbehaviour, SecAgg)``."""

    overrides = AggregationProtocol

    if TYPE_CHECKING:

        async def aggregate(self, round_: AggregationRound) -> Aggregate:
            raise NotImplementedError


class TrainingMisbehaviour(ServerMisbehaviour):
    """Overrides which model is sent to whom: ``class Mine(TrainingMisbehaviour, Broadcast)``."""

    overrides = Broadcast
    at_stage = Train.stage

    if TYPE_CHECKING:

        def questions_for(self, round_: TrainingRound, question: Train) -> Asked:
            raise NotImplementedError


class ClientMisbehaviour(Misbehaviour, Role):
    """Mixed into a role of the dishonest clients, some handlers of which it overrides.

    Attributes:
        extends: the honest role that it is mixed into.
    """

    extends: ClassVar[type[Role]]

    @classmethod
    def concerns(cls, spec: RoleSpec) -> bool:
        """Whether there is something to do otherwise for those who play this role."""
        return issubclass(spec.role, cls.extends)

    @classmethod
    def wanted(cls, options: Any) -> Callable[[Samples], Samples] | None:
        """What makes, of the samples that models are evaluated on, those on which the attack is to have an effect, with
        the labels that it wants the model to give them; None: it wants no such thing. `options` are its own.
        """
        return None

    def attacks(self, round_number: int) -> bool:
        """Whether this round is attacked."""
        return self.context.attacks(round_number)

    def record_attack(self, kind: type["ClientMisbehaviour"], detail: str) -> None:
        """Record that `kind` has been carried out by this client."""
        self.client.attacks.append(f"{kind.name}: {detail}")


# -- how they are put together ----------------------------------------------------------------------------------------


class _WithAccomplices(ServerMisbehaviour):
    """Outermost in a malicious server side that has roles."""

    if TYPE_CHECKING:
        parameters: Any

    @property
    def roles(self) -> list[RoleSpec]:
        """The roles of the honest server and of the accomplices."""
        roles: list[RoleSpec] = super().roles  # type: ignore[misc]
        return [*roles, *(RoleSpec(role, self.parameters, self.dishonest) for role in self.accomplice_roles)]


class _Selecting(_WithAccomplices, SelectionMisbehaviour):
    """Outermost in a malicious selection: knows when a round begins."""

    async def select(self, round_: SelectionRound) -> Selection:
        self.attacking, self.network = self.context.attacks(round_.number), round_.network
        return await super().select(round_)


class _Aggregating(_WithAccomplices, AggregationMisbehaviour):
    """Outermost in a malicious aggregation: knows when a round begins."""

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        self.attacking, self.network = self.context.attacks(round_.number), round_.network
        return await super().aggregate(round_)


class _Broadcasting(TrainingMisbehaviour):
    """Outermost in a malicious broadcast of the model: knows when a round's training begins."""

    def questions_for(self, round_: TrainingRound, question: Train) -> Asked:
        self.attacking, self.network = self.context.attacks(round_.number), round_.network
        return super().questions_for(round_, question)


SERVER_KINDS: dict[type[ServerMisbehaviour], type[ServerMisbehaviour]] = {
    SelectionMisbehaviour: _Selecting,
    AggregationMisbehaviour: _Aggregating,
    TrainingMisbehaviour: _Broadcasting,
}
"""What a server's misbehaviour may override, and what is outermost then."""


def malicious_server(honest: type, kinds: Sequence[type[ServerMisbehaviour]], context: AttackContext) -> type:
    """The class of a server that is `honest` but for `kinds`, the first one outermost; `honest` itself if none."""
    if not kinds:
        return honest
    (outermost,) = {outer for base, outer in SERVER_KINDS.items() for kind in kinds if issubclass(kind, base)}
    roles = tuple(dict.fromkeys(role for kind in reversed(kinds) for role in kind.accomplice_roles))
    own = {"context": context, "accomplice_roles": roles}
    return type(f"Malicious{honest.__name__}", (outermost, *kinds, honest), own)


def dishonest_role(honest: type[Role], kinds: Sequence[type[ClientMisbehaviour]], context: AttackContext) -> type[Role]:
    """The role of a client that is `honest` but for `kinds`, the first one outermost."""
    return type(f"Dishonest{honest.__name__}", (*kinds, honest), {"context": context})
