"""Transfers on a full link whose rates change or that may be cut off, computed one window of time at a time.

A window has a limited number of events (starts, stops, changes of rate). If the rates in a window never add up to more
than the capacity, the bytes carried by each link are enough; otherwise `time_varying` follows the level.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.links.rates import Rates
from testbed.emulation.transport.flights import Flights
from testbed.network.fair_sharing.flights import Stretches, TransferProgress
from testbed.network.fair_sharing.time_varying import Events, Steps, share_time_varying

EVENTS = 1000  # in a window, at least; otherwise as many as there are transfers in it
# A transfer is complete if it lacks less than this part of its size, or less than it carries in this many steps of the
# clock: such a remainder is rounding only, and the next bytes might come after a long outage, or never.
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
        flights: in which they go, at least one each.
    """

    start_s: Floats
    size_bytes: Floats
    stop_s: Floats
    rates: Rates
    count: Ids
    flights: Flights


def contended(transfers: Transfers, capacity_bytes_s: float) -> tuple[Floats, Floats]:
    """Compute when transfers are complete, or their remaining bytes when they are cut off.

    Args:
        transfers: all transfers that share the link.
        capacity_bytes_s: bytes per second, above 0 and finite.

    Returns:
        (finish_s, lacking_bytes): `(n,)` each; seconds, infinite if cut off, and bytes, 0 if complete.
    """
    start, n, flights = transfers.start_s, len(transfers.start_s), transfers.flights
    finish, progress = np.full(n, np.inf), TransferProgress.of(transfers.flights, transfers.start_s)
    steps = list(zip(flights.size_bytes.tolist(), flights.gap_s.tolist(), strict=True))
    windows = _Windows(transfers)
    load_to_come = np.append(np.cumsum(windows.most[::-1])[::-1], 0.0)
    active, following, begin = np.zeros(0, np.int64), 0, -math.inf
    while len(active) or following < n:
        next_start = float(start[following]) if following < n else math.inf
        begin = max(begin, min(next_start, float(progress.begin_s[active].min(initial=math.inf))))
        # Highest rates of all that are there or will come: if they fit, no later moment can be contended.
        if float(windows.most[active].sum()) + load_to_come[following] <= capacity_bytes_s:
            end = math.inf  # from now on nobody is held back
        else:
            end = windows.end(begin, active, following)
        coming = int(np.searchsorted(start, end))
        who = np.concatenate((active, np.arange(following, coming)))
        goes_on = progress.begin_s[who] <= transfers.stop_s[who]  # the others are cut off while they wait
        moves = goes_on & (progress.begin_s[who] < end)
        goes_on[moves] = ~_pass_window(transfers, who[moves], begin, end, capacity_bytes_s, progress, steps, finish)
        active, following, begin = who[goes_on], coming, end
    return finish, progress.total_lacking()


class _Windows:
    """The ends of windows: each window has few events, but enough that its fixed cost does not matter."""

    def __init__(self, transfers: Transfers) -> None:
        self.start = transfers.start_s
        self.changes_per_s = transfers.rates.changes_per_s()
        self.most = transfers.rates.maximum() * transfers.count
        self._rise = np.append(0.0, np.cumsum(self.changes_per_s))
        self._rise_at = np.append(0.0, np.cumsum(self.changes_per_s * self.start))

    def end(self, begin: float, active: Ids, following: int) -> float:
        """Return the end of the window that starts at `begin`, seconds.

        All `active` transfers stay, and those from `following` on will come.
        """
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
        end_s = math.inf
        if slope > 0:
            end_s = (limit - (coming - here) + rise_at + float(self._rise_at[coming])) / slope
        if coming > here:
            end_s = max(end_s, float(self.start[coming - 1]))
        if coming < len(self.start):
            end_s = min(end_s, float(self.start[coming]))
        # Never empty, or the loop in `contended` would not end.
        return max(end_s, math.nextafter(begin, math.inf))


def _pass_window(
    transfers: Transfers,
    who: Ids,
    begin: float,
    end: float,
    capacity: float,
    progress: TransferProgress,
    steps: Steps,
    finish: Floats,
) -> npt.NDArray[np.bool_]:
    """Advance from `begin` to `end`; store the progress and completion of `who`; return which of them have ended."""
    rates, count, stop = transfers.rates.take(who), transfers.count[who], transfers.stop_s[who]
    before, after = progress.take(who), progress.take(who)
    since, until = np.maximum(before.begin_s, begin), np.minimum(stop, end)
    negligible = NEGLIGIBLE * transfers.size_bytes[who]
    slack_s = np.zeros(len(who))
    np.spacing(np.abs(stop), out=slack_s, where=stop < np.inf)
    slack_s *= CLOCK_STEPS
    stopped = (stop <= end) & (stop < np.inf)
    alone, stretches = after.unhindered(rates, since, until)
    if _fits(rates, stretches, until, count, capacity):
        left = np.maximum(after.lacking - rates.bytes_between(np.maximum(after.begin_s, since), until), 0.0)
        complete = (alone <= until) | ((left <= negligible) & (after.flight == after.last))
        complete |= stopped & (alone - until <= slack_s)
        when = np.minimum(alone, until)
    else:
        first = rates.at(since)
        # Only transfers that are active throughout the window bound the level from above.
        stays = (since == begin) & (until == end) & (after.flight == before.flight) & (alone > end)
        events = Events.of(
            rates,
            first,
            since_s=since - begin,
            until_s=until - begin,
            origin_s=begin,
            stops=stopped,
            level=lambda least: _level(least[stays], count[stays], capacity),
        )
        after = before
        when = begin + share_time_varying(
            events, after, steps, count, negligible, slack_s, capacity, begin, end - begin
        )
        complete, left = when < np.inf, after.lacking.copy()
    finish[who[complete]] = when[complete]
    # Rounding may leave a few bytes.
    left[complete] = 0
    after.lacking[:] = left
    through = np.flatnonzero((left <= negligible) & ~complete & ~stopped)
    after.advance(through, until[through])
    progress.put(who, after)
    return np.asarray(complete | stopped)


def _level(caps: Floats, count: Ids, capacity: float) -> float:
    """Return the max-min level for these caps, with a margin for rounding; infinite if they leave capacity free."""
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


def _fits(rates: Rates, stretches: Stretches, until: Floats, count: Ids, capacity: float) -> bool:
    """Return whether the rates in these stretches never exceed the capacity `until` the window's end."""
    if float((rates.maximum() * count).sum()) <= capacity:
        return True
    rates, count = rates.take(stretches.who), count[stretches.who]
    since, until = stretches.begin_s, np.minimum(stretches.end_s, until[stretches.who])
    first = rates.at(since)
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
    load = np.cumsum(changes[np.lexsort((changes, times))])  # at equal times, ends before begins
    return bool(load.max() <= capacity)
