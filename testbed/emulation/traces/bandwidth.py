"""Bandwidth traces: text files with two columns, seconds and Mbit/s, one file per trace.

The columns are separated by white space or a comma; lines that begin with ``#`` and empty ones are skipped (row
numbers in messages count every line)::

    0.0     2.29
    1.01    1.36
    2.011   2.92

A rate holds until the next time; the last one for the median step of its file. Then the trace begins again. The
first time is taken as 0.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.traces.interval_files import row_error
from testbed.errors import TraceError
from testbed.files import limits

BYTES_PER_MBIT = 1e6 / 8

_NEEDED = "each line needs two numbers, seconds and Mbit/s"
# Beyond any link and any trace, so that sums of bytes stay finite.
_LARGEST_MBIT_S = 1e9
_FARTHEST_S = 1e12
_NO_TRACES = ("readme", "license", "licence")


@dataclass(frozen=True, eq=False)
class BandwidthTraces:
    """k piecewise-constant bandwidth traces, each repeated for ever, one after the other in shared arrays.

    Attributes:
        offsets: `(k + 1,)` int64; trace j owns the steps `offsets[j]:offsets[j + 1]`, at least one.
        time_s: `(steps,)` float64 seconds at which each step begins; per trace ascending, from 0.
        rate_bytes_s: `(steps,)` float64 bytes per second during each step; 0: no connection.
        period_s: `(k,)` float64 seconds after which each trace begins again, later than its last step.

    Raises:
        ValueError: the arrays do not describe such traces.
    """

    offsets: Ids
    time_s: Floats
    rate_bytes_s: Floats
    period_s: Floats

    def __post_init__(self) -> None:
        self._check()

    @classmethod
    def of(
        cls, offsets: npt.ArrayLike, time_s: npt.ArrayLike, rate_bytes_s: npt.ArrayLike, period_s: npt.ArrayLike
    ) -> "BandwidthTraces":
        """The traces that any numbers of these shapes describe."""
        times, rates, periods = (np.ascontiguousarray(given, np.float64) for given in (time_s, rate_bytes_s, period_s))
        return cls(np.ascontiguousarray(offsets, np.int64), times, rates, periods)

    def followed_by(self, others: "BandwidthTraces") -> "BandwidthTraces":
        """These traces, and then others."""
        return BandwidthTraces(
            np.concatenate((self.offsets, others.offsets[1:] + len(self.time_s))),
            *(
                np.concatenate((getattr(self, name), getattr(others, name)))
                for name in ("time_s", "rate_bytes_s", "period_s")
            ),
        )

    @cached_property
    def carried_bytes(self) -> Floats:
        """`(steps,)` by the trace before each step."""
        return self._sums[0]

    @cached_property
    def total_bytes(self) -> Floats:
        """`(k,)` in one period."""
        return self._sums[1]

    @cached_property
    def _sums(self) -> tuple[Floats, Floats]:
        first, last = self.offsets[:-1], self.offsets[1:] - 1
        until_s = np.empty(len(self.time_s))
        until_s[:-1] = self.time_s[1:]
        until_s[last] = self.period_s
        amount = self.rate_bytes_s * (until_s - self.time_s)
        carried = np.empty(len(amount))
        total = np.empty(len(self))
        for trace, (begin, end) in enumerate(zip(first.tolist(), (last + 1).tolist(), strict=True)):
            summed = np.cumsum(amount[begin:end])
            carried[begin] = 0
            carried[begin + 1 : end] = summed[:-1]
            total[trace] = summed[-1]
        return carried, total

    def __len__(self) -> int:
        return len(self.period_s)

    def _check(self) -> None:
        offsets, time_s = self.offsets, self.time_s
        if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or offsets[-1] != len(time_s):
            raise ValueError("offsets must begin with 0 and end with the number of steps")
        if (np.diff(offsets) < 1).any():
            raise ValueError(f"trace {int(np.argmax(np.diff(offsets) < 1))} has no steps")
        if time_s.shape != self.rate_bytes_s.shape or time_s.ndim != 1:
            raise ValueError(f"times and rates differ in shape: {time_s.shape}, {self.rate_bytes_s.shape}")
        if self.period_s.shape != (len(offsets) - 1,):
            raise ValueError(f"{len(offsets) - 1} traces need as many periods, not {self.period_s.shape}")
        if (time_s[offsets[:-1]] != 0).any():
            raise ValueError("every trace must begin at 0 seconds")
        rising = np.diff(time_s) > 0
        rising[offsets[1:-1] - 1] = True  # from one trace to the next, time goes back to 0
        if not rising.all():
            raise ValueError(f"the times of a trace must ascend: step {int(np.argmin(rising)) + 1} does not")
        if not ((self.period_s > time_s[offsets[1:] - 1]) & (self.period_s < np.inf)).all():
            raise ValueError("a period must be finite and later than the trace's last step")
        if not ((self.rate_bytes_s >= 0) & (self.rate_bytes_s < np.inf)).all():
            raise ValueError("a rate must be a finite number of bytes per second, at least 0")


def read_bandwidth(path: Path) -> BandwidthTraces:
    """The bandwidth trace in a file, or those in a directory, sorted by the names of the files.

    In a directory, subdirectories are passed over, and so are files whose names begin with a dot or say that they
    are a readme or a licence; every other file must be a trace.

    Args:
        path: the file or directory.

    Raises:
        TraceError: one line with file and row: no such file, no traces in the directory, not text, a line without
            two numbers, a rate that is negative or beyond 1e9, NaN, a time that is not later than the one before,
            a single row (it does not say how long it holds).
    """
    path = Path(path)
    traces = [_read_file(file) for file in bandwidth_files(path)]
    lengths = [len(time_s) for time_s, _, _ in traces]
    return BandwidthTraces.of(
        offsets=np.append(0, np.cumsum(lengths)).astype(np.int64),
        time_s=np.concatenate([time_s for time_s, _, _ in traces]),
        rate_bytes_s=np.concatenate([rate for _, rate, _ in traces]),
        period_s=np.array([period_s for _, _, period_s in traces]),
    )


def bandwidth_files(path: Path) -> list[Path]:
    """The files that `read_bandwidth` reads, in the order of its traces; raises `TraceError` when there are none."""
    if not path.is_dir():
        return [path]
    try:
        files = [file for file in path.iterdir() if file.is_file()]
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    files = [file for file in files if not file.name.startswith(".") and not file.name.lower().startswith(_NO_TRACES)]
    if not files:
        raise TraceError(f"{path}: no bandwidth traces in this directory; {_NEEDED}")
    return sorted(files, key=lambda file: file.name)


def _read_file(path: Path) -> tuple[Floats, Floats, float]:
    """Times from 0 in seconds, rates in bytes per second, and the period in seconds."""
    times: list[float] = []
    rates: list[float] = []
    try:
        with open(path, encoding="utf-8-sig") as file:
            for row, line in enumerate(limits.lines(file, limits.TRACE_BYTES), start=1):
                if line.strip() and not line.startswith("#"):
                    moment, rate = _numbers(path, row, line)
                    if times and moment <= times[-1]:
                        raise row_error(str(path), row, f"time {moment} is not later than the one before, {times[-1]}")
                    times.append(moment)
                    rates.append(rate)
    except UnicodeDecodeError:
        raise TraceError(f"{path}: not text (UTF-8); {_NEEDED}") from None
    except limits.TooLarge as why:
        raise TraceError(f"{path}: {why}; split it") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    if not times:
        raise TraceError(f"{path}: no rows; {_NEEDED}")
    if len(times) == 1:
        raise TraceError(f"{path}: a single row; a bandwidth trace needs two, to say how long a rate holds")
    time_s = np.array(times) - times[0]
    period_s = float(time_s[-1] + np.median(np.diff(time_s)))
    if not (np.diff(time_s) > 0).all() or time_s[-1] == period_s:
        raise TraceError(f"{path}: times from {times[0]} to {times[-1]} with steps too small for float64 to tell apart")
    return time_s, np.array(rates) * BYTES_PER_MBIT, period_s


def _numbers(path: Path, row: int, line: str) -> tuple[float, float]:
    cells = line.replace(",", " ").split()
    if len(cells) != 2:
        raise row_error(str(path), row, f"{len(cells)} {'value' if len(cells) == 1 else 'values'}; {_NEEDED}")
    numbers = []
    for cell in cells:
        try:
            numbers.append(float(cell))
        except ValueError:
            shown = cell if len(cell) <= 40 else f"{cell[:40]}…"
            raise row_error(str(path), row, f"{shown!r} is not a number; {_NEEDED}") from None
    time_s, rate = numbers
    if not abs(time_s) <= _FARTHEST_S:
        raise row_error(str(path), row, f"time {time_s}; it must be seconds, at most {_FARTHEST_S:g} from 0")
    if not 0 <= rate <= _LARGEST_MBIT_S:
        raise row_error(str(path), row, f"rate {rate} Mbit/s; it must be from 0 to {_LARGEST_MBIT_S:g}")
    return time_s, rate
