"""Kinds of clients: those for whom all that the clock knows is equal in a stage, so that only one of them is computed.

A stage may ask millions, most of whom are alike: the same links and device, the same answer, nobody about to leave.
What becomes of one of a kind becomes of all, bit for bit, as transfers that are alike share a link alike in whatever
order they stand (`fair_sharing`). So a stage's arrays have a row for each kind, and what is to be known of each client
is made of them when somebody asks. Where most clients differ, or losses are drawn for each, everybody is a kind of his
own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids, all_equal

FEW_CLIENTS = 256
"""Below, finding kinds takes longer than it saves."""
MOST_CLASSES = 1000
"""Of links and devices. Where there are more, clients are taken to differ."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ClientGroups:
    """The k kinds of the m clients that a stage asks.

    Attributes:
        clients: `(m,)` int64, sorted.
        which: `(m,)` unsigned, the kind of each; None: each is a kind of his own, in their order.
        first: `(k,)` int64, where among the clients the first one of each kind stands, ascending.
        count: `(k,)` int64, how many there are.
    """

    clients: Ids
    which: npt.NDArray[np.unsignedinteger] | None
    first: Ids
    count: Ids

    @classmethod
    def alone(cls, clients: Ids) -> "ClientGroups":
        """Each of the `(m,)` clients is a kind of his own."""
        return cls(clients, None, np.arange(len(clients)), np.broadcast_to(np.int64(1), clients.shape))

    @classmethod
    def of(cls, clients: Ids, codes: Sequence[npt.NDArray[Any] | None], single: Mask) -> "ClientGroups":
        """Clients of a kind have the same codes.

        Args:
            clients: `(m,)` sorted.
            codes: `(m,)` small numbers from 0 on, each; None for one that is the same for all.
            single: `(m,)` who is a kind of his own, whatever the codes.

        Returns:
            The kinds; everybody alone where they would be more than a quarter of the clients.
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
        """What `(k,)` kinds have, for each client (of a part of them): `(m,)`."""
        if self.which is None:
            return column[part]
        return column.take(self.which[part])

    def members(self, kinds: Mask) -> Ids:
        """The clients of some kinds, `(k,)`; sorted."""
        if self.which is None:
            return self.clients[kinds]
        if kinds.all():
            return self.clients
        return self.clients[kinds.take(self.which)] if kinds.any() else self.clients[:0]


def _combined(size: int, codes: Sequence[npt.NDArray[Any] | None]) -> tuple[npt.NDArray[np.uint32], int]:
    """One code from several, `(size,)`, and how many values it may have."""
    code: npt.NDArray[np.uint32] = np.broadcast_to(np.uint32(0), (size,))
    values = 1
    for column in codes:
        if column is None:
            continue
        more = int(column.max(initial=0)) + 1
        if more > 1:
            code = code * np.uint32(more) + column.astype(np.uint32)
            values *= more
    return code, values


def classes(columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.uint32] | None:
    """`(n,)` rows with the same values in all `(n,)` columns have the same number; None: there are too many such."""
    found = np.broadcast_to(np.uint32(0), columns[0].shape)
    for column in columns:
        if all_equal(column):
            continue
        if len(np.unique(column[: 4 * MOST_CLASSES])) > MOST_CLASSES:
            return None
        values, which = np.unique(column, return_inverse=True)
        together = found * np.uint64(len(values)) + which.astype(np.uint64)
        kept, again = np.unique(together, return_inverse=True)
        if len(kept) > MOST_CLASSES:
            return None
        found = again.astype(np.uint32)
    return found


def is_among(clients: Ids, others: Ids) -> Mask | None:
    """`(m,)` which of the sorted clients are among sorted others; None: all of them."""
    if np.array_equal(clients, others):
        return None
    at = np.searchsorted(others, clients)
    found = np.zeros(len(clients), np.bool_)
    inside = at < len(others)
    found[inside] = others[at[inside]] == clients[inside]
    return found
