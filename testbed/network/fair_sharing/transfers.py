"""A fluid model of concurrent transfers that share the server's link with max-min fairness.

At any moment transfer i moves at `min(c_i, L)` bytes per second: c_i is the rate of its own link, and the
level L is the one number at which the rates of all active transfers add up to the server's capacity C
(water-filling; Bertsekas and Gallager, Data Networks, section 6.5.2). While the caps c_i add up to at most
C, no transfer is held back and L plays no part.

A transfer may go in flights (`emulation.transport.flights`) if it waits for acknowledgements: it takes part while a
flight is in progress, and uses no capacity between flights. A flight begins at its nominal time (its gap after the
beginning of the previous one) or at the end of the previous one, and then moves like any other transfer.

Limits of the model: it has no packets, and a round trip does not affect the share of concurrent transfers. Without
flights, a message of a few packets is faster than on a real link; long transfers come out right.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.links.rates import Rates
from testbed.emulation.transport.flights import Flights
from testbed.network.fair_sharing.cohort import begin_before_any_ends, cohort_finish
from testbed.network.fair_sharing.flights import Stretches, TransferProgress, check_flights, first_gap, merged
from testbed.network.fair_sharing.max_min import contended_finish
from testbed.network.fair_sharing.windows import CLOCK_STEPS, NEGLIGIBLE, Transfers, contended


@dataclass(frozen=True, eq=False)
class TransferResult:
    """The outcome of transfers.

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
    flights: Flights | None = None,
    count: Ids | None = None,
) -> TransferResult:
    """Compute transfers that share one link max-min fairly, each limited by the rate of its own link.

    The result is exact up to float rounding, and does not depend on the order of the transfers at all. A transfer with
    a remainder of less than a part in 10^10 when it is cut off counts as complete.

    Args:
        start_s: `(n,)` seconds; infinite: never starts.
        size_bytes: `(n,)` bytes; a transfer of 0 bytes is complete when it starts.
        rates: rates of the n transfers' own links.
        capacity_bytes_s: bytes per second of the shared link; may be infinite.
        stop_s: `(n,)` seconds, or one number for all: from then on a transfer uses no capacity; a transfer that is
            complete by then (inclusive) is not affected.
        flights: flights of the n transfers, with the sizes as totals; None: one flight each, without a gap.
        count: `(n,)` number of equal transfers that each row stands for; the result is to the last bit that of listing
            them one by one. None: one each.

    Returns:
        When each transfer is complete, and how many bytes got through.

    Raises:
        ValueError: arrays of different lengths, a number that is NaN, a negative size or capacity, or flights of other
            transfers.
    """
    start, size = (np.asarray(column, np.float64) for column in (start_s, size_bytes))
    stop = np.asarray(stop_s, np.float64)
    if stop.ndim and stop.shape != start.shape:
        raise ValueError(f"start and stop differ in shape: {start.shape}, {stop.shape}")
    if np.isnan(stop).any():
        raise ValueError("stop_s must be a number of seconds, or infinite for no stop")
    stop = np.broadcast_to(stop, start.shape)
    most = rates.maximum()
    _check(start, size, most, capacity_bytes_s)
    begin = start
    if flights is not None:
        check_flights(flights, size)
        begin = start + first_gap(flights)
    finish, delivered = np.where((size > 0) | (start > stop), np.inf, start), np.zeros(len(start))
    moving = np.flatnonzero((size > 0) & (begin < np.inf) & (begin <= stop) & (most > 0) & (capacity_bytes_s > 0))
    finish[moving], delivered[moving] = _moved(
        begin[moving],
        size[moving],
        stop[moving],
        rates.take(moving),
        None if flights is None else flights.take(moving),
        capacity_bytes_s,
        np.broadcast_to(np.int64(1), moving.shape) if count is None else count[moving],
    )
    return TransferResult(finish, delivered)


def _moved(
    start: Floats, size: Floats, stop: Floats, rates: Rates, flights: Flights | None, capacity: float, count: Ids
) -> tuple[Floats, Floats]:
    """Finish times and delivered bytes of transfers that all begin, at `start`, and get something through."""
    most = rates.maximum()
    if flights is None:
        alike, flights = np.zeros(len(start), np.int64), Flights.whole(size)
    else:
        alike, flights = flights.pattern, merged(flights, size, np.minimum(most, capacity))
    alone, stretches = TransferProgress.of(flights, start).unhindered(rates, start, np.full(len(start), np.inf))
    # Only contention costs time: transfers that never fill the server's link take the time of their own links.
    if exceeds(most, capacity, count):
        # `alone` is a lower bound of the finish: beyond the stop at full speed, a transfer is cut off for sure.
        if rates.is_constant and (alone <= stop).all():
            finish = _constant_finish(start, size, most, flights, alike, alone, stretches, capacity, count)
            # Otherwise a cut-off frees capacity, and the constant solution is wrong from then on.
            if (finish <= stop).all():
                return finish, size
        # In windows with a limited number of events, so that memory is bounded.
        finish, lacking = _varying_finish(start, size, stop, rates, flights, alike, capacity, count)
        finish = np.maximum(finish, alone)  # rounding makes nobody too fast
    else:
        finish, lacking = alone, size - stretches.carried(rates, stop)
    slack_s = np.zeros(len(start))
    np.spacing(np.abs(stop), out=slack_s, where=stop < np.inf)
    complete = (finish - CLOCK_STEPS * slack_s <= stop) | (lacking <= NEGLIGIBLE * size)
    delivered = np.where(complete, size, size - np.clip(lacking, 0.0, size))
    return np.where(complete, np.minimum(finish, stop), np.inf), delivered


def _constant_finish(
    start: Floats,
    size: Floats,
    rate: Floats,
    flights: Flights,
    alike: Ids,
    alone: Floats,
    stretches: Stretches,
    capacity: float,
    count: Ids,
) -> Floats:
    """Return when transfers at constant rates above 0 are complete; `alone` is the time on an uncontended link."""
    order = np.lexsort((alike, rate, size, start))
    if not stretches.exceed(rate, order, count, capacity):
        return alone
    at, _, which = distinct(np.stack((start, rate, size, alike))[:, order])
    # Equal transfers get equal shares, so one of each is computed, with its count.
    who = order[at]
    together = np.add.reduceat(count[order], at)
    if len(flights.size_bytes) == len(order) and begin_before_any_ends(start, size, rate, capacity):
        finish_s = cohort_finish(start[who], size[who], rate[who], together, capacity)
    else:
        finish_s = contended_finish(start[who], rate[who], flights.take(who), together, capacity)
    finish = np.empty(len(order))
    finish[order] = finish_s[which]
    return np.maximum(alone, finish)  # rounding makes nobody too fast


def _varying_finish(
    start: Floats, size: Floats, stop: Floats, rates: Rates, flights: Flights, alike: Ids, capacity: float, count: Ids
) -> tuple[Floats, Floats]:
    """Return finish times and remaining bytes of transfers whose rates change, or that may be cut off."""
    columns = np.stack((start, size, stop, rates.trace_of, rates.phase_s, rates.scale, alike))
    order = np.lexsort(columns[::-1])
    at, _, which = distinct(columns[:, order])
    who, together = order[at], np.add.reduceat(count[order], at)
    transfers = Transfers(start[who], size[who], stop[who], rates.take(who), together, flights.take(who))
    ends_s, remaining = contended(transfers, capacity)
    finish, lacking = np.empty(len(order)), np.empty(len(order))
    finish[order], lacking[order] = ends_s[which], remaining[which]
    return finish, lacking


def distinct(columns: npt.NDArray[Any]) -> tuple[Ids, Ids, Ids]:
    """Return the distinct columns of sorted transfers.

    Equal transfers are adjacent and in a fixed order, so that their order in the input does not matter.

    Args:
        columns: `(k, n)`, sorted.

    Returns:
        The first position of each distinct column, its number of occurrences, and the `(n,)` index of each column among
        the distinct ones.
    """
    first = np.ones(columns.shape[1], np.bool_)
    first[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    at = np.flatnonzero(first)
    return at, np.diff(np.append(at, len(first))), np.cumsum(first) - 1


def exceeds(rates: Floats, capacity: float, count: npt.ArrayLike = 1) -> bool:
    """Return whether the correctly rounded sum of rates is above the capacity.

    Args:
        rates: `(n,)` bytes per second, at least 0.
        capacity: bytes per second.
        count: `(n,)` number of transfers with each rate, or one number for all.
    """
    count = np.asarray(count)
    estimate = float((rates * count).sum())
    # A bound of the rounding of numpy's sum; the slow exact sum decides only within it.
    margin = 2 * (len(rates) + 4) * np.finfo(np.float64).eps * estimate
    if math.isfinite(estimate) and abs(estimate - capacity) > margin:
        return estimate > capacity
    return math.fsum(np.repeat(rates, count).tolist()) > capacity


def _check(start: Floats, size: Floats, rate: Floats, capacity: float) -> None:
    if not start.shape == size.shape == rate.shape or start.ndim != 1:
        raise ValueError(f"start, size and rate differ in shape: {start.shape}, {size.shape}, {rate.shape}")
    if np.isnan(start).any() or (start == -np.inf).any():
        raise ValueError("a start must be a number of seconds, or infinite for a transfer that never starts")
    if not ((size >= 0) & (size < np.inf)).all():
        raise ValueError("a size must be a finite number of bytes, at least 0")
    if not (rate >= 0).all() or not capacity >= 0:
        raise ValueError("a rate and the capacity must be at least 0 bytes per second")
