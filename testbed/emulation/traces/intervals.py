"""Availability traces: the intervals in which each device was online, measured or synthetic.

A trace is a Parquet or CSV file with exactly the columns ``client, online_from_s, online_until_s``: one row per
interval in which a client was online, half-open, in seconds of the trace's own time, sorted by client and then by
``online_from_s``. The intervals of a client may touch, but not overlap::

    client,online_from_s,online_until_s
    0,0.0,120.5
    0,300.0,420.0
    7,60.0,90.0

*Devices* are the clients of a trace, by their position in it: device 0 is client 0 above, device 1 is client 7. A CSV
trace has no devices without rows. Parquet's metadata (`extent`) may name clients that were watched and never online;
these are devices without intervals, so that they can be counted. The metadata also hold the horizon, the watched span
of time (without it: from the first begin to the last end), clients that were watched for a part of the horizon only,
and names. A device that was watched for a part of the horizon repeats its recording before and after.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.traces.extent import Extent, Recordings
from testbed.emulation.traces.interval_files import (
    BATCH_ROWS,
    CheckedRows,
    RowCheck,
    check_suffix,
    read_batches,
    read_extent,
    row_error,
    write_batches,
)
from testbed.emulation.traces.repetition import repeat_recordings
from testbed.errors import TraceError


@dataclass(frozen=True, eq=False)
class AvailabilityTrace:
    """The online intervals of k devices, device by device; created by `from_rows` or `read`, which check them.

    Attributes:
        clients: `(k,)` int64 ascending, the clients' numbers in the file.
        offsets: `(k + 1,)` int64; the intervals of device i are `offsets[i]:offsets[i + 1]` (none: never online).
        online_from_s: `(total,)` float64 seconds.
        online_until_s: `(total,)` float64 seconds; not included in the interval.
        horizon: seconds at which the trace begins and ends.
        recorded_from_s, recorded_until_s: `(k,)` float64 seconds; begin and end of each device's recording, within the
            horizon.
        names: names of clients in the source of the trace, by their numbers; not all clients need one.
    """

    clients: Ids
    offsets: Ids
    online_from_s: Floats
    online_until_s: Floats
    horizon: tuple[float, float]
    recorded_from_s: Floats
    recorded_until_s: Floats
    names: Mapping[int, str]

    def __len__(self) -> int:
        """Return the number of devices k."""
        return len(self.clients)

    @property
    def horizon_s(self) -> float:
        """Length of the trace in seconds; positive."""
        return self.horizon[1] - self.horizon[0]

    @property
    def never_online(self) -> Ids:
        """`(j,)` numbers of the clients without an interval."""
        never: Ids = self.clients[np.diff(self.offsets) == 0]
        return never

    @classmethod
    def from_rows(
        cls,
        client: npt.ArrayLike,
        online_from_s: npt.ArrayLike,
        online_until_s: npt.ArrayLike,
        where: str = "trace",
        *,
        horizon: tuple[float, float] | None = None,
        clients: npt.ArrayLike = (),
        recorded: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        names: Mapping[int, str] | None = None,
    ) -> "AvailabilityTrace":
        """Return the trace with these rows, which must be sorted as in a file.

        Args:
            client: `(m,)` whole numbers, at least 0.
            online_from_s: `(m,)` seconds.
            online_until_s: `(m,)` seconds.
            where: name of the source in errors.
            horizon: (begin, end) in seconds; None: from the first begin to the last end.
            clients: further clients that were watched; clients without rows are devices that are never online.
            recorded: begin and end of the recording of each of `clients`, `(j,)` seconds each; the recordings of all
                other clients (None: of all clients) are the whole horizon.
            names: names of clients, by their numbers.

        Raises:
            TraceError: with the number of the first row (from 1) that is reversed, empty, unsorted, overlaps the row
                above, or has an invalid number; no rows; a horizon or a recording that leaves out an interval.

        Example:
            >>> trace = AvailabilityTrace.from_rows([0, 0, 7], [0.0, 300.0, 60.0], [120.5, 420.0, 90.0])
            >>> trace.online_until(np.array([0, 1]), 70.0).tolist()
            [120.5, 90.0]
        """
        check = RowCheck(where)
        check.add(client, online_from_s, online_until_s)
        watched = np.asarray(clients, np.int64)
        recordings = Recordings()
        if recorded is not None:
            recordings = Recordings(watched, *(np.asarray(column, np.float64) for column in recorded))
        return cls._of(check.finish(), Extent(horizon, watched, recordings, names or {}), where)

    @classmethod
    def read(cls, path: Path) -> "AvailabilityTrace":
        """Read the trace in a ``.parquet`` or ``.csv`` file, in batches; raise `TraceError` with one line."""
        path = Path(path)
        extent = read_extent(path)
        check = RowCheck(str(path))
        for columns in read_batches(path):
            check.add(*columns)
        return cls._of(check.finish(), extent, str(path))

    @classmethod
    def _of(cls, rows: CheckedRows, extent: Extent, where: str) -> "AvailabilityTrace":
        first, last = float(rows.online_from_s.min()), float(rows.online_until_s.max())
        watched = extent.recordings
        if extent.horizon is None and len(watched.clients):
            first, last = min(first, float(watched.from_s.min())), max(last, float(watched.until_s.max()))
        begin, end = extent.horizon or (first, last)
        if not (math.isfinite(end - begin) and begin <= first and last <= end):
            raise TraceError(
                f"{where}: the horizon {begin} .. {end} must be finite and hold all intervals, from {first} to {last}"
            )
        if (extent.never_online < 0).any():
            raise TraceError(f"{where}: client {extent.never_online.min()} is negative; clients are numbered from 0")
        # Devices without rows count: the share of online clients depends on them.
        clients = np.union1d(rows.clients, np.union1d(extent.never_online, watched.clients))
        counts = np.zeros(len(clients), np.int64)
        counts[np.searchsorted(clients, rows.clients)] = np.diff(rows.offsets)
        offsets = np.append(0, np.cumsum(counts)).astype(np.int64)
        from_s, until_s = np.full(len(clients), begin, np.float64), np.full(len(clients), end, np.float64)
        place = np.searchsorted(clients, watched.clients)
        from_s[place], until_s[place] = watched.from_s, watched.until_s
        made = cls(
            clients, offsets, rows.online_from_s, rows.online_until_s, (begin, end), from_s, until_s, extent.names
        )
        made._check_recordings(where)
        return made

    def _check_recordings(self, where: str) -> None:
        if not self.has_own_recordings:
            return
        begin, end = self.recorded_from_s, self.recorded_until_s
        wrong = ~((begin >= self.horizon[0]) & (begin < end) & (end <= self.horizon[1]))
        if wrong.any():
            at = int(wrong.argmax())
            raise TraceError(
                f"{where}: client {self.clients[at]}: a recording from {begin[at]} until {end[at]}; it must have a "
                f"length, and lie within the horizon {self.horizon[0]} .. {self.horizon[1]}"
            )
        of = self._devices
        outside = (self.online_from_s < begin[of]) | (self.online_until_s > end[of])
        if outside.any():
            row = int(outside.argmax())
            raise row_error(where, row + 1, f"outside of its recording, from {begin[of[row]]} until {end[of[row]]}")

    @property
    def _devices(self) -> Ids:
        """`(total,)` device of each interval."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @property
    def has_own_recordings(self) -> bool:
        """Whether a device was watched for a part of the horizon only."""
        first, last = self.horizon
        return bool((self.recorded_from_s != first).any() or (self.recorded_until_s != last).any())

    def laid_out(self, where: str = "trace") -> "AvailabilityTrace":
        """Return the trace with shorter recordings repeated over the whole horizon.

        Args:
            where: name of the source in errors.

        Raises:
            TraceError: the repetition makes too many intervals.
        """
        if not self.has_own_recordings:
            return self
        of = self._devices
        recorded = self.recorded_from_s[of], self.recorded_until_s[of]
        rows = repeat_recordings(where, (of, self.online_from_s, self.online_until_s), recorded, self.horizon)
        device, from_s, until_s = rows
        return AvailabilityTrace.from_rows(
            self.clients[device],
            from_s,
            until_s,
            where,
            horizon=self.horizon,
            clients=self.clients,
            names=self.names,
        )

    def write(self, path: Path) -> None:
        """Write a ``.parquet`` or ``.csv`` file under a temporary name, and rename it when it is complete.

        CSV has no place for the horizon, for names, and for clients that were never online; recordings shorter than the
        horizon are written `laid_out`.

        Raises:
            TraceError: another suffix, or the file cannot be written.
        """
        check_suffix(path := Path(path))
        written = self.laid_out(str(path)) if path.suffix == ".csv" else self
        part = (self.recorded_from_s != self.horizon[0]) | (self.recorded_until_s != self.horizon[1])
        recordings = Recordings(self.clients[part], self.recorded_from_s[part], self.recorded_until_s[part])
        extent = Extent(self.horizon, self.never_online, recordings, self.names)
        write_batches(path, written._batches(), extent)

    def _batches(self) -> Iterator[tuple[Ids, Floats, Floats]]:
        for start in range(0, len(self.online_from_s), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            begin, until = self.online_from_s[part], self.online_until_s[part]
            device = np.searchsorted(self.offsets, np.arange(start, start + len(begin)), "right") - 1
            yield self.clients[device], begin, until

    def online_until(self, devices: Ids, time_s: npt.ArrayLike) -> Floats:
        """Return the times at which devices that are online go offline; intervals that touch count as one.

        Args:
            devices: `(m,)` positions in the trace, from 0.
            time_s: seconds of the trace's own time; one for all, or `(m,)`.

        Returns:
            `(m,)` float64 seconds; minus infinity for devices that are offline.
        """
        interval = self._intervals_at(devices, time_s)
        until = np.full(len(interval), -np.inf)
        online = interval >= 0
        last = self._last_of_stretch
        until[online] = self.online_until_s[last[np.searchsorted(last, interval[online])]]
        return until

    def stretches(self) -> tuple[Ids, Floats, Floats]:
        """Return the intervals, touching ones joined: `(s,)` devices int64, and `(s,)` begin and end in seconds."""
        last = self._last_of_stretch
        first = np.append(0, last[:-1] + 1)
        device = np.searchsorted(self.offsets, first, "right") - 1
        return device, self.online_from_s[first], self.online_until_s[last]

    @cached_property
    def _last_of_stretch(self) -> Ids:
        """`(s,)` ascending numbers of the intervals that the next interval does not touch."""
        ends = np.ones(len(self.online_from_s), np.bool_)
        # Exactly equal: touching intervals are one stretch, so that a client does not leave for an instant.
        ends[:-1] = self.online_until_s[:-1] != self.online_from_s[1:]
        starts = self.offsets[:-1][np.diff(self.offsets) > 0]
        # The last interval of a device ends there, even if the next device's first one begins at that time.
        ends[starts[1:] - 1] = True
        return np.flatnonzero(ends)

    def _intervals_at(self, devices: Ids, time_s: npt.ArrayLike) -> Ids:
        """Return the `(m,)` number of the interval in which each device is at that time; -1: offline.

        All devices are bisected at once, each in its own part of the array. Unlike a search for a key of device and
        time, which would round, this is exact, and it needs no copy of the trace.
        """
        time = np.broadcast_to(np.asarray(time_s, np.float64), len(devices))
        first, after = self.offsets[devices], self.offsets[np.asarray(devices) + 1]
        low, high = first.copy(), after.copy()  # the first interval of the device that begins later lies in between
        while len(open_ := np.flatnonzero(low < high)):
            middle = (low[open_] + high[open_]) >> 1
            later = self.online_from_s[middle] > time[open_]
            high[open_[later]] = middle[later]
            low[open_[~later]] = middle[~later] + 1
        interval = low - 1
        begun = interval >= first
        online = begun.copy()
        online[begun] = time[begun] < self.online_until_s[interval[begun]]
        return np.where(online, interval, -1)
