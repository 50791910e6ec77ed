"""A malicious server that moves clients to other batches, and back.

Multi-round privacy T (So et al., arXiv 2106.03328) holds for one partition of the clients. With sums over batches of
two partitions, strong T is 1; with sums over many partitions, the updates of single clients follow.
"""

from typing import ClassVar

from testbed.adversary.misbehaviour import SelectionMisbehaviour
from testbed.adversary.selection.batches import BatchMisbehaviour
from testbed.batches import Batches
from testbed.parties.client import Role, handles
from testbed.selection.announced_batches import BatchesPinned, BatchListSignatures, BatchMember
from testbed.selection.batch_partition import BatchPartitionSelection, BatchSelection
from testbed.selection.contract import Selection, SelectionRound


class BatchAccomplice(BatchMember):
    """Signs every list, and takes part whoever else has signed."""

    def check_pinned(self) -> None:
        """Accept any batch."""

    @handles(BatchListSignatures)
    def on_signatures(self, message: BatchListSignatures) -> BatchesPinned:
        """Take part with all clients in the list."""
        directory = self.environment.look_up(self.message.clients)
        self.client.agreed_participants = {client: directory.signing_key(client) for client in self.message.clients}
        self.use_list()
        return BatchesPinned()


class _MovesClients(SelectionMisbehaviour, BatchSelection):
    """Uses another partition in every second attacked round, a new one each time.

    Attributes:
        first: the honest partition; None before the first round.
    """

    first: Batches | None = None

    async def select(self, round_: SelectionRound) -> Selection:
        """Select by the partition of this round."""
        if self.first is None:
            self.first = self.batches
        self.batches = self.first
        turn = (round_.number - self.context.from_round) // self.context.every
        # The other rounds keep the first partition, or there would be nothing to mix with it.
        if self.attacking and turn % 2:
            self.batches = Batches(round_.rng("rebatch").permutation(self.first.of))
            self.record_attack(Rebatch, "selected among batches of another partition of the clients")
        return await super().select(round_)


class Rebatch(_MovesClients, BatchPartitionSelection):
    """Selects batches of another partition in every second attacked round, and of the first partition in the others."""

    name: ClassVar[str] = "rebatch"
    applies_to: ClassVar[tuple[str, ...]] = ("batch-partition", "partition")
    accomplice_roles: ClassVar[tuple[type[Role], ...]] = (BatchAccomplice,)


class RebatchVerifiable(_MovesClients, BatchMisbehaviour):
    """Lists batches of another partition in every second attacked round; clients know the partition."""

    name: ClassVar[str] = Rebatch.name
