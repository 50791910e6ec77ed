"""Batch-atomic secure aggregation: a batch is in a sum with all its members or with none, whoever drops out when.

Multi-RoundSecAgg (So et al., arXiv 2106.03328) selects whole batches, and its guarantee T rests on that they are summed
together in every round. It does not say what becomes of a batch that loses a member after selection; `secagg` alone
would sum the others, and the difference of two rounds is then one client's update. Here the server leaves the whole
batch out, and clients see to it that it does. Two checks, each of one client alone, with the public partition:

- Before it sends its input: all members of its own batch have shared their keys with it (else it sends no input, and
  stays to hold the others' shares), and were shown the same keys (``secagg.batch-apart``).
- Before it signs or unmasks a set of survivors: the set is a union of whole batches (``secagg.partial-batch``).

Shares are sealed for those that were shown the same list of keys, with the same s and t (`adverts_digest`). So the
honest members of a batch B that send an input have one list, of at most s clients, and only clients with that list hold
shares of their secrets, however many others the server involves.

What a malicious server with x accomplices in that list can see of B in one round, for x < 2t - s: let A be its honest
clients that reveal shares for a set that holds B, and G those that do for a set without B. Nobody is in both, as a
client reveals once, so that A or G has fewer than t - x members. And a client treats all of B alike.

1. G has fewer than t - x: no mask key of an honest member of B can be rebuilt. Each honest member that has sent an
   input has masked it with every other one (first check), and nobody else knows these masks. They cancel in the sum of
   all of them and nowhere else: what the server sees depends on their inputs through their sum alone. (If one has sent
   none, a mask stays on each of the others, and it sees nothing.)
2. A has fewer than t - x: no self-mask seed of an honest member of B can be rebuilt. Every input of B stays hidden.

So B's honest updates are in what the server sees of the round with one common coefficient, or not at all, and
multi-round privacy is T less the accomplices in a batch. Nothing in this takes signatures, or the revealing clients to
be in the sum. A client whose batch is left out may therefore reveal, too: the mask keys of those outside, its own among
them, and the seeds of those inside. It has sent an input at most under a seed that nobody reveals.

May it also sign, and so help to reach t? The guarantee of `secagg` that a sum is over t - x honest clients or more
rests on signers that are in the sum: each has masked with all survivors (docs/explanation/reconstruction.md). So by
default only survivors' signatures count, and a sum holds t clients or more. With `smallest_sum` everybody's count,
rounds survive the loss of a member in nearly every batch, and the least that a malicious server can have falls to one
batch's sum.
"""

import numpy as np

from testbed.arrays import Ids
from testbed.batches import Batches
from testbed.errors import Refusal, RoundAborted
from testbed.network.contract import no_ids

NOBODY = no_ids()


class BatchPolicy:
    """Who may be summed with whom: here anybody with anybody. Server and clients ask the same object.

    Args:
        min_sum_size: how many clients a sum has at least; None: t.

    Attributes:
        outsiders_sign: whether the signatures of clients that are not in the sum count.
    """

    outsiders_sign: bool = False

    def __init__(self, min_sum_size: int | None = None) -> None:
        self._min_sum_size = min_sum_size

    def min_sum_size(self, threshold: int) -> int:
        """How many clients a sum has at least."""
        return threshold if self._min_sum_size is None else self._min_sum_size

    # -- the server's decisions -----------------------------------------------------------------------------------

    def require_complete_batches(self, clients: Ids, least: int, what: str) -> Ids:
        """Those of `clients` whose batches are complete; fewer than `least` of them end the round."""
        return clients

    def non_contributing_holders(self, shared: Ids) -> Ids:
        """Those of `shared` that will send no input, since a member of their batch has not shared."""
        return NOBODY

    def helpers(self, there: Ids, survivors: Ids) -> Ids:
        """Who is `there` and not in the sum, but is asked for signatures and shares."""
        return NOBODY

    # -- what a client checks -------------------------------------------------------------------------------------

    def batch_peers(self, client: int) -> frozenset[int]:
        """Those with whom alone this client may be summed: its input is masked with all of them, or kept back."""
        return frozenset()

    def check_survivors(self, named: list[int]) -> None:
        """Raise `Refusal` unless these survivors (each named once) may be summed."""


class CompleteBatches(BatchPolicy):
    """The server leaves out incomplete batches, and clients refuse survivors with a part of one.

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
            raise Refusal("secagg.foreign-survivor", "a survivor that is no client")
        broken = self.batches.broken(named)
        if len(broken):
            detail = f"some members of batch {broken[0]} are named as survivors, and some not"
            raise Refusal("secagg.partial-batch", detail)


class AtomicBatches(CompleteBatches):
    """A batch is in what a malicious server sees, too, with all its members or with none: see above.

    Args:
        batches: the public partition.
        smallest_sum: how many clients a sum has at least; None: t, and only who is in the sum signs.
    """

    def __init__(self, batches: Batches, smallest_sum: int | None = None) -> None:
        super().__init__(batches, smallest_sum)
        self.outsiders_sign = smallest_sum is not None

    def non_contributing_holders(self, shared: Ids) -> Ids:
        return np.setdiff1d(shared, self.batches.members(self.batches.whole(shared)))

    def helpers(self, there: Ids, survivors: Ids) -> Ids:
        """All of them: they hold shares of the others' secrets."""
        return np.setdiff1d(there, survivors)

    def batch_peers(self, client: int) -> frozenset[int]:
        return frozenset(self.batches.mates(client).tolist())
