"""Batch-atomic secure aggregation: a sum contains all members of a batch or none, however clients drop out.

Multi-RoundSecAgg (So et al., arXiv 2106.03328) selects whole batches. Its guarantee T assumes that a batch is summed as
a whole in every round. The paper does not treat a batch that loses a member after selection: `secagg` alone would sum
the other members, and the difference of two rounds could then be one client's update. Here the server leaves out the
whole batch, and clients enforce this. Each client makes two checks with the public partition:

- Before it sends its input: all members of its batch have shared their keys with it and were shown the same keys
  (``secagg.inconsistent-batch-keys``). If a member has not shared, the client sends no input
  and only holds the shares of others.
- Before it signs or unmasks a set of survivors: the set is a union of whole batches (``aggregation.partial-batch``).

Shares are sealed for clients that were shown the same list of keys, with the same s and t (`adverts_digest`). So the
honest members of a batch B that send an input share one list of at most s clients, and only clients with that list hold
shares of their secrets, even if the server involves more clients.

Consider a malicious server with x accomplices in that list, x < 2t - s. Let A be the honest clients of the list that
reveal shares for a set with B, and G those that reveal shares for a set without B. A client reveals shares once, so A
and G are disjoint, and one of them has fewer than t - x members. A client treats all members of B alike.

1. G has fewer than t - x members: the mask key of an honest member of B cannot be reconstructed. By the first check,
  every honest member that has sent an input has masked it with every other honest member, and only these members know
  the masks. The masks cancel in the sum of all members and nowhere else, so the server's view depends on the inputs
  only through their sum. (If a member has sent no input, a mask stays on the input of each other member, and the server
  learns nothing.)
2. A has fewer than t - x members: the self-mask seed of an honest member of B cannot be reconstructed. Every input of B
  stays hidden.

So the honest updates of B enter the server's view with one common coefficient or not at all. Multi-round privacy is T
less the accomplices in a batch. The argument needs neither signatures nor that the revealing clients are in the sum. So
a client whose batch is left out may reveal shares, too: shares of the mask keys of clients outside the sum, including
its own, and of the seeds of clients inside. Any input that it has sent is still under its self-mask seed, of which no
client reveals a share.

Its signature is another question. The guarantee of `secagg` that a sum has at least t - x honest clients needs signers
that are in the sum, since each of them has masked with all survivors
(docs/explanation/reconstruction-unsigned.md). So by default only signatures of survivors count, and a sum has at least
t clients. With `smallest_sum` all signatures count: rounds survive the loss of a member in nearly every batch, but the
smallest sum that a malicious server can learn is the sum of one batch.
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
        if max(named, default=0) >= len(self.batches.of):
            raise Refusal("aggregation.unknown-survivor", "a survivor that is no client")
        broken = self.batches.broken(named)
        if len(broken):
            detail = f"some members of batch {broken[0]} are named as survivors, and some not"
            raise Refusal("aggregation.partial-batch", detail)


class AtomicBatches(CompleteBatches):
    """Rule that keeps batches whole even in the view of a malicious server (see the module's docstring).

    Args:
        batches: the public partition.
        smallest_sum: fewest clients of a sum; None: t, and only clients in the sum sign.
    """

    def __init__(self, batches: Batches, smallest_sum: int | None = None) -> None:
        super().__init__(batches, smallest_sum)
        self.outsiders_sign = smallest_sum is not None

    def non_contributing_holders(self, shared: Ids) -> Ids:
        return np.setdiff1d(shared, self.batches.members(self.batches.whole(shared)))

    def helpers(self, there: Ids, survivors: Ids) -> Ids:
        """Return all other clients: they hold shares of the survivors' secrets."""
        return np.setdiff1d(there, survivors)

    def batch_peers(self, client: int) -> frozenset[int]:
        return frozenset(self.batches.mates(client).tolist())
