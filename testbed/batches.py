"""Batches: groups of clients that participate together or not at all.

So et al., Securing Secure Aggregation: Mitigating Multi-Round Privacy Leakage in Federated Learning
(Multi-RoundSecAgg), arXiv 2106.03328, section 4. The members of batches are public and the same in every round.
"""

from collections.abc import Iterable
from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids


class Batches:
    """A partition of the clients 0 to n - 1.

    Args:
        of: (n,) the batch of each client, numbered from 0 without gaps.

    Example:
        >>> Batches([0, 0, 1, 1]).broken([0, 2, 3]).tolist()
        [0]
    """

    def __init__(self, of: npt.ArrayLike) -> None:
        self.of = np.asarray(of, np.int64)

    @classmethod
    def consecutive(cls, population: int, size: int) -> "Batches":
        """Return batches of consecutive clients with at least `size` members, as many as possible.

        If `size` does not divide n, the first n mod floor(n/size) batches have one more member.

        Args:
            population: n.
            size: least number of members of a batch.
        """
        count = max(1, population // size)
        sizes = np.full(count, population // count, np.int64)
        sizes[: population % count] += 1
        return cls(np.repeat(np.arange(count, dtype=np.int64), sizes))

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def sizes(self) -> Ids:
        """(batches,) number of members of each batch."""
        return np.bincount(self.of)

    def largest(self, count: int) -> int:
        """Return the total number of members of the `count` largest batches."""
        return int(np.sort(self.sizes)[len(self) - count :].sum())

    def members(self, batches: npt.ArrayLike) -> Ids:
        """Return the sorted clients of these batches."""
        taken = np.zeros(len(self.sizes), np.bool_)
        taken[np.asarray(batches, np.int64)] = True
        return np.flatnonzero(taken[self.of]).astype(np.int64)

    def mates(self, client: int) -> Ids:
        """Return the other clients of this client's batch, sorted, in time independent of n."""
        batch = int(self.of[client])
        end = int(self._ends[batch])
        members = self._grouped[end - int(self.sizes[batch]) : end]
        others: Ids = members[members != client]
        return others

    @cached_property
    def _grouped(self) -> Ids:
        """(n,) clients by batch, ascending within each."""
        # Stable: clients of one batch stay in ascending order, which `mates` returns.
        return np.argsort(self.of, kind="stable").astype(np.int64)

    @cached_property
    def _ends(self) -> Ids:
        """(batches,) end of each batch in `_grouped`."""
        return np.cumsum(self.sizes)

    def whole(self, clients: npt.ArrayLike) -> Ids:
        """Return the sorted batches with all members among `clients`, which lists each client once."""
        # Counting members is enough, as no client is listed twice.
        there = np.bincount(self.of[np.asarray(clients, np.int64)], minlength=len(self.sizes))
        return np.flatnonzero(there == self.sizes).astype(np.int64)

    def broken(self, clients: Iterable[int]) -> Ids:
        """Return the sorted batches with some, but not all, members among `clients`, which lists each client once."""
        there = np.bincount(self.of[np.fromiter(clients, np.int64)], minlength=len(self.sizes))
        return np.flatnonzero((there > 0) & (there < self.sizes)).astype(np.int64)
