"""Plain federated averaging without protection, the baseline for the cost of secure aggregation.

Source: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, arXiv 1602.05629,
Algorithm 1.

The server sees single updates, so it can combine them by a rule that is robust against poisoned updates
(`testbed.aggregation.robust_rules`). Secure aggregation cannot do that.
"""

from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from testbed.aggregation.contract import Aggregate, AggregationRound, clients_with_shape
from testbed.aggregation.kit.compression import Compressor, Uncompressed
from testbed.aggregation.kit.ring_elements import (
    NoisePolicy,
    NoisyParameters,
    NoisyProtocol,
    NoisyRole,
    noise_policy_of,
)
from testbed.aggregation.robust_rules import RobustKey, RobustRule, combined, robust_rule
from testbed.arrays import Ids
from testbed.errors import Refusal, RoundAborted, RunError, excludes
from testbed.messages import Count, Message, RoundNumber, Vector
from testbed.network.contract import Replies, ids
from testbed.parties.client import Client, RoleSpec, handles
from testbed.training import trained_update


class PlainParameters(NoisyParameters):
    """Parameters of `plain`: the server sees every update, with its share of the noise if participants add noise."""

    stages: ClassVar[tuple[str, ...]] = ("plain/update",)
    asynchronous_buffer: ClassVar[Literal["server", "clients"] | None] = "server"

    protocol: Literal["plain"] = "plain"
    robust: RobustKey = None

    @model_validator(mode="after")
    def _a_rule_compares_updates(self) -> Self:
        if self.robust is None:
            return self
        if self.noise is not None:
            raise excludes(
                "robust", "noise", "a robust rule compares single updates, but noise is planned for their sum"
            )
        if self.compression is not None:
            raise excludes("robust", "compression", "a robust rule compares all coordinates of the updates")
        if self.weights != "equal":
            raise ValueError(
                "weights: samples are reported by the clients, so a dishonest client could outweigh the others under "
                "robust; set weights: equal"
            )
        return self

    @property
    def robust_rule(self) -> str:
        """Name of the rule."""
        return "" if self.robust is None else self.robust.rule

    def named_classes(self) -> list[tuple[str, str]]:
        """Add the robust rule to the list."""
        return [*super().named_classes(), ("robust.rule", self.robust_rule)]

    def check(self, participants: int) -> None:
        """Check that the rule tolerates its dishonest updates among this many participants."""
        if self.robust is not None and self.robust.is_built_in:
            try:
                robust_rule(self.robust).check(participants)
            except ValueError as error:
                raise ValueError(f"robust.{error}") from None

    def check_experiment(self, selection: Any, workload: Any) -> None:
        """Refuse whole batches with a robust rule, which weighs single updates."""
        if self.robust is None:
            return
        if self.batches == "whole" and getattr(selection, "privacy", 1) > 1:
            raise ValueError(
                "batches: whole: robust weighs single updates, so no batch is in the result as a whole; set batches: "
                "ignored"
            )

    def compressor(self) -> Compressor:
        """Return the compression of updates without noise."""
        return Uncompressed() if self.compression is None else self.compression.made()


class Update(Message, frozen=True):
    """A client's update in the clear, float32 or compressed, and its weight."""

    weight: Count
    delta: Vector


class SendUpdate(Message, frozen=True):
    """Question for the update."""

    stage: ClassVar[str] = "plain/update"
    Answer: ClassVar[type[Message] | None] = Update

    round: RoundNumber


class NoisyUpdate(Message, frozen=True):
    """A client's update as ring elements, with its share of the noise."""

    elements: Vector


class SendNoisyUpdate(Message, frozen=True):
    """Question for the update with the client's share of the noise planned for this number of participants."""

    stage: ClassVar[str] = "plain/update"
    Answer: ClassVar[type[Message] | None] = NoisyUpdate

    round: RoundNumber
    participants: Count


class PlainClient(NoisyRole):
    """Client side of `plain`."""

    parameters: PlainParameters

    def __init__(self, client: Client, parameters: PlainParameters) -> None:
        super().__init__(client, parameters)
        self._sent_with_noise = False

    @handles(SendUpdate)
    def on_send_update(self, message: SendUpdate) -> Update:
        """Return the update."""
        # Otherwise a server could get the update without the client's noise.
        if noise_policy_of(self.parameters) is not None:
            raise Refusal(
                "plain.noise-left-out", "the server asks for an update without noise, but the experiment has noise"
            )
        update = trained_update(self, message.round)
        weight = update.samples if self.parameters.weights == "samples" else 1
        delta = np.asarray(update.delta, np.float32)
        return Update(weight, self.parameters.compressor().compressed(delta, self, message.round))

    @handles(SendNoisyUpdate)
    def on_send_noisy_update(self, message: SendNoisyUpdate) -> NoisyUpdate:
        """Return the update with noise, once: the mean of several answers would have less noise."""
        update, most = trained_update(self, message.round), self.environment.maximum_participants
        if noise_policy_of(self.parameters) is None:
            raise Refusal("plain.no-noise", "the server asks for noise, but the experiment has none")
        # More announced participants mean a smaller share of the noise.
        if not 1 <= message.participants <= most:
            raise Refusal(
                "plain.too-many-participants", f"{message.participants} participants announced, allowed 1 to {most}"
            )

        if self._sent_with_noise:
            raise Refusal("plain.repeated-answer", f"the update of round {message.round} was sent before")
        self._sent_with_noise = True
        elements = self.noise.encoded(self, update, message.participants, message.round)
        return NoisyUpdate(Vector(np.asarray(elements), self.parameters.bits))


class Plain(NoisyProtocol):
    """Server side of `plain`."""

    parameters: PlainParameters
    stages = PlainParameters.stages

    def __init__(self, parameters: PlainParameters) -> None:
        super().__init__(parameters)
        self.rule: RobustRule | None = None if parameters.robust is None else robust_rule(parameters.robust)

    @property
    def roles(self) -> list[RoleSpec]:
        return [RoleSpec(PlainClient, self.parameters)]

    def upload_question(self, round_number: int) -> Message:
        """Return the question for a single update, as the server may see each update."""
        return SendUpdate(round_number)

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Average the updates.

        Updates without weight, with a weight other than 1 where all weights are equal, or with another shape are left
        out. So are updates of incomplete batches (``batches: whole``), so that the sums are those of `secagg`.
        """
        noise = noise_policy_of(self.parameters)
        if noise is not None:
            return await self._with_noise(round_, noise)
        replies = await round_.network.ask(round_.trained, SendUpdate(round_.number))
        updates = {
            client: answer
            for client, answer in replies.valid().items()
            if answer.weight > 0 and self._is_its_weight(client, answer, round_)
        }
        compressor = self.parameters.compressor()
        length = None if round_.dimension is None else compressor.length(round_.dimension)
        deltas = {client: answer.delta for client, answer in updates.items()}
        arrived = clients_with_shape(deltas, compressor.form, length)
        survivors = self._survivors(arrived, round_)
        if self.rule is not None:
            return await self._robust(self.rule, replies, survivors, round_)
        shares = np.array([updates[client].weight for client in survivors.tolist()], np.int64)
        try:
            total = await replies.total(survivors, shares)
        except RunError:
            raise RoundAborted("update-too-large", "an update is not finite or too large to sum") from None
        mean = compressor.mean(total / shares.sum(), round_)
        return Aggregate(mean, float(shares.sum()), survivors)

    def _is_its_weight(self, client: int, answer: Update, round_: AggregationRound) -> bool:
        """Return whether the weight is allowed: with equal weights, a larger one would outweigh the other clients."""
        if self.parameters.weights == "samples" or answer.weight == 1:
            return True
        round_.network.record_event(f"client:{client}", "misbehaviour", f"sent weight {answer.weight}; all count 1")
        return False

    async def _robust(self, rule: RobustRule, replies: Replies, arrived: Ids, round_: AggregationRound) -> Aggregate:
        """Combine the finite updates by the rule; record clients with other updates."""
        updates = {}
        for client, vector in (await replies.vectors(arrived)).items():
            # Rules compare numbers, and a NaN has no order.
            if np.isfinite(vector.values).all():
                updates[client] = vector.values
            else:
                round_.network.record_event(f"client:{client}", "misbehaviour", "sent an update that is not finite")
        clients = ids(sorted(updates))
        try:
            if not len(clients):
                raise ValueError("no update that is finite arrived")
            rule.check(len(clients))
        except ValueError as error:
            raise RoundAborted("too-few-updates", str(error)) from None
        result = combined(rule, [updates[client] for client in clients.tolist()])
        return Aggregate(result.mean, float(len(result.used)), clients[result.used])

    async def _with_noise(self, round_: AggregationRound, noise: NoisePolicy) -> Aggregate:
        participants = len(round_.participants)
        replies = await round_.network.ask(round_.trained, SendNoisyUpdate(round_.number, participants))
        updates = {client: answer.elements for client, answer in replies.valid().items()}
        length = None if round_.dimension is None else noise.length(round_.dimension)
        survivors = self._survivors(clients_with_shape(updates, self.parameters.bits, length), round_)
        total = await replies.total(survivors)
        mean, weight = noise.mean(total, len(survivors), round_)
        return Aggregate(mean, weight, survivors, noise.remaining_share(len(survivors), participants))

    def _survivors(self, arrived: Ids, round_: AggregationRound) -> Ids:
        """Return the clients in the sum; raises `RoundAborted` if there are none."""
        if not len(arrived):
            raise RoundAborted("no-updates", "no participant's update arrived")
        batches = self.parameters.atomic_batches(round_.batches)
        if batches is None:
            return arrived
        survivors = batches.members(batches.whole(arrived))
        if not len(survivors):
            raise RoundAborted("no-whole-batch", "every batch has lost a member")
        return survivors
