"""How concurrent transfers share the server's link: a fluid model with max-min fairness.

At any moment transfer i moves at `min(c_i, L)` bytes per second: c_i is the rate of its own link, and the
level L is the one number at which the rates of all active transfers add up to the server's capacity C
(water-filling; Bertsekas and Gallager, Data Networks, section 6.5.2). While the caps c_i add up to at most
C, nobody is held back and L plays no part.

What the model leaves out: packets, TCP's slow start, loss, and what a long round trip costs a transfer in
its share. A message of a few packets is therefore faster here than on a real link; long transfers come out
right.

How it is computed: transfers that never fill the server's link take what their own links take. Otherwise, while
rates are constant and nobody is cut off, `max_min` follows the level; `transfer_windows` does for the rest.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats
from testbed.emulation.links.rates import Rates
from testbed.network.fair_sharing.max_min import contended_finish
from testbed.network.fair_sharing.transfer_windows import CLOCK_STEPS, NEGLIGIBLE, Transfers, contended


@dataclass(frozen=True, eq=False)
class TransferResult:
    """What became of transfers.

    Attributes:
        finish_s: `(n,)` float64 seconds; infinite: not complete when it was cut off, or never.
        delivered_bytes: `(n,)` float64 bytes that got through, all of them if the transfer is complete.
    """

    finish_s: Floats
    delivered_bytes: Floats


def transfer(
    start_s: npt.ArrayLike,
    size_bytes: npt.ArrayLike,
    rates: Rates,
    capacity_bytes_s: float,
    stop_s: npt.ArrayLike = math.inf,
) -> TransferResult:
    """What becomes of transfers that share one link max-min fairly, each at most as fast as its own link then is.

    Exact up to float rounding. The order of the transfers in the arrays has no influence, not even on that. A
    transfer that lacks less than a part in 10^10 when it is cut off counts as complete.

    Args:
        start_s: `(n,)` seconds; infinite: never starts.
        size_bytes: `(n,)` bytes; a transfer of nothing is complete when it starts.
        rates: of the n transfers' own links.
        capacity_bytes_s: bytes per second of the shared link; may be infinite.
        stop_s: `(n,)` seconds or one for all: from then on a transfer uses no capacity; one that is complete by
            then (inclusive) is not affected.

    Returns:
        When each transfer is complete, and the bytes of it that got through.

    Raises:
        ValueError: arrays of different lengths, a number that is NaN, or a negative size or capacity.
    """
    start, size = (np.asarray(column, np.float64) for column in (start_s, size_bytes))
    stop = np.asarray(stop_s, np.float64)
    if stop.ndim and stop.shape != start.shape:
        raise ValueError(f"start and stop differ in shape: {start.shape}, {stop.shape}")
    if np.isnan(stop).any():
        raise ValueError("a stop must be a number of seconds, or infinite for none")
    stop = np.broadcast_to(stop, start.shape)
    most = rates.maximum()
    _check(start, size, most, capacity_bytes_s)
    finish, delivered = np.where((size > 0) | (start > stop), np.inf, start), np.zeros(len(start))
    moving = np.flatnonzero((size > 0) & (start < np.inf) & (start <= stop) & (most > 0) & (capacity_bytes_s > 0))
    finish[moving], delivered[moving] = _moved(
        start[moving], size[moving], stop[moving], rates.take(moving), capacity_bytes_s
    )
    return TransferResult(finish, delivered)


def _moved(start: Floats, size: Floats, stop: Floats, rates: Rates, capacity: float) -> tuple[Floats, Floats]:
    """Finish times and delivered bytes of transfers that all get something through."""
    most = rates.maximum()
    alone = rates.time_to_send(start, size)
    if exceeds(most, capacity):
        if rates.is_constant and (alone <= stop).all():
            finish = transfer_finish(start, size, most, capacity)
            if (finish <= stop).all():
                return finish, size
        finish, lacking = _in_one_order(start, size, stop, rates, capacity)
        finish = np.maximum(finish, alone)  # rounding makes nobody too fast
    else:
        finish, lacking = alone, size - rates.bytes_between(start, np.minimum(stop, alone))
    slack_s = np.zeros(len(start))
    np.spacing(np.abs(stop), out=slack_s, where=stop < np.inf)
    complete = (finish - CLOCK_STEPS * slack_s <= stop) | (lacking <= NEGLIGIBLE * size)
    delivered = np.where(complete, size, size - np.clip(lacking, 0.0, size))
    return np.where(complete, np.minimum(finish, stop), np.inf), delivered


def _in_one_order(start: Floats, size: Floats, stop: Floats, rates: Rates, capacity: float) -> tuple[Floats, Floats]:
    """Finish times and lacking bytes, with the transfers put in an order that does not depend on the given one."""
    columns = np.stack((start, size, stop, rates.trace_of, rates.phase_s, rates.scale))
    order = np.lexsort(columns[::-1])
    columns = columns[:, order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    at = np.flatnonzero(first)
    count = np.diff(np.append(at, len(order)))
    distinct = order[at]
    found = contended(Transfers(start[distinct], size[distinct], stop[distinct], rates.take(distinct), count), capacity)
    finish, lacking = np.empty(len(order)), np.empty(len(order))
    which = np.cumsum(first) - 1
    finish[order], lacking[order] = found[0][which], found[1][which]
    return finish, lacking


def transfer_finish(
    start_s: npt.ArrayLike, size_bytes: npt.ArrayLike, rate_bytes_s: npt.ArrayLike, capacity_bytes_s: float
) -> Floats:
    """When each transfer is complete, if all share one link max-min fairly.

    Exact up to float rounding. The order of the transfers in the arrays has no influence, not even on that.

    Args:
        start_s: `(n,)` seconds; infinite: never starts.
        size_bytes: `(n,)` bytes; a transfer of nothing finishes when it starts.
        rate_bytes_s: `(n,)` bytes per second of each transfer's own link (0: it never finishes).
        capacity_bytes_s: bytes per second of the shared link; may be infinite.

    Returns:
        `(n,)` float64 seconds; infinite for a transfer that never starts or never finishes.

    Raises:
        ValueError: arrays of different lengths, a number that is NaN, or a negative size, rate or capacity.
    """
    start, size, rate = (np.asarray(column, np.float64) for column in (start_s, size_bytes, rate_bytes_s))
    _check(start, size, rate, capacity_bytes_s)
    finish = start.copy()
    moving = np.flatnonzero((size > 0) & (start < np.inf))
    if capacity_bytes_s == 0:
        finish[moving] = np.inf
        return finish
    with np.errstate(divide="ignore"):
        finish[moving] += size[moving] / rate[moving]
    moving = moving[rate[moving] > 0]
    if not exceeds(rate[moving], capacity_bytes_s):
        return finish
    # From here on the transfers are in one fixed order, so the order of the input cannot matter.
    moving = moving[np.lexsort((rate[moving], size[moving], start[moving]))]
    if _peak_load(start[moving], finish[moving], rate[moving]) <= capacity_bytes_s:
        return finish
    columns = np.stack((start[moving], rate[moving], size[moving]))
    first = np.ones(len(moving), np.bool_)
    first[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    at = np.flatnonzero(first)
    count = np.diff(np.append(at, len(moving)))
    distinct_start, distinct_rate, distinct_size = columns[:, at]
    found = contended_finish(distinct_start, distinct_rate, distinct_size, count, capacity_bytes_s)
    finish[moving] = np.maximum(finish[moving], found[np.cumsum(first) - 1])  # rounding makes nobody too fast
    return finish


def exceeds(rates: Floats, capacity: float) -> bool:
    """Whether the correctly rounded sum of `(n,)` rates, at least 0, is above the capacity.

    A sum of n numbers in any order is wrong by less than a part in n * 2^-52. Only when that could matter are they
    added exactly, one by one, which takes 33 ms for 10^6.
    """
    estimate = float(rates.sum())
    margin = 2 * (len(rates) + 2) * np.finfo(np.float64).eps * estimate
    if math.isfinite(estimate) and abs(estimate - capacity) > margin:
        return estimate > capacity
    return math.fsum(rates.tolist()) > capacity


def _check(start: Floats, size: Floats, rate: Floats, capacity: float) -> None:
    if not start.shape == size.shape == rate.shape or start.ndim != 1:
        raise ValueError(f"start, size and rate differ in shape: {start.shape}, {size.shape}, {rate.shape}")
    if np.isnan(start).any() or (start == -np.inf).any():
        raise ValueError("a start must be a number of seconds, or infinite for a transfer that never starts")
    if not ((size >= 0) & (size < np.inf)).all():
        raise ValueError("a size must be a finite number of bytes, at least 0")
    if not (rate >= 0).all() or not capacity >= 0:
        raise ValueError("a rate and the capacity must be at least 0 bytes per second")


def _peak_load(start: Floats, finish: Floats, rate: Floats) -> float:
    """The largest sum of rates at any moment if nobody is held back; ends count before starts."""
    times = np.concatenate((finish, start))
    change = np.concatenate((-rate, rate))[np.argsort(times, kind="stable")]
    with np.errstate(invalid="ignore"):  # infinite rates: the load is infinite or NaN, which means contention
        peak = float(np.cumsum(change).max())
    return math.inf if math.isnan(peak) else peak
