"""Bandwidth traces as arrays: k piecewise-constant traces, repeated for ever. `series` reads the files."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.traces.series import RateSeries

BYTES_PER_MBIT = 1e6 / 8


@dataclass(frozen=True, eq=False)
class BandwidthTraces:
    """k piecewise-constant bandwidth traces, each repeated for ever, stored one after the other in shared arrays.

    Attributes:
        offsets: `(k + 1,)` int64; trace j has the steps `offsets[j]:offsets[j + 1]`, at least one.
        time_s: `(steps,)` float64 seconds at which each step begins; ascending within a trace, from 0.
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
        """Return the traces of these arrays, converted to the types of the attributes."""
        times, rates, periods = (
            np.ascontiguousarray(values, np.float64) for values in (time_s, rate_bytes_s, period_s)
        )
        return cls(np.ascontiguousarray(offsets, np.int64), times, rates, periods)

    def followed_by(self, others: "BandwidthTraces") -> "BandwidthTraces":
        """Return these traces, followed by the traces `others`."""
        return BandwidthTraces(
            np.concatenate((self.offsets, others.offsets[1:] + len(self.time_s))),
            *(
                np.concatenate((getattr(self, name), getattr(others, name)))
                for name in ("time_s", "rate_bytes_s", "period_s")
            ),
        )

    @cached_property
    def carried_bytes(self) -> Floats:
        """`(steps,)` bytes that the trace has carried before each step."""
        return self._sums[0]

    @cached_property
    def total_bytes(self) -> Floats:
        """`(k,)` bytes per period."""
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
        # A sum per trace: in one running sum over all, a trace would lose digits to the traces before it.
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


def bandwidth_of(series: RateSeries) -> BandwidthTraces:
    """Return the traces of a series in Mbit/s as rates in bytes per second."""
    return BandwidthTraces.of(series.offsets, series.time_s, series.value * BYTES_PER_MBIT, series.period_s)
