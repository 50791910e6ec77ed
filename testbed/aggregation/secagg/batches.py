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
rests on signers that are in the sum: each has masked with all survivors (docs/reconstruction.md). So by default only
survivors' signatures count, and a sum holds t clients or more. With `smallest_sum` everybody's count, rounds survive
the loss of a member in nearly every batch, and the least that a malicious server can have falls to one batch's sum.
"""

from typing import TYPE_CHECKING

import numpy as np

from testbed.aggregation.contract import AggregationRound
from testbed.arrays import Ids
from testbed.batches import Batches
from testbed.errors import Refusal, RoundAborted
from testbed.network import Replies
from testbed.network.contract import no_ids

if TYPE_CHECKING:
    from testbed.aggregation.secagg.parameters import SecAggParameters

NOBODY = no_ids()


def check_whole(batches: Batches | None, named: list[int]) -> None:
    """What a client checks of the survivors that it is told (each once); raises `Refusal`."""
    if batches is None:
        return
    if max(named, default=0) >= len(batches.of):
        raise Refusal("secagg.foreign-survivor", "a survivor that is no client")
    broken = batches.broken(named)
    if len(broken):
        raise Refusal("secagg.partial-batch", f"some members of batch {broken[0]} are named as survivors, and some not")


def mates(batches: Batches | None, client: int) -> frozenset[int]:
    """The other members of a client's batch."""
    if batches is None:
        return frozenset()
    return frozenset(batches.mates(client).tolist())


class WholeBatches:
    """The server's part: whose input is summed, and who only helps."""

    parameters: "SecAggParameters"

    def whole(self, round_: AggregationRound, t: int, clients: Ids, what: str) -> Ids:
        """Those of `clients` whose batches are whole (all of them, without batches); too few of them end the round."""
        batches = self.parameters.kept_whole(round_.batches)
        if batches is None:
            return clients
        kept, fewest = batches.members(batches.whole(clients)), self.fewest(round_, t)
        if len(kept) < fewest:
            detail = f"{len(kept)} of {fewest} needed {what} and are in a whole batch"
            raise RoundAborted("too-few-in-whole-batches", detail)
        return kept

    def fewest(self, round_: AggregationRound, t: int) -> int:
        """How many clients a sum has at least."""
        return self.parameters.fewest_in_sum(t, round_.batches)

    def included(self, round_: AggregationRound, t: int, shared: Ids, arrived: Ids) -> Ids:
        """Whose inputs are summed, of those that have `arrived`; raises `RoundAborted` when they are too few.

        Args:
            round_: of the batches.
            t: the threshold.
            shared: who has shared its secrets.
            arrived: whose input is there.
        """
        return self.whole(round_, t, arrived, "sent their input")

    def standing_by(self, round_: AggregationRound, shared: Ids) -> Ids:
        """Those of `shared` that will send no input, since a member of their batch has not shared."""
        batches = self.parameters.kept_whole(round_.batches)
        return NOBODY if batches is None else np.setdiff1d(shared, batches.members(batches.whole(shared)))

    def left_out(self, round_: AggregationRound, replies: Replies, shared: Ids, arrived: Ids, included: Ids) -> Ids:
        """Who is there and not in the sum, but holds shares of the others' secrets: nobody, without batches."""
        if self.parameters.kept_whole(round_.batches) is None:
            return NOBODY
        there = np.union1d(arrived, np.intersect1d(replies.ids, self.standing_by(round_, shared)))
        return np.setdiff1d(there, included)

    def counting(self, signed: dict[int, bytes], excluded: Ids) -> dict[int, bytes]:
        """The signatures that count: those of clients in the sum, unless `smallest_sum` is set."""
        if self.parameters.smallest_sum is not None:
            return signed
        outside = set(excluded.tolist())
        return {client: signature for client, signature in signed.items() if client not in outside}
