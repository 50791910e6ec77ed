"""Groups of clients that the clock cannot tell apart in a stage, so that only one client of each group is computed.

A stage may ask millions of clients. Most of them have the same links and device, give the same answer and stay online.
Transfers with equal parameters share a link equally, in any order (`fair_sharing`), so all
clients of a group get bit for bit the result of their example. The arrays of a stage therefore have one row per group,
and per-client arrays are made on request. Where most clients differ, or losses are drawn for each client, every client
is its own group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids, all_equal

FEW_CLIENTS = 256
"""Below this number of clients, finding groups takes longer than it saves."""
MOST_CLASSES = 1000
"""Largest number of classes of links and devices; with more classes, every client is its own group."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ClientGroups:
    """The k groups of the m clients that a stage asks.

    Attributes:
        clients: `(m,)` int64, sorted client numbers.
        which: `(m,)` unsigned, the group of each client; None: each client is its own group, in their order.
        first: `(k,)` int64, position of the first client of each group among the clients, ascending.
        count: `(k,)` int64, clients per group.
    """

    clients: Ids
    which: npt.NDArray[np.unsignedinteger] | None
    first: Ids
    count: Ids

    @classmethod
    def alone(cls, clients: Ids) -> "ClientGroups":
        """Return groups of one client each, for `(m,)` clients."""
        return cls(clients, None, np.arange(len(clients)), np.broadcast_to(np.int64(1), clients.shape))

    @classmethod
    def of(cls, clients: Ids, codes: Sequence[npt.NDArray[Any] | None], single: Mask) -> "ClientGroups":
        """Group the clients that have the same codes.

        Args:
            clients: `(m,)` int64, sorted client numbers.
            codes: arrays of `(m,)` small numbers from 0 on; None for a code that is the same for all clients.
            single: `(m,)` bool, clients that are their own group regardless of their codes.

        Returns:
            The groups; one per client if there would be more groups than a quarter of the clients.
        """
        alone = np.flatnonzero(single)
        code, values = _combined(len(clients), codes)
        if 4 * (len(alone) + values) > len(clients):
            return cls.alone(clients)
        first = np.full(values, len(clients))
        if values == 1:
            first[0] = np.argmin(single)
        else:
            regular = np.flatnonzero(~single)[::-1]
            first[code[regular]] = regular  # the last one to be entered stays
        there = np.flatnonzero(first < len(clients))
        all_first = np.concatenate((first[there], alone))
        order = np.argsort(all_first)
        # The smallest dtype: one or two bytes per client instead of eight.
        number = np.empty(len(order), np.min_scalar_type(len(order)))
        number[order] = np.arange(len(order))
        of_code = np.zeros(values, number.dtype)
        of_code[there] = number[: len(there)]
        which: npt.NDArray[Any] = np.broadcast_to(of_code, clients.shape) if values == 1 else of_code[code]
        if len(alone):
            which = which.copy()
            which[alone] = number[len(there) :]
        return cls(clients, which, all_first[order], np.bincount(which, minlength=len(order)))

    def __len__(self) -> int:
        return len(self.first)

    @property
    def examples(self) -> Ids:
        """`(k,)` sorted: a client of each kind."""
        return self.clients if self.which is None else self.clients[self.first]

    def spread(self, column: npt.NDArray[Any], part: slice = slice(None)) -> npt.NDArray[Any]:
        """Return the `(m,)` per-client values of a `(k,)` per-group column, for all clients or a part of them."""
        if self.which is None:
            return column[part]
        return column.take(self.which[part])

    def members(self, kinds: Mask) -> Ids:
        """Return the sorted clients of the groups that the `(k,)` mask selects."""
        if self.which is None:
            return self.clients[kinds]
        if kinds.all():
            return self.clients
        return self.clients[kinds.take(self.which)] if kinds.any() else self.clients[:0]


def _combined(size: int, codes: Sequence[npt.NDArray[Any] | None]) -> tuple[npt.NDArray[np.uint32], int]:
    """Combine several codes into one; return the `(size,)` code and the number of values that it may have."""
    code: npt.NDArray[np.uint32] = np.broadcast_to(np.uint32(0), (size,))
    values = 1
    for column in codes:
        if column is None:
            continue
        more = int(column.max(initial=0)) + 1
        if more > 1:
            # Fits: at most `MOST_CLASSES` classes times four flags.
            code = code * np.uint32(more) + column.astype(np.uint32)
            values *= more
    return code, values


def classes(columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.uint32] | None:
    """Number the rows by value: `(n,)` rows that are equal in all `(n,)` columns get the same number.

    Returns:
        `(n,)` uint32; None if there are more than `MOST_CLASSES` classes.
    """
    class_numbers = np.broadcast_to(np.uint32(0), columns[0].shape)
    for column in columns:
        if all_equal(column):
            continue
        # A sample first: sorting millions of different values takes seconds, and would only show that they differ.
        if len(np.unique(column[: 4 * MOST_CLASSES])) > MOST_CLASSES:
            return None
        values, which = np.unique(column, return_inverse=True)
        # 64 bits: a column may have millions of values, times 1000 classes so far.
        together = class_numbers * np.uint64(len(values)) + which.astype(np.uint64)
        distinct, again = np.unique(together, return_inverse=True)
        if len(distinct) > MOST_CLASSES:
            return None
        class_numbers = again.astype(np.uint32)
    return class_numbers


def is_among(clients: Ids, others: Ids) -> Mask | None:
    """Return which clients are in `others`; None if all of them are.

    Args:
        clients: `(m,)` int64, sorted.
        others: int64, sorted.

    Returns:
        `(m,)` bool.
    """
    # The usual case; None spares the callers a mask of the whole population.
    if np.array_equal(clients, others):
        return None
    at = np.searchsorted(others, clients)
    mask = np.zeros(len(clients), np.bool_)
    inside = at < len(others)
    mask[inside] = others[at[inside]] == clients[inside]
    return mask
