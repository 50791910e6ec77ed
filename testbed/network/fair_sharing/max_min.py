"""The max-min level L of a shared link (see `transfers`), followed from event to event.

`contended_finish` is for caps (the rates of transfers' own links) that are constant; in `time_varying` they change, and
a change is a transfer that leaves one group and joins another.

Transfers with the same cap form a group. Groups with caps of at most L are *capped*
(they move at their cap), the others are *shared* (they move at L). Only the largest capped and the smallest
shared cap can cross the level next; a heap gives each. A transfer waits in one of two queues: by time (when
it would be done at its cap) or by volume V, the integral of L over time (when it would be done at L). A transfer
that waits for its next flight leaves its group until then; a transfer whose next flight begins at once stays.

Cost: O((n + x) log n), n being the number of flights and x the number of times that a group crosses the level.
If all transfers start together in one flight each, x <= n; otherwise it is a few per flight, and more when the
caps are nearly but not exactly equal and the link stays just about full.
"""

import math
from heapq import heappop, heappush

import numpy as np

from testbed.arrays import Floats, Ids
from testbed.emulation.transport.flights import Flights

IDLE, CAPPED, SHARED = range(3)


class MaxMinLevel:
    """The level L over the active groups, kept up to date as transfers come and go: `join`, `leave`, then `settle`.

    Args:
        caps: of the groups, ascending, bytes per second.
        capacity: of the link, bytes per second.

    Attributes:
        members: how many active transfers each group has.
        shared_members: how many of all move at L.
        time_s: the present time.
        speed: L; while nobody is shared the largest finite cap, so that nobody ever does more than `volume`.
        volume: the integral of `speed` over time.
    """

    def __init__(self, caps: list[float], capacity: float) -> None:
        self.caps = caps
        self.capacity = capacity
        # At least every finite cap, so that no capped transfer ever does more work than `volume`.
        self.idle_speed = max((cap for cap in caps if cap < math.inf), default=1.0) or 1.0
        self.mode = [IDLE] * len(caps)
        self.members = [0] * len(caps)
        self._work = [0.0] * len(caps)  # bytes per transfer that the group did until `_since`
        self._since = [0.0] * len(caps)  # a time if capped, a volume if shared
        self.restart()

    def restart(self) -> None:
        """Begin a busy period: nothing is active, the clocks are at zero (which keeps rounding small)."""
        self.time_s = self.volume = 0.0
        self.speed = self.idle_speed
        self._capped_load = 0.0
        self.shared_members = 0
        # Heaps of -group and of group; a group that has left is taken out when it comes to the top.
        self._largest_capped: list[int] = []
        self._smallest_shared: list[int] = []

    def capped(self, group: int) -> bool:
        """Return whether the transfers of `group` move at their cap: their clock is the time, not the volume."""
        return self.mode[group] == CAPPED

    def work(self, group: int) -> float:
        """Return the bytes that each transfer of `group` has carried since the group became active."""
        if self.mode[group] == CAPPED:
            return self._work[group] + self.caps[group] * (self.time_s - self._since[group])
        return self._work[group] + (self.volume - self._since[group])

    def lacking(self, group: int, goal: float) -> float:
        """Return the bytes until `work` reaches `goal`."""
        if self.mode[group] == CAPPED:
            return goal - self._work[group] - self.caps[group] * (self.time_s - self._since[group])
        return goal - self._work[group] - (self.volume - self._since[group])

    def due(self, group: int, goal: float) -> tuple[float, float]:
        """Return the clock of `group` now, and its earliest value at which `work` can reach `goal`.

        The clock is the time if the group is capped, the volume if it is shared.
        """
        if self.mode[group] == CAPPED:
            return self.time_s, self.time_s + (goal - self.work(group)) / self.caps[group]
        return self.volume, self.volume + (goal - self.work(group))

    def advance(self, time_s: float, volume: float) -> None:
        """Let time pass until `time_s` or until `volume`, whichever comes first."""
        if not self.advance_to_volume(volume, time_s):
            self.volume = min(volume, self.volume + self.speed * (time_s - self.time_s))
            self.time_s = time_s

    def advance_to_volume(self, volume: float, latest_s: float) -> bool:
        """Let time pass until `volume`, if that is not after `latest_s`; otherwise none passes."""
        reached_s = self.time_s + (volume - self.volume) / self.speed
        if reached_s > latest_s:
            return False
        self.time_s, self.volume = reached_s, volume
        return True

    def advance_to_time(self, time_s: float) -> None:
        """Let time pass until `time_s`."""
        self.volume += self.speed * (time_s - self.time_s)
        self.time_s = time_s

    def join(self, group: int, count: int) -> float:
        """`count` transfers of `group` become active; `settle` must follow. Returns `work` of the group."""
        self.members[group] += count
        mode = self.mode[group]
        if mode == SHARED:
            self.shared_members += count
            return self._work[group] + (self.volume - self._since[group])
        if mode == CAPPED:
            cap = self.caps[group]
            self._capped_load += cap * count
            return self._work[group] + cap * (self.time_s - self._since[group])
        self._work[group] = 0.0
        if self._begins_capped(group):
            self._enter_capped(group)
        else:
            self._enter_shared(group)
        return 0.0

    def leave(self, group: int, count: int) -> float:
        """`count` transfers of `group` are done; `settle` must follow. Returns `work` of the group."""
        if self.mode[group] == SHARED:
            self.shared_members -= count
            work = self._work[group] + (self.volume - self._since[group])
        else:
            cap = self.caps[group]
            self._capped_load -= cap * count
            work = self._work[group] + cap * (self.time_s - self._since[group])
        self.members[group] -= count
        if not self.members[group]:
            self.mode[group] = IDLE
        return work

    @property
    def idle(self) -> bool:
        """Whether no transfer is active."""
        return not self.shared_members and self._top_capped() < 0

    def settle(self) -> bool:
        """Move groups across the level until every capped cap is at most L and every shared one above it.

        Returns:
            Whether a group that was capped is now shared.
        """
        caps, moved, group = self.caps, False, self._top_capped()
        level = self._level()
        while group >= 0 and caps[group] > level:
            self._cross(group)
            group, level, moved = self._top_capped(), self._level(), True
        # Both directions in one call could swap a group for ever between two roundings of one level.
        while not moved and self.shared_members and caps[group := self._bottom_shared()] <= level:
            self._cross(group)
            level = self._level()
        self.speed = level if self.shared_members else self.idle_speed
        return moved

    def _begins_capped(self, group: int) -> bool:
        """Return whether a group begins as capped; `settle` corrects the choice."""
        return group < self._top_capped()  # capped groups keep the smaller caps

    def _level(self) -> float:
        spare = self.capacity - self._capped_load
        if self.shared_members:
            return spare / self.shared_members
        return math.inf if spare >= 0 else -math.inf

    def _top_capped(self) -> int:
        heap, mode = self._largest_capped, self.mode
        while heap and mode[-heap[0]] != CAPPED:
            heappop(heap)
        if heap:
            return -heap[0]
        self._capped_load = 0.0  # exactly: adding and subtracting caps leaves rounding behind
        return -1

    def _bottom_shared(self) -> int:
        heap, mode = self._smallest_shared, self.mode
        while mode[heap[0]] != SHARED:
            heappop(heap)
        return heap[0]

    def _enter_capped(self, group: int) -> None:
        self.mode[group] = CAPPED
        self._since[group] = self.time_s
        self._capped_load += self.caps[group] * self.members[group]
        heappush(self._largest_capped, -group)

    def _enter_shared(self, group: int) -> None:
        self.mode[group] = SHARED
        self._since[group] = self.volume
        self.shared_members += self.members[group]
        heappush(self._smallest_shared, group)

    def _cross(self, group: int) -> None:
        # Settled before the mode changes: `_since` is a time in one mode and a volume in the other.
        self._work[group] = self.work(group)
        if self.mode[group] == CAPPED:
            self._capped_load -= self.caps[group] * self.members[group]
            self._enter_shared(group)
        else:
            self.shared_members -= self.members[group]
            self._enter_capped(group)


def contended_finish(start: Floats, rate: Floats, flights: Flights, count: Ids, capacity: float) -> Floats:
    """Return when transfers at constant rates are complete on a full link.

    Args:
        start: `(n,)` seconds at which the first flight of each begins, ascending.
        rate: `(n,)` bytes per second of each transfer's own link, above 0; may be infinite.
        flights: flights of the transfers, at least one each.
        count: `(n,)` number of equal transfers that each row stands for.
        capacity: bytes per second, above 0 and finite.

    Returns:
        `(n,)` seconds.
    """
    caps, group_of = np.unique(rate, return_inverse=True)
    starts, groups, counts = start.tolist(), group_of.tolist(), count.tolist()
    sizes, gaps = flights.size_bytes.tolist(), flights.gap_s.tolist()
    flight = flights.first.tolist()  # the one that each transfer is in, or waits for
    last = (flights.first + flights.count - 1).tolist()
    begin = start.tolist()  # of that flight
    to_come = int((flights.count - 1).sum())  # flights after those
    level = MaxMinLevel(caps.tolist(), capacity)
    finish = [0.0] * len(starts)
    goal = [0.0] * len(starts)  # the group's work at which the flight is through
    by_time: list[tuple[float, int]] = []
    by_volume: list[tuple[float, int]] = []
    waiting: list[tuple[float, int]] = []  # by the time at which their next flight begins
    queue_of = {CAPPED: by_time, SHARED: by_volume}
    following, active, origin = 0, 0, 0.0
    while active or following < len(starts) or waiting:
        next_start = starts[following] if following < len(starts) else math.inf
        if waiting and waiting[0][0] < next_start:
            next_start = waiting[0][0]
        if not active:
            level.restart()
            origin = next_start
        next_time = by_time[0][0] if by_time else math.inf
        next_volume = by_volume[0][0] if by_volume else math.inf
        level.advance(min(next_start - origin, next_time), next_volume)
        came_up = []
        while by_time and by_time[0][0] <= level.time_s:
            came_up.append(heappop(by_time)[1])
        while by_volume and by_volume[0][0] <= level.volume:
            came_up.append(heappop(by_volume)[1])
        for transfer in came_up:
            group = groups[transfer]
            clock, due = level.due(group, goal[transfer])
            # Its group has crossed the level since it was queued. No transfer is faster than its cap or than L, so
            # the old due time was a lower bound: the transfer is never late, and is queued again for the rest.
            if due > clock:
                heappush(queue_of[level.mode[group]], (due, transfer))
                continue
            # Through, or lacking so little that the clock cannot show it.
            now_s = origin + level.time_s
            if flight[transfer] == last[transfer]:
                finish[transfer] = now_s
                level.leave(group, counts[transfer])
                active -= 1
                continue
            flight[transfer] = number = flight[transfer] + 1
            to_come -= 1
            gate = begin[transfer] + gaps[number]
            if gate > now_s:
                begin[transfer] = gate
                level.leave(group, counts[transfer])
                active -= 1
                heappush(waiting, (gate, transfer))
            else:
                begin[transfer] = now_s
                goal[transfer] += sizes[number]
                heappush(queue_of[level.mode[group]], (level.due(group, goal[transfer])[1], transfer))
        begun = []
        while following < len(starts) and starts[following] - origin <= level.time_s:
            begun.append(following)
            following += 1
        while waiting and waiting[0][0] - origin <= level.time_s:
            begun.append(heappop(waiting)[1])
        for transfer in begun:
            level.join(groups[transfer], counts[transfer])
        level.settle()
        for transfer in begun:
            group = groups[transfer]
            goal[transfer] = level.work(group) + sizes[flight[transfer]]
            heappush(queue_of[level.mode[group]], (level.due(group, goal[transfer])[1], transfer))
        active += len(begun)
        if following == len(starts) and not level.shared_members and not to_come and not waiting:
            break  # nobody is held back and nobody will come: from now on all move as they do
    for _, transfer in by_time + by_volume:
        finish[transfer] = origin + level.due(groups[transfer], goal[transfer])[1]
    return np.asarray(finish)
