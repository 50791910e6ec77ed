"""Plain federated averaging, without any protection: McMahan et al., Communication-Efficient Learning of Deep Networks
from Decentralized Data, arXiv 1602.05629, Algorithm 1. The baseline for what securing the sum costs.
"""

from typing import ClassVar, Literal

import numpy as np

from testbed.aggregation.combining import Aggregate, AggregationParameters, AggregationRound, of_shape
from testbed.errors import RoundAborted, RunError
from testbed.messages import Count, Message, RoundNumber, Vector
from testbed.parties.client import Role, RoleSpec, handles
from testbed.training import trained_update


class PlainParameters(AggregationParameters):
    """The server sees every update."""

    protocol: Literal["plain"] = "plain"


class Update(Message, frozen=True):
    """A client's update in the clear, float32, and its weight."""

    weight: Count
    delta: Vector


class SendUpdate(Message, frozen=True):
    """Send what you have learned."""

    stage: ClassVar[str] = "plain/update"
    Answer: ClassVar[type[Message] | None] = Update

    round: RoundNumber


class PlainClient(Role):
    """Client side."""

    parameters: PlainParameters

    @handles(SendUpdate)
    def on_send_update(self, message: SendUpdate) -> Update:
        """Hand the update over."""
        update = trained_update(self, message.round)
        weight = update.samples if self.parameters.weights == "samples" else 1
        return Update(weight, Vector(np.asarray(update.delta, np.float32), 0))


class Plain:
    """Server side."""

    stages: ClassVar[tuple[str, ...]] = ("plain/update",)
    needs_registration: ClassVar[bool] = False

    def __init__(self, parameters: PlainParameters) -> None:
        self.parameters = parameters

    @property
    def roles(self) -> list[RoleSpec]:
        """See `AggregationProtocol.roles`."""
        return [RoleSpec(PlainClient, self.parameters)]

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """See `AggregationProtocol.aggregate`. Updates without weight or of another shape are left out.

        So are those of batches that are not whole (``batches: whole``): the server has seen them, but its sums are
        those of a `secagg` with which it is compared.
        """
        replies = await round_.network.ask(round_.trained, SendUpdate(round_.number))
        updates = {client: answer for client, answer in replies.valid().items() if answer.weight > 0}
        survivors = of_shape({client: answer.delta for client, answer in updates.items()}, 0, round_.dimension)
        if not len(survivors):
            raise RoundAborted("no-updates", "no participant's update arrived")
        batches = self.parameters.kept_whole(round_.batches)
        if batches is not None:
            survivors = batches.members(batches.whole(survivors))
            if not len(survivors):
                raise RoundAborted("no-whole-batch", "every batch has lost a member")
        shares = np.array([updates[client].weight for client in survivors.tolist()], np.int64)
        try:
            total = await replies.total(survivors, shares)
        except RunError:
            raise RoundAborted("update-too-large", "an update is not finite or too large to sum") from None
        return Aggregate(total / shares.sum(), float(shares.sum()), survivors)
