"""What is in a trace: counts, how long stretches last, who is online when."""

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats
from testbed.emulation.traces.bandwidth import BYTES_PER_MBIT, BandwidthTraces
from testbed.emulation.traces.intervals import AvailabilityTrace

Counts = npt.NDArray[np.int64]

_GRID = 1000
Facts = dict[str, float | int]


def describe(trace: AvailabilityTrace) -> Facts:
    """A trace in numbers.

    A *stretch* is what is left of intervals when those that touch are joined. Offline stretches are those between
    two online stretches of the same client; what lies before the first and after the last is not counted, because
    nobody knows how long it went on. `online_fraction_least` and `..._most` are over the moments of a grid of 1000
    equal steps, the mean is exact.

    Returns:
        `clients`, `clients_never_online`, `clients_always_online`, `intervals`, `stretches`, `begin_s`, `end_s`,
        `horizon_s`, `online_stretch_mean_s`, `online_stretch_median_s`, `offline_stretch_mean_s`,
        `offline_stretch_median_s` (NaN when there is none), `online_fraction_mean`, `online_fraction_least`,
        `online_fraction_most`; times in seconds.
    """
    device, begin, until = trace.stretches()
    online = until - begin
    same = device[1:] == device[:-1]
    offline = (begin[1:] - until[:-1])[same]
    first, last = trace.horizon
    _, count = availability_over_time(trace, _GRID)
    return {
        "clients": len(trace),
        "clients_never_online": len(trace.never_online),
        "clients_always_online": int(((begin == first) & (until == last)).sum()),
        "intervals": len(trace.online_from_s),
        "stretches": len(online),
        "begin_s": first,
        "end_s": last,
        "horizon_s": trace.horizon_s,
        "online_stretch_mean_s": _mean(online),
        "online_stretch_median_s": _median(online),
        "offline_stretch_mean_s": _mean(offline),
        "offline_stretch_median_s": _median(offline),
        "online_fraction_mean": float(online.sum() / trace.horizon_s / len(trace)),
        "online_fraction_least": float(count.min() / len(trace)),
        "online_fraction_most": float(count.max() / len(trace)),
    }


def availability_over_time(trace: AvailabilityTrace, points: int) -> tuple[Floats, Counts]:
    """How many clients are online at equally spaced moments.

    Args:
        trace: the trace.
        points: number of moments, at least 1; the first is the begin of the horizon, the last one step before its
            end.

    Returns:
        `(points,)` float64 seconds of the trace's own time, and `(points,)` int64 clients online, exactly.
    """
    begin, end = trace.horizon
    moments = begin + (end - begin) * np.arange(points) / points
    return moments, _begun(trace.online_from_s, moments) - _begun(trace.online_until_s, moments)


def _begun(times: Floats, moments: Floats) -> Counts:
    """`(m,)` how many of `times` lie at or before each of the ascending `moments`."""
    at = np.searchsorted(moments, times, "left")  # the first moment that is not before the time
    return np.cumsum(np.bincount(at, minlength=len(moments) + 1))[: len(moments)]


def describe_bandwidth(traces: BandwidthTraces) -> Facts:
    """Bandwidth traces in numbers; every second of every trace counts the same.

    Returns:
        `traces`, `steps`, `seconds` (of all traces together), `seconds_shortest`, `seconds_longest`, `mean_mbit_s`,
        `least_mbit_s`, `p5_mbit_s`, `p25_mbit_s`, `median_mbit_s`, `p75_mbit_s`, `p95_mbit_s`, `most_mbit_s` (rates
        at or below which the link is for that share of the time), `share_at_zero` (of the time).
    """
    rate = traces.rate_bytes_s / BYTES_PER_MBIT
    following = np.append(traces.time_s[1:], 0.0)
    following[traces.offsets[1:] - 1] = traces.period_s
    lasts = following - traces.time_s
    order = np.argsort(rate, kind="stable")
    passed = np.cumsum(lasts[order])
    seconds = float(passed[-1])

    def percentile(share: float) -> float:
        return float(rate[order][min(int(np.searchsorted(passed, share * seconds)), len(rate) - 1)])

    return {
        "traces": len(traces.period_s),
        "steps": len(rate),
        "seconds": seconds,
        "seconds_shortest": float(traces.period_s.min()),
        "seconds_longest": float(traces.period_s.max()),
        "mean_mbit_s": float((rate * lasts).sum() / seconds),
        "least_mbit_s": float(rate.min()),
        "p5_mbit_s": percentile(0.05),
        "p25_mbit_s": percentile(0.25),
        "median_mbit_s": percentile(0.5),
        "p75_mbit_s": percentile(0.75),
        "p95_mbit_s": percentile(0.95),
        "most_mbit_s": float(rate.max()),
        "share_at_zero": float(lasts[rate == 0].sum() / seconds),
    }


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _median(values: Floats) -> float:
    return float(np.median(values)) if len(values) else float("nan")
