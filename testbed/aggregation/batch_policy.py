"""Batch-atomic secure aggregation: a sum contains all members of a batch or none, however clients drop out.

Multi-RoundSecAgg (So et al., arXiv 2106.03328) selects whole batches. Its guarantee T assumes that a batch is summed as
a whole in every round. The paper does not treat a batch that loses a member after selection: `secagg` alone would sum
the other members, and the difference of two rounds could then be one client's update. Here the server leaves out the
whole batch, and clients enforce this. Each client makes two checks with the public partition:

- Before it sends its input: all members of its batch have shared their keys with it and were shown the same keys
  (``secagg.inconsistent-batch-keys``). If a member has not shared, the client sends no input
  and only holds the shares of others.
- Before it signs or unmasks a set of survivors: the set is a union of whole batches (``aggregation.partial-batch``).

The proof is in docs/explanation/batch-atomic-argument.md.
"""

import numpy as np

from testbed.arrays import Ids
from testbed.batches import Batches
from testbed.errors import Refusal, RoundAborted
from testbed.network.contract import no_ids

NOBODY = no_ids()


class BatchPolicy:
    """Rule for clients that may be summed together; this class allows any. Server and clients use the same rule.

    Args:
        min_sum_size: fewest clients of a sum; None: the threshold t.

    Attributes:
        outsiders_sign: whether the signatures of clients that are not in the sum count.
    """

    outsiders_sign: bool = False

    def __init__(self, min_sum_size: int | None = None) -> None:
        self._min_sum_size = min_sum_size

    def min_sum_size(self, threshold: int) -> int:
        """Return the fewest clients that a sum may have, for the threshold t."""
        return threshold if self._min_sum_size is None else self._min_sum_size

    # -- the server's decisions -----------------------------------------------------------------------------------

    def require_complete_batches(self, clients: Ids, least: int, what: str) -> Ids:
        """Return the clients in complete batches.

        Args:
            clients: sorted client numbers.
            least: clients that the round needs.
            what: end of the message "... of ... needed", e.g. "trained".

        Raises:
            RoundAborted: fewer than `least` clients are in complete batches.
        """
        return clients

    def non_contributing_holders(self, shared: Ids) -> Ids:
        """Return the clients of `shared` that will send no input because a member of their batch has not shared."""
        return NOBODY

    def helpers(self, there: Ids, survivors: Ids) -> Ids:
        """Return the clients that are not in the sum but are asked for signatures and shares.

        Args:
            there: clients that are still in the round.
            survivors: clients in the sum.
        """
        return NOBODY

    # -- checks of a client --------------------------------------------------------------------------------------

    def batch_peers(self, client: int) -> frozenset[int]:
        """Return the other members of the client's batch: it masks its input with all of them, or sends no input."""
        return frozenset()

    def check_survivors(self, named: list[int]) -> None:
        """Raise `Refusal` unless these survivors, each named once, may be summed."""


class CompleteBatches(BatchPolicy):
    """Rule that sums complete batches only: the server leaves out others, and clients refuse parts of a batch.

    Args:
        batches: the public partition.
        min_sum_size: see `BatchPolicy`.
    """

    def __init__(self, batches: Batches, min_sum_size: int | None = None) -> None:
        super().__init__(min_sum_size)
        self.batches = batches

    def require_complete_batches(self, clients: Ids, least: int, what: str) -> Ids:
        complete = self.batches.members(self.batches.whole(clients))
        if len(complete) < least:
            detail = f"{len(complete)} of {least} needed {what} and are in a whole batch"
            raise RoundAborted("too-few-in-whole-batches", detail)
        return complete

    def check_survivors(self, named: list[int]) -> None:
        # `broken` would index beyond the partition.
        if max(named, default=0) >= len(self.batches.of):
            raise Refusal("aggregation.unknown-survivor", "a survivor that is no client")
        broken = self.batches.broken(named)
        if len(broken):
            detail = f"some members of batch {broken[0]} are named as survivors, and some not"
            raise Refusal("aggregation.partial-batch", detail)


class AtomicBatches(CompleteBatches):
    """Rule that keeps batches whole even in the view of a malicious server (docs/explanation/batch-atomic-argument.md).

    Args:
        batches: the public partition.
        smallest_sum: fewest clients of a sum; None: t, and only clients in the sum sign.
    """

    def __init__(self, batches: Batches, smallest_sum: int | None = None) -> None:
        super().__init__(batches, smallest_sum)
        # Only signers in the sum show that it has t - x honest clients, as each of them has masked with all survivors.
        # With `smallest_sum` outsiders sign, too: more rounds complete, but the smallest sum that a server can learn is
        # one batch.
        self.outsiders_sign = smallest_sum is not None

    def non_contributing_holders(self, shared: Ids) -> Ids:
        # Each of them would refuse to send an input that it cannot mask with its whole batch.
        return np.setdiff1d(shared, self.batches.members(self.batches.whole(shared)))

    def helpers(self, there: Ids, survivors: Ids) -> Ids:
        """Return all other clients: they hold shares of the survivors' secrets."""
        # Safe for them: an input that they have sent stays under their self-mask, of which no client reveals a share.
        return np.setdiff1d(there, survivors)

    def batch_peers(self, client: int) -> frozenset[int]:
        # Masks with all members cancel only in the sum of the whole batch.
        return frozenset(self.batches.mates(client).tolist())
