"""Misbehaviours: classes that override decisions of an honest server, or handlers of an honest client.

A malicious server is ``type("Malicious...", (Misbehaviour, AnotherOne, HonestServer), {})``. Each misbehaviour calls
`super()` for decisions that it does not change, so misbehaviours compose, the first one outermost. The role of a
dishonest client is built from the honest role in the same way. Built-in misbehaviours are listed in `catalogue`. A
user-defined misbehaviour, named ``package.module:Name`` in an experiment, is a subclass of `SelectionMisbehaviour`,
`AggregationMisbehaviour`, `TrainingMisbehaviour` or `ClientMisbehaviour`.
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
from testbed.training import Broadcast, QuestionGroups, Train, TrainingRound
from testbed.workload.contract import Samples, Workload
from testbed.workload.section import WorkloadSection


class MisbehaviourOptions(BaseModel):
    """Options of a misbehaviour in an experiment: ``{understate-population: {to: 0.5}}``.

    A subclass declares one field per option and is the attribute `Options` of the misbehaviour.

    Example:
        >>> class ScaleOptions(MisbehaviourOptions):
        ...     factor: float = 5.0
        ...     def check(self, population, dishonest):
        ...         if self.factor == 1:
        ...             raise ValueError("factor: 1 changes nothing")
        >>> ScaleOptions(factor=2).factor
        2.0
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def check(self, population: int, dishonest: Set[int]) -> None:
        """Check that the options can take effect in this experiment.

        Args:
            population: number of clients.
            dishonest: the listed dishonest clients; empty if they are drawn.

        Raises:
            ValueError: they never can; one line with the option and the problem.
        """


@dataclass(frozen=True)
class AttackContext:
    """Knowledge of the malicious server and the dishonest clients.

    Attributes:
        dishonest: numbers of the clients that collude with the server.
        options: options of each misbehaviour, by class.
        rounds: rounds of the experiment.
        from_round: the first attacked round.
        every: from then on, every `every`-th round is attacked.
        enough_to_break: dishonest participants that break the aggregation; 1 if it needs none.
    """

    dishonest: frozenset[int]
    options: Mapping[type["Misbehaviour"], Any] = field(default_factory=dict)
    rounds: int = 2**40
    from_round: int = 1
    every: int = 1
    enough_to_break: int = 1

    def attacks(self, round_number: int) -> bool:
        """Return whether this round is attacked; in other rounds all parties are honest."""
        return round_number >= self.from_round and (round_number - self.from_round) % self.every == 0

    def options_of(self, kind: type["Misbehaviour"]) -> Any:
        """Return the options that the experiment gives a misbehaviour, or its defaults."""
        return self.options[kind] if kind in self.options else kind.Options()


class Misbehaviour:
    """One deviation of a party from the protocol.

    Attributes:
        name: name in an experiment.
        applies_to: names of the selection or aggregation protocols with the overridden decisions, or "train".
        only_follows: whether it acts only where another class of the same name applies, and not by itself.
        added_stages: stages of questions that it adds to the protocols' stages.
        depends_on_rounds: whether it depends on the number of rounds (`AttackContext.rounds`), so that a longer run
            differs from the first round on.
        Options: options in an experiment; a subclass of `MisbehaviourOptions`.
        update_recovered: pattern that matches the recorded detail if the attack recovered a single client's update;
            None: the attack never recovers one.
        context: targets and rounds; set by `malicious_server` and `dishonest_role`.
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
        """Check that the misbehaviour is possible with a `workload:` section; reads no data.

        Raises:
            ExperimentError: it is not (one line).
        """

    @classmethod
    def check_workload(cls, workload: Workload, options: Any) -> None:
        """Check that the misbehaviour is possible with a workload.

        Args:
            workload: the loaded workload.
            options: of this misbehaviour.

        Raises:
            ExperimentError: it is not (one line).
        """

    @property
    def dishonest(self) -> frozenset[int]:
        """The clients that collude with the server."""
        return self.context.dishonest


class ServerMisbehaviour(Misbehaviour):
    """Mixed into the server side of a protocol to override some decisions; base of the three kinds below.

    Attributes:
        overrides: class with the overridden decisions.
        accomplice_roles: roles that the dishonest clients play in addition to the honest server's roles.
        attacking: whether the current round is attacked; if not, a misbehaviour leaves everything to `super()`.
        network: the round's network, for `record_attack`.
        at_stage: stage of the recorded attack, for decisions made before the stage begins; None: the current stage.
    """

    overrides: ClassVar[type]
    accomplice_roles: ClassVar[tuple[type[Role], ...]] = ()
    at_stage: ClassVar[str | None] = None
    attacking: bool = False
    network: Network

    def record_attack(self, kind: type["ServerMisbehaviour"], detail: str) -> None:
        """Record that a misbehaviour was carried out in this round.

        Args:
            kind: the calling class.
            detail: one line.
        """
        self.network.record_event("server", "attack", f"{kind.name}: {detail}", self.at_stage)


class SelectionMisbehaviour(ServerMisbehaviour):
    """Base class of misbehaviours that override decisions of a selection protocol.

    The other base is the honest server: ``class Mine(SelectionMisbehaviour, LottoServer)``. Attributes: see
    `Misbehaviour` and `ServerMisbehaviour`.

    Example:
        >>> import numpy as np
        >>> from testbed.selection.random_selection import RandomParameters, RandomSelection
        >>> class SmallestNumbers(SelectionMisbehaviour, RandomSelection):
        ...     name, applies_to = "smallest-numbers", ("random",)
        ...     def choose(self, present, round_):
        ...         return present[: self.parameters.participants]
        >>> server = malicious_server(RandomSelection, [SmallestNumbers], AttackContext(dishonest=frozenset({0})))
        >>> server(RandomParameters(participants=2), population=9).choose(np.arange(9), round_=None).tolist()
        [0, 1]
    """

    overrides = SelectionProtocol

    if TYPE_CHECKING:  # `super()` resolves to the honest server

        async def select(self, round_: SelectionRound) -> Selection:
            raise NotImplementedError


class AggregationMisbehaviour(ServerMisbehaviour):
    """Base class of misbehaviours that override decisions of an aggregation protocol.

    The other base is the honest server: ``class Mine(AggregationMisbehaviour, SecAgg)``. Attributes: see `Misbehaviour`
    and `ServerMisbehaviour`.

    Example:
        >>> from testbed.aggregation.plain import Plain, PlainParameters
        >>> class DropHonest(AggregationMisbehaviour, Plain):
        ...     name, applies_to = "drop-honest", ("plain",)
        ...     async def aggregate(self, round_):
        ...         if self.attacking:
        ...             round_.trained = np.intersect1d(round_.trained, list(self.dishonest))
        ...         return await super().aggregate(round_)
        >>> server = malicious_server(Plain, [DropHonest], AttackContext(dishonest=frozenset({0})))
        >>> sorted(server(PlainParameters()).dishonest)
        [0]
    """

    overrides = AggregationProtocol

    if TYPE_CHECKING:

        async def aggregate(self, round_: AggregationRound) -> Aggregate:
            raise NotImplementedError


class TrainingMisbehaviour(ServerMisbehaviour):
    """Base class of misbehaviours that override the model for each client.

    The other base is the honest server: ``class Mine(TrainingMisbehaviour, Broadcast)``. Attributes: see `Misbehaviour`
    and `ServerMisbehaviour`.

    Example:
        >>> import numpy as np
        >>> from testbed.messages import Vector
        >>> class Blank(TrainingMisbehaviour, Broadcast):
        ...     name, applies_to = "blank", ("train",)
        ...     def questions_for(self, round_, question):
        ...         blank = Vector(np.zeros(len(question.model), np.float32), 0)
        ...         return [(round_.trainers, Train(question.round, blank))]
        >>> question = Train(1, Vector(np.ones(2, np.float32), 0))
        >>> round_ = TrainingRound(1, network=None, trainers=np.arange(3), randomness=None)
        >>> Blank().questions_for(round_, question)[0][1].model.values.tolist()
        [0.0, 0.0]
    """

    overrides = Broadcast
    at_stage = Train.stage

    if TYPE_CHECKING:

        def questions_for(self, round_: TrainingRound, question: Train) -> QuestionGroups:
            raise NotImplementedError


class ClientMisbehaviour(Misbehaviour, Role):
    """Base class of misbehaviours that override handlers of the dishonest clients.

    The other base is the honest role: ``class Mine(ClientMisbehaviour, Trainer)``.

    Attributes:
        extends: the honest role.
        name, Options, context: see `Misbehaviour`.

    Example:
        >>> from dataclasses import replace
        >>> from testbed.training import Trainer
        >>> class FlipUpdate(ClientMisbehaviour, Trainer):
        ...     name, extends = "flip-update", Trainer
        ...     def learn(self, workload, message):
        ...         honest = super().learn(workload, message)
        ...         return replace(honest, delta=-honest.delta) if self.attacks(message.round) else honest
        >>> role = dishonest_role(Trainer, [FlipUpdate], AttackContext(dishonest=frozenset({3}), from_round=5))
        >>> role.context.attacks(4), role.context.attacks(5)
        (False, True)
    """

    extends: ClassVar[type[Role]]

    @classmethod
    def concerns(cls, spec: RoleSpec) -> bool:
        """Return whether the misbehaviour changes this role."""
        return issubclass(spec.role, cls.extends)

    @classmethod
    def attacked_samples(cls, options: Any) -> Callable[[Samples], Samples] | None:
        """Return a function that selects and relabels evaluation samples to measure the attack's success.

        The function returns the samples that the attack should affect, with the labels that the attack aims at.

        Args:
            options: of this misbehaviour.

        Returns:
            None if the attack has no such aim.
        """
        return None

    def attacks(self, round_number: int) -> bool:
        """Return whether this round is attacked."""
        return self.context.attacks(round_number)

    def record_attack(self, kind: type["ClientMisbehaviour"], detail: str) -> None:
        """Record that this client has carried out a misbehaviour.

        Args:
            kind: the calling class.
            detail: one line.
        """
        self.client.attacks.append(f"{kind.name}: {detail}")


# -- composition -------------------------------------------------------------------------------------------------------


class _WithAccomplices(ServerMisbehaviour):
    """Outermost class of a malicious server side that has roles."""

    if TYPE_CHECKING:
        parameters: Any

    @property
    def roles(self) -> list[RoleSpec]:
        """The roles of the honest server and of the accomplices."""
        roles: list[RoleSpec] = super().roles  # type: ignore[misc]
        return [*roles, *(RoleSpec(role, self.parameters, self.dishonest) for role in self.accomplice_roles)]


class _Selecting(_WithAccomplices, SelectionMisbehaviour):
    """Outermost class of a malicious selection: sets `attacking` when a round begins."""

    async def select(self, round_: SelectionRound) -> Selection:
        self.attacking, self.network = self.context.attacks(round_.number), round_.network
        return await super().select(round_)


class _Aggregating(_WithAccomplices, AggregationMisbehaviour):
    """Outermost class of a malicious aggregation: sets `attacking` when a round begins."""

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        self.attacking, self.network = self.context.attacks(round_.number), round_.network
        return await super().aggregate(round_)


class _Broadcasting(TrainingMisbehaviour):
    """Outermost class of a malicious broadcast of the model: sets `attacking` when a round's training begins."""

    def questions_for(self, round_: TrainingRound, question: Train) -> QuestionGroups:
        self.attacking, self.network = self.context.attacks(round_.number), round_.network
        return super().questions_for(round_, question)


SERVER_KINDS: dict[type[ServerMisbehaviour], type[ServerMisbehaviour]] = {
    SelectionMisbehaviour: _Selecting,
    AggregationMisbehaviour: _Aggregating,
    TrainingMisbehaviour: _Broadcasting,
}
"""The kinds of server misbehaviours, with the outermost class of each."""


def malicious_server(honest: type, kinds: Sequence[type[ServerMisbehaviour]], context: AttackContext) -> type:
    """Return a server class that overrides `honest` by misbehaviours; `honest` itself if there are none.

    Args:
        honest: the honest server class.
        kinds: misbehaviours of one kind, the first one outermost.
        context: targets and rounds.
    """
    if not kinds:
        return honest
    (outermost,) = {outer for base, outer in SERVER_KINDS.items() for kind in kinds if issubclass(kind, base)}
    roles = tuple(dict.fromkeys(role for kind in reversed(kinds) for role in kind.accomplice_roles))
    own = {"context": context, "accomplice_roles": roles}
    return type(f"Malicious{honest.__name__}", (outermost, *kinds, honest), own)


def dishonest_role(honest: type[Role], kinds: Sequence[type[ClientMisbehaviour]], context: AttackContext) -> type[Role]:
    """Return a role class that overrides `honest` by misbehaviours.

    Args:
        honest: the honest role.
        kinds: misbehaviours, the first one outermost.
        context: targets and rounds.
    """
    return type(f"Dishonest{honest.__name__}", (*kinds, honest), {"context": context})
