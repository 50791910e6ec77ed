"""Checking the rows of an availability trace, a batch at a time, and saying which row is the first bad one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.errors import TraceError

COLUMNS = ("client", "online_from_s", "online_until_s")

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CheckedRows:
    """What `RowCheck` makes of the rows: k clients, their intervals one after the other.

    Attributes:
        clients: `(k,)` int64 ascending.
        offsets: `(k + 1,)` int64; the intervals of `clients[i]` are `offsets[i]:offsets[i + 1]`.
        online_from_s: `(total,)` float64 seconds.
        online_until_s: `(total,)` float64 seconds.
    """

    clients: Ids
    offsets: Ids
    online_from_s: Floats
    online_until_s: Floats


class RowCheck:
    """Takes batches of rows in the order of the file and checks each row against the one before.

    Beyond the times themselves (16 bytes a row) it keeps one number per client and batch, so a file is never in
    memory as a whole with all its columns.

    Args:
        where: what the messages call the source, e.g. the file's name.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.rows = 0
        self._from, self._until = _Growing(), _Growing()
        self._clients: list[Ids] = []
        self._counts: list[Ids] = []
        self._last: tuple[int, float, float] | None = None

    def add(self, client: npt.ArrayLike, online_from_s: npt.ArrayLike, online_until_s: npt.ArrayLike) -> None:
        """The next rows, three `(m,)` columns; raises `TraceError` for the first row that cannot be."""
        columns = [np.asarray(column) for column in (client, online_from_s, online_until_s)]
        if any(column.shape != columns[0].shape or column.ndim != 1 for column in columns):
            raise TraceError(f"{self.where}: the columns differ in length; each row needs {', '.join(COLUMNS)}")
        for name, column in zip(COLUMNS, columns, strict=True):
            if column.dtype.kind not in "iuf" and len(column):
                raise TraceError(f"{self.where}: column {name} does not hold numbers ({column.dtype})")
        if not len(columns[0]):
            return
        begin, until = (column.astype(np.float64, copy=False) for column in columns[1:])
        ids, no_id = _whole(columns[0])
        self._check(columns[0], ids, no_id, begin, until)
        first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
        self._clients.append(ids[first])
        self._counts.append(np.diff(np.append(first, len(ids))))
        self._from.extend(begin)
        self._until.extend(until)
        self._last = int(ids[-1]), float(begin[-1]), float(until[-1])
        self.rows += len(ids)

    def finish(self) -> CheckedRows:
        """All rows; raises `TraceError` when there were none. The check must not be used afterwards."""
        if not self.rows:
            raise TraceError(f"{self.where}: no intervals; an availability trace needs at least one row")
        clients, counts = np.concatenate(self._clients), np.concatenate(self._counts)
        first = np.flatnonzero(np.append(True, clients[1:] != clients[:-1]))  # a client may go on in the next batch
        offsets = np.append(0, np.cumsum(np.add.reduceat(counts, first)))
        return CheckedRows(clients[first], offsets.astype(np.int64), self._from.finish(), self._until.finish())

    def _check(self, client: npt.NDArray[Any], ids: Ids, no_id: Mask, begin: Floats, until: Floats) -> None:
        follows = np.append(self._last is not None, np.ones(len(ids) - 1, np.bool_))
        last_id, last_begin, last_until = self._last or (0, 0.0, 0.0)
        id_before, begin_before = np.append(last_id, ids[:-1]), np.append(last_begin, begin[:-1])
        until_before = np.append(last_until, until[:-1])
        same = follows & (ids == id_before)
        # For a row that is wrong in several ways the first of these is said.
        faults: list[tuple[Mask, Callable[[int], str]]] = [
            (no_id, lambda at: f"client {client[at]} is not a whole number"),
            (ids < 0, lambda at: f"client {ids[at]} is negative; clients are numbered from 0"),
            (~np.isfinite(begin), lambda at: f"online_from_s is {begin[at]}; it must be a finite number of seconds"),
            (~np.isfinite(until), lambda at: f"online_until_s is {until[at]}; it must be a finite number of seconds"),
            (until < begin, lambda at: f"reversed interval: from {begin[at]} until {until[at]}; swap the two"),
            (until == begin, lambda at: f"empty interval: from {begin[at]} until {until[at]}; leave it out"),
            (
                follows & (ids < id_before),
                lambda at: f"client {ids[at]} comes after client {id_before[at]}; sort by client, then online_from_s",
            ),
            (
                same & (begin < begin_before),
                lambda at: (
                    f"begins at {begin[at]}, before the row above ({begin_before[at]}); sort by client, "
                    "then online_from_s"
                ),
            ),
            (
                same & (begin < until_before),
                lambda at: (
                    f"overlaps the row above: begins at {begin[at]}, that one lasts until {until_before[at]}; "
                    "join the two"
                ),
            ),
        ]
        found = [(int(mask.argmax()), rank) for rank, (mask, _) in enumerate(faults) if mask.any()]
        if found:
            at, rank = min(found)
            raise row_error(self.where, self.rows + at + 1, faults[rank][1](at))


def row_error(where: str, row: int, what: str) -> TraceError:
    """The error for one row, counted from 1 without the header."""
    return TraceError(f"{where}: row {row}: {what}")


def _whole(column: npt.NDArray[Any]) -> tuple[Ids, Mask]:
    """The column as int64, and where it is not a whole number that int64 can hold."""
    if column.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            bad = ~((np.abs(column) < 2.0**63) & (column == np.floor(column)))
        return np.where(bad, 0, column).astype(np.int64), bad
    bad = column > np.iinfo(np.int64).max if column.dtype == np.uint64 else np.zeros(len(column), np.bool_)
    return np.where(bad, 0, column).astype(np.int64), bad


class _Growing:
    """An array that grows in place; joining batches at the end would hold all of them twice."""

    def __init__(self) -> None:
        self._values = np.empty(0)
        self._length = 0

    def extend(self, values: Floats) -> None:
        length = self._length + len(values)
        if length > len(self._values):
            self._values.resize(max(length, len(self._values) * 5 // 4), refcheck=False)
        self._values[self._length : length] = values
        self._length = length

    def finish(self) -> Floats:
        """The values; nothing can be added any more."""
        self._values.resize(self._length, refcheck=False)
        return self._values
