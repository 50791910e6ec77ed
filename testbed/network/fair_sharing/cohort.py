"""Transfers at constant rates on a full link that have all begun before the first of them can be complete.

This is the case when a server sends to all clients at once. The max-min level (see `transfers`) then falls until the
last transfer has begun, and rises from then on. A transfer whose own link is faster than the level begins to share it
while it falls and ceases to share it while it rises, at most once each. The transfers that share the level have all
done the same work, so their order of completion is known beforehand. Two sorted lists replace the heaps that `max_min`
consults after each event.

Cost: O(n log n), a third of the time of `max_min`.
"""

import math
from heapq import heapify, heappop, heappush

import numpy as np

from testbed.arrays import Floats, Ids


def begin_before_any_ends(start: Floats, size: Floats, rate: Floats, capacity: float) -> bool:
    """Return whether all transfers have begun before one can be complete.

    Args:
        start: `(n,)` seconds.
        size: `(n,)` bytes.
        rate: `(n,)` bytes per second.
        capacity: bytes per second of the shared link.
    """
    return bool(start.max() <= (start + size / np.minimum(rate, capacity)).min())


def cohort_finish(start: Floats, size: Floats, rate: Floats, count: Ids, capacity: float) -> Floats:
    """Return when transfers of which `begin_before_any_ends` holds are complete.

    Args:
        start: `(n,)` seconds, ascending.
        size: `(n,)` bytes, above 0.
        rate: `(n,)` bytes per second of each transfer's own link, above 0; may be infinite.
        count: `(n,)` number of equal transfers that each row stands for.
        capacity: bytes per second, above 0 and finite.

    Returns:
        `(n,)` seconds.
    """
    origin = float(start[0])
    rate = np.minimum(rate, capacity)  # nobody gets more, and none is infinite
    begun = _Begun(start - origin, size, rate, count, capacity)
    return origin + np.asarray(_ended(begun, rate, count, capacity))


class _Begun:
    """Where the transfers stand when the last one has begun.

    Attributes:
        time_s, volume: then: seconds since the first one began, and the integral of the level over time.
        shares: of each, whether it shares the level, and is not held back by its own link.
        goal: of each, the time at which it is complete at its own rate; if it shares the level, the volume.
        load: bytes per second of those that do not share the level.
        sharing: how many do.
        level: bytes per second of each of these.
    """

    def __init__(self, start: Floats, size: Floats, rate: Floats, count: Ids, capacity: float) -> None:
        counts = count.tolist()
        self.goal: list[float] = (start + size / rate).tolist()
        self.shares = [False] * len(counts)
        time_s = volume = load = 0.0
        sharing, level = 0, math.inf
        not_sharing: list[tuple[float, int]] = []  # by their rates, which are negative here: the fastest first
        for transfer, (begin, bytes_, own) in enumerate(zip(start.tolist(), size.tolist(), rate.tolist(), strict=True)):
            if sharing:
                volume += level * (begin - time_s)
            time_s = begin
            if own > level:
                self.goal[transfer], self.shares[transfer] = volume + bytes_, True
                sharing += counts[transfer]
            else:
                heappush(not_sharing, (-own, transfer))
                load += own * counts[transfer]
            while True:
                if sharing:
                    level = (capacity - load) / sharing
                else:
                    level = math.inf if load <= capacity else 0.0
                if not not_sharing or -not_sharing[0][0] <= level:
                    break
                slowed = heappop(not_sharing)[1]
                own = float(rate[slowed])
                self.goal[slowed], self.shares[slowed] = volume + own * (self.goal[slowed] - time_s), True
                # Exactly 0 at the end: repeated subtraction leaves rounding behind.
                load = load - own * counts[slowed] if not_sharing else 0.0
                sharing += counts[slowed]
        self.time_s, self.volume, self.load, self.sharing, self.level = time_s, volume, load, sharing, level


def _ended(begun: _Begun, rate: Floats, count: Ids, capacity: float) -> list[float]:
    """Return when each transfer is complete, in seconds since the first one began."""
    time_s, volume, load, sharing, level = begun.time_s, begun.volume, begun.load, begun.sharing, begun.level
    goal, shares, rates, counts = begun.goal, begun.shares, rate.tolist(), count.tolist()
    finish = list(goal)
    own_pace = [(goal[transfer], transfer) for transfer in np.flatnonzero(~np.array(shares)).tolist()]
    heapify(own_pace)
    who = np.flatnonzero(shares)
    # All that share have done the same work, so the order of these two lists never changes.
    by_goal = who[np.argsort(np.array(goal)[who], kind="stable")].tolist()
    by_rate = who[np.argsort(rate[who], kind="stable")].tolist()
    first = slowest = 0  # in these two; those that have left are passed over
    while sharing:
        while not shares[by_goal[first]]:
            first += 1
        ended = by_goal[first]
        ended_s = time_s + (goal[ended] - volume) / level
        # The next to end is the first of those at their own pace, or of those that share the level.
        if own_pace and own_pace[0][0] < ended_s:
            ended_s, ended = heappop(own_pace)
            # Rounding may put it before the present.
            ended_s = max(ended_s, time_s)
            volume += level * (ended_s - time_s)
            load = load - rates[ended] * counts[ended] if own_pace else 0.0
        else:
            volume = goal[ended]
            finish[ended], shares[ended] = ended_s, False
            sharing -= counts[ended]
        time_s = ended_s
        while sharing:
            level = (capacity - load) / sharing
            while not shares[by_rate[slowest]]:
                slowest += 1
            freed = by_rate[slowest]
            if rates[freed] > level:
                break
            due = time_s + max(goal[freed] - volume, 0.0) / rates[freed]
            heappush(own_pace, (due, freed))
            finish[freed], shares[freed] = due, False
            load += rates[freed] * counts[freed]
            sharing -= counts[freed]
    return finish
