"""Common part of converters: named devices' intervals become one validated trace; everything dropped is counted.

A recording rarely covers the whole time span of its data set: most phones of FLASH were observed for one to seven days
out of thirteen. Outside its own recording a device is either

- ``repeat``: in the state of the recording repeated end to end. FLASH's timer does this (its `Timer.ready` takes the
  time modulo the length of the device's own recording), and FedScale (modulo the device's `finish_time`);
- ``offline``: offline, which understates availability by as much as recordings are shorter than the horizon.

Repeated recordings are either written out over the horizon (the phones' converters do this), or stored with the time of
each recording, for the run to repeat for ever (`trace(keep_recordings=True)`).
"""

from array import array
from typing import Any, Literal

import numpy as np

from testbed.arrays import Floats, Ids
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.repetition import repeat_recordings
from testbed.emulation.traces.text_files import shown
from testbed.errors import TraceError

Counts = dict[str, int]
Outside = Literal["repeat", "offline"]
Name = str | int

DAY_S = 86_400.0
_LARGEST_ID = 2**62


class Collected:
    """Devices and their online intervals in the form of a source: unsorted, overlapping, empty, reversed.

    Args:
        where: the source, for messages.
        by_place: number clients by their positions, even if all names are numbers.

    Attributes:
        counts: numbers of devices and intervals in the source, kept and dropped; converters add their own lines.
    """

    def __init__(self, where: str, *, by_place: bool = False) -> None:
        self.where = where
        self._by_place = by_place
        self.counts: Counts = {"devices": 0, "devices_unusable": 0}
        self.names: list[Name] = []
        # Arrays: 8 bytes per number, where lists of Python's floats take 32; sources have millions.
        self._begin, self._end = array("d"), array("d")
        self._device, self._from, self._until = array("q"), array("d"), array("d")

    def unusable(self, reason: str) -> None:
        """Count a device that cannot be used; `reason` becomes part of a count's name."""
        self.counts["devices"] += 1
        self.counts["devices_unusable"] += 1
        key = f"devices_unusable_{reason}"
        self.counts[key] = self.counts.get(key, 0) + 1

    def device(self, name: Name, begin_s: float = -np.inf, end_s: float = np.inf) -> int:
        """Add a device, recorded from `begin_s` to `end_s` (seconds of the source's clock); return its position."""
        self.counts["devices"] += 1
        self.names.append(name)
        self._begin.append(begin_s)
        self._end.append(end_s)
        return len(self.names) - 1

    def record(self, device: int, begin_s: float, end_s: float) -> None:
        """Set the recording of the device at this position, if it becomes known only after the device was added."""
        self._begin[device], self._end[device] = begin_s, end_s

    def online(self, device: int, from_s: float, until_s: float) -> None:
        """Add an interval (seconds of the source's clock) of the device at this position."""
        self._device.append(device)
        self._from.append(from_s)
        self._until.append(until_s)

    def whole_days(self) -> tuple[float, float]:
        """Return (origin, length) in s: from the midnight before the first recording to the midnight after the last.

        Time 0 of the source's clock must be a midnight. A horizon of whole days keeps the time of day when it repeats.
        """
        if not self.names:
            return 0.0, DAY_S
        # At midnight, so that the time of day is `time % 86400`, in every repetition.
        origin = np.floor(min(self._begin) / DAY_S) * DAY_S
        return float(origin), float(max(1.0, np.ceil((max(self._end) - origin) / DAY_S)) * DAY_S)

    def trace(
        self,
        outside: Outside = "offline",
        origin_s: float = 0.0,
        horizon_s: float | None = None,
        *,
        keep_recordings: bool = False,
    ) -> tuple[AvailabilityTrace, Counts]:
        """Return the trace and the counts.

        Args:
            outside: the state of a device outside its own recording.
            origin_s: the source's time that becomes 0.
            horizon_s: the trace's horizon is [0, horizon_s); None: from the first interval or recording to the last.
            keep_recordings: store repeated recordings once, with the time of each device's recording.

        Raises:
            TraceError: a time is not a number, no device is ever online, or the repetition makes too many intervals.
        """
        device, from_s, until_s = self._cleaned()
        if not len(device):
            raise TraceError(f"{self.where}: no device is ever online; {_counts_text(self.counts)}")
        recorded = np.array(self._begin) - origin_s, np.array(self._end) - origin_s
        keep = keep_recordings and outside == "repeat"
        if horizon_s is not None and outside == "repeat" and not keep:
            of = np.array(self._begin)[device], np.array(self._end)[device]
            span = origin_s, origin_s + horizon_s
            device, from_s, until_s = repeat_recordings(self.where, (device, from_s, until_s), of, span)
            self.counts["intervals_after_repeating"] = len(device)
        from_s, until_s = from_s - origin_s, until_s - origin_s
        self.counts["devices_never_online"] = len(self.names) - len(np.unique(device))
        self.counts["devices_kept"] = len(self.names)
        number = self._numbers()
        order = np.lexsort((from_s, number[device]))
        horizon = None if horizon_s is None else (0.0, horizon_s)
        if horizon is None and np.isfinite(recorded).all():
            horizon = float(recorded[0].min()), float(recorded[1].max())
        names = {int(client): str(name) for client, name in zip(number, self.names, strict=True)}
        trace = AvailabilityTrace.from_rows(
            number[device[order]],
            from_s[order],
            until_s[order],
            self.where,
            horizon=horizon,
            clients=number,
            recorded=recorded if keep else None,
            names=names if any(str(client) != name for client, name in names.items()) else None,
        )
        if keep and horizon is not None:
            shorter = (recorded[0] != horizon[0]) | (recorded[1] != horizon[1])
            self.counts["devices_recorded_for_a_part_of_the_horizon"] = int(shorter.sum())
        of_devices = {key: value for key, value in self.counts.items() if key.startswith("devices")}
        return trace, of_devices | self.counts

    def _cleaned(self) -> tuple[Ids, Floats, Floats]:
        """Return sorted, disjoint intervals of positive length within the recordings; count all others."""
        device = np.array(self._device, np.int64)
        from_s, until_s = np.array(self._from, np.float64), np.array(self._until, np.float64)
        self.counts["intervals"] = len(device)
        bad = np.flatnonzero(~(np.isfinite(from_s) & np.isfinite(until_s)))
        if len(bad):
            first = int(bad[0])
            place = first - int(np.flatnonzero(device == device[first])[0]) + 1
            name = shown(self.names[device[first]])
            raise TraceError(
                f"{self.where}: device {name}: interval {place}: a time is not a finite number; correct it"
            )
        order = np.argsort(device, kind="stable")  # each device's intervals in the order of the source
        same_device = np.diff(device[order]) == 0
        self.counts["intervals_unsorted"] = int((same_device & (np.diff(from_s[order]) < 0)).sum())
        self.counts["intervals_zero_length"] = int((from_s == until_s).sum())
        self.counts["intervals_reversed"] = int((until_s < from_s).sum())
        begin, end = np.array(self._begin)[device], np.array(self._end)[device]
        proper = until_s > from_s
        self.counts["intervals_beyond_recording"] = int((proper & ((from_s < begin) | (until_s > end))).sum())
        # After the counts above, which are about the source as it is.
        from_s, until_s = np.maximum(from_s, begin), np.minimum(until_s, end)
        keep = proper & (until_s > from_s)
        rows = join_intervals(device[keep], from_s[keep], until_s[keep])
        self.counts["intervals_merged"] = int(keep.sum()) - len(rows[0])
        self.counts["intervals_kept"] = len(rows[0])
        return rows

    def _numbers(self) -> Ids:
        """Return a client number for each device: its name if all names are whole numbers, else its position."""
        if self._by_place:
            return np.arange(len(self.names))
        own = [whole_number(name) for name in self.names]
        if None not in own:
            numbers = np.array(own, np.int64)
            if len(np.unique(numbers)) == len(numbers):  # sorted: hashes of numbers can be made to collide
                return numbers
        self.counts["devices_renumbered"] = len(own)
        return np.arange(len(own))


def join_intervals(device: Ids, from_s: Floats, until_s: Floats) -> tuple[Ids, Floats, Floats]:
    """Return the same times as sorted intervals that do not overlap; touching intervals are joined.

    Args:
        device, from_s, until_s: `(m,)`, in any order; from_s < until_s.

    Returns:
        `(k,)` each, k <= m, sorted by (device, from_s).

    Example:
        >>> [column.tolist() for column in join_intervals(np.array([0, 0]), np.array([2.0, 0.0]), np.array([3.0, 2.0]))]
        [[0], [0.0], [3.0]]
    """
    order = np.lexsort((from_s, device))
    device, from_s, until_s = device[order], from_s[order], until_s[order]
    # The latest end so far, within a device: ends as ranks, so that one running maximum serves all devices.
    by_end = np.argsort(until_s, kind="stable")
    rank = np.empty(len(device), np.int64)
    rank[by_end] = np.arange(len(device))
    group = np.cumsum(np.concatenate([[0], np.diff(device) != 0]))[: len(device)] * len(device)
    latest = until_s[by_end[np.maximum.accumulate(group + rank) - group]]
    starts = np.ones(len(device), np.bool_)
    starts[1:] = (device[1:] != device[:-1]) | (from_s[1:] > latest[:-1])
    ends = np.append(starts[1:], True)[: len(device)]
    return device[starts], from_s[starts], latest[ends]


def whole_number(name: Name) -> int | None:
    """Return the client number in a device's name; None unless the name is canonical (``"17"``, not ``"017"``)."""
    if isinstance(name, str):
        if not (name.isascii() and name.isdigit() and len(name) < 19 and (name == "0" or name[0] != "0")):
            return None
        name = int(name)
    return name if not isinstance(name, bool) and 0 <= name < _LARGEST_ID else None


def seconds(value: Any) -> float:
    """Return a value of a source as float; NaN if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return float("nan")
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _counts_text(counts: Counts) -> str:
    return ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in counts.items() if value) or "it is empty"
