"""How concurrent transfers share the server's link: a fluid model with max-min fairness.

At any moment transfer i moves at `min(c_i, L)` bytes per second: c_i is the rate of its own link, and the
level L is the one number at which the rates of all active transfers add up to the server's capacity C
(water-filling; Bertsekas and Gallager, Data Networks, section 6.5.2). While the caps c_i add up to at most
C, nobody is held back and L plays no part.

What the model leaves out: packets, TCP's slow start, loss, and what a long round trip costs a transfer in
its share. A message of a few packets is therefore faster here than on a real link; long transfers come out
right.

How it is computed: transfers that never fill the server's link take what their own links take. Otherwise, while
rates are constant and nobody is cut off, `max_min` follows the level. Where they change or transfers are cut off, time
is cut into windows of a limited number of events (starts, stops, changes of rate). A window in which the rates never
add up to more than the capacity takes no more than the bytes that each link carries in it; in the others
`time_varying` follows the level from event to event. So memory is bounded, and only contention costs time.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.links.rates import Rates
from testbed.network.fair_sharing.max_min import contended_finish
from testbed.network.fair_sharing.time_varying import Events, share_time_varying


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
            finish = _constant_finish(start, size, most, alone, capacity)
            if (finish <= stop).all():
                return finish, size
        finish, lacking = _varying_finish(start, size, stop, rates, capacity)
        finish = np.maximum(finish, alone)  # rounding makes nobody too fast
    else:
        finish, lacking = alone, size - rates.bytes_between(start, np.minimum(stop, alone))
    slack_s = np.zeros(len(start))
    np.spacing(np.abs(stop), out=slack_s, where=stop < np.inf)
    complete = (finish - CLOCK_STEPS * slack_s <= stop) | (lacking <= NEGLIGIBLE * size)
    delivered = np.where(complete, size, size - np.clip(lacking, 0.0, size))
    return np.where(complete, np.minimum(finish, stop), np.inf), delivered


def _constant_finish(start: Floats, size: Floats, rate: Floats, alone: Floats, capacity: float) -> Floats:
    """When transfers at constant rates above 0 are complete that would be at `alone` if nobody held them back."""
    order = np.lexsort((rate, size, start))
    if _peak_load(start[order], alone[order], rate[order]) <= capacity:
        return alone
    columns = np.stack((start, rate, size))[:, order]
    at, count, which = _distinct(columns)
    one_start, one_rate, one_size = columns[:, at]
    found = contended_finish(one_start, one_rate, one_size, count, capacity)
    finish = np.empty(len(order))
    finish[order] = found[which]
    return np.maximum(alone, finish)  # rounding makes nobody too fast


def _varying_finish(start: Floats, size: Floats, stop: Floats, rates: Rates, capacity: float) -> tuple[Floats, Floats]:
    """Finish times and lacking bytes of transfers whose rates change, or that may be cut off."""
    columns = np.stack((start, size, stop, rates.trace_of, rates.phase_s, rates.scale))
    order = np.lexsort(columns[::-1])
    at, count, which = _distinct(columns[:, order])
    who = order[at]
    found = contended(Transfers(start[who], size[who], stop[who], rates.take(who), count), capacity)
    finish, lacking = np.empty(len(order)), np.empty(len(order))
    finish[order], lacking[order] = found[0][which], found[1][which]
    return finish, lacking


def _distinct(columns: npt.NDArray[Any]) -> tuple[Ids, Ids, Ids]:
    """Of `(k, n)` sorted transfers: where each distinct one first stands, how often it does, and `(n,)` which each is.

    In one order, and together if they are equal, so that the order in which they are given cannot matter.
    """
    first = np.ones(columns.shape[1], np.bool_)
    first[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    at = np.flatnonzero(first)
    return at, np.diff(np.append(at, len(first))), np.cumsum(first) - 1


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


EVENTS = 1000  # in a window, at least; otherwise as many as there are transfers in it
# Who lacks less than this part of its size, or than what takes it so many steps of the clock, is complete: it may lack
# that by rounding only, and what comes next may be a long time without connection, or the end.
NEGLIGIBLE = 1e-10
CLOCK_STEPS = 4


@dataclass(frozen=True, eq=False)
class Transfers:
    """Distinct transfers in the order of their starts.

    Attributes:
        start_s: `(n,)` finite seconds, ascending.
        size_bytes: `(n,)` bytes, above 0.
        stop_s: `(n,)` seconds at which each is cut off, after its start; may be infinite.
        rates: of the n links; none of them is 0 for ever.
        count: `(n,)` how many equal transfers there are of each.
    """

    start_s: Floats
    size_bytes: Floats
    stop_s: Floats
    rates: Rates
    count: Ids


def contended(transfers: Transfers, capacity_bytes_s: float) -> tuple[Floats, Floats]:
    """When transfers are complete, or what they lack when they are cut off.

    Args:
        transfers: all that share the link.
        capacity_bytes_s: bytes per second, above 0 and finite.

    Returns:
        (finish_s, lacking_bytes): `(n,)` each; seconds, infinite if cut off, and bytes, 0 if complete.
    """
    start, n = transfers.start_s, len(transfers.start_s)
    finish, lacking = np.full(n, np.inf), transfers.size_bytes.copy()
    windows = _Windows(transfers)
    load_to_come = np.append(np.cumsum(windows.most[::-1])[::-1], 0.0)
    active, following, begin = np.zeros(0, np.int64), 0, 0.0
    while len(active) or following < n:
        if not len(active):
            begin = float(start[following])
        if float(windows.most[active].sum()) + load_to_come[following] <= capacity_bytes_s:
            end = math.inf  # from now on nobody is held back
        else:
            end = windows.end(begin, active, following)
        coming = int(np.searchsorted(start, end))
        who = np.concatenate((active, np.arange(following, coming)))
        ended = _pass_window(transfers, who, begin, end, capacity_bytes_s, finish, lacking)
        active, following, begin = who[~ended], coming, end
    return finish, lacking


class _Windows:
    """Where windows end, so that each has few events, but so many that its own cost does not count."""

    def __init__(self, transfers: Transfers) -> None:
        self.start = transfers.start_s
        self.changes_per_s = transfers.rates.changes_per_s()
        self.most = transfers.rates.maximum() * transfers.count
        self._rise = np.append(0.0, np.cumsum(self.changes_per_s))
        self._rise_at = np.append(0.0, np.cumsum(self.changes_per_s * self.start))

    def end(self, begin: float, active: Ids, following: int) -> float:
        """When the window from `begin` ends, seconds: all `active` stay, and those from `following` on will come."""
        here = int(np.searchsorted(self.start, begin, side="right"))
        limit = max(EVENTS, len(active) + here - following)
        rise = float(self.changes_per_s[active].sum()) - float(self._rise[following])
        rise_at = float(self.changes_per_s[active].sum()) * begin
        rise_at += float(self._rise[here] - self._rise[following]) * begin - float(self._rise_at[here])
        # Events until just before each of the next starts, if everybody stays.
        ahead = np.arange(here, min(len(self.start), here + limit + 1))
        events = (rise + self._rise[ahead]) * self.start[ahead] - (rise_at + self._rise_at[ahead]) + (ahead - here)
        coming = here + int(np.searchsorted(events, limit, side="right"))
        slope = rise + float(self._rise[coming])
        found = math.inf
        if slope > 0:
            found = (limit - (coming - here) + rise_at + float(self._rise_at[coming])) / slope
        if coming > here:
            found = max(found, float(self.start[coming - 1]))
        if coming < len(self.start):
            found = min(found, float(self.start[coming]))
        return max(found, math.nextafter(begin, math.inf))


def _pass_window(
    transfers: Transfers, who: Ids, begin: float, end: float, capacity: float, finish: Floats, lacking: Floats
) -> npt.NDArray[np.bool_]:
    """Let time pass from `begin` to `end`; enter what `who` lack then and who is complete; return who has ended."""
    rates, count, stop = transfers.rates.take(who), transfers.count[who], transfers.stop_s[who]
    since, until = np.maximum(transfers.start_s[who], begin), np.minimum(stop, end)
    negligible = NEGLIGIBLE * transfers.size_bytes[who]
    slack_s = np.zeros(len(who))
    np.spacing(np.abs(stop), out=slack_s, where=stop < np.inf)
    slack_s *= CLOCK_STEPS
    stopped = (stop <= end) & (stop < np.inf)
    alone = rates.time_to_send(since, lacking[who])
    first = rates.at(since)
    if _fits(rates, first, since, np.minimum(alone, until), count, capacity):
        left = np.maximum(lacking[who] - rates.bytes_between(since, until), 0.0)
        complete = (alone <= until) | (left <= negligible) | (stopped & (alone - until <= slack_s))
        when = np.minimum(alone, until)
    else:
        stays = (since == begin) & (until == end) & (alone > end)
        events = Events.of(
            rates,
            first,
            since_s=since - begin,
            until_s=until - begin,
            origin_s=begin,
            stops=stopped,
            level=lambda least: _level(least[stays], count[stays], capacity),
        )
        when, left = share_time_varying(events, lacking[who], count, negligible, slack_s, capacity, end - begin)
        when += begin
        complete = when < np.inf
    finish[who[complete]] = when[complete]
    left[complete] = 0
    lacking[who] = left
    return complete | stopped


def _level(caps: Floats, count: Ids, capacity: float) -> float:
    """The max-min level of transfers with these caps, with room for rounding; infinite if they leave capacity free."""
    order = np.argsort(caps, kind="stable")
    caps, count = caps[order], count[order]
    capped = np.cumsum(caps * count)
    others = int(count.sum()) - np.cumsum(count)
    full = np.flatnonzero(capped + caps * others > capacity)  # if the level were this cap
    if not len(full):
        return math.inf
    at = int(full[0])
    spare = capacity - (float(capped[at - 1]) if at else 0.0)
    return spare / int(others[at] + count[at]) * (1 + NEGLIGIBLE)


def _fits(rates: Rates, first: Floats, since: Floats, until: Floats, count: Ids, capacity: float) -> bool:
    """Whether the rates never add up to more than the capacity if each transfer goes on until `until`."""
    if float((rates.maximum() * count).sum()) <= capacity:
        return True
    if not np.isfinite(first).all() or float((first * count)[since == since.min()].sum()) > capacity:
        return False
    row, time_s, rate = rates.changes(since, until)
    change = rate.copy()
    change[1:] -= np.where(row[1:] == row[:-1], rate[:-1], first[row[1:]])
    if len(row):
        change[0] -= first[row[0]]
    last = first.copy()
    last[row] = rate  # the last one of each transfer stays
    times = np.concatenate((until, since, time_s))
    changes = np.concatenate((-last * count, first * count, change * count[row]))
    load = np.cumsum(changes[np.lexsort((changes, times))])  # at one moment first those who make room
    return bool(load.max() <= capacity)
