"""Max-min fair sharing of one link while the rates of the transfers' own links change (see `max_min`).

All transfers that have one rate at a time are a group. A change of rate is a transfer that leaves its group and joins
another, so it costs the same however many others are faster or slower because of it. A transfer that can be complete
before its rate changes again waits in a queue by time (when it would be done at its own rate) or by volume V, the
integral of the level over time. Both are lower bounds: a transfer that comes up too early is queued again with its
remaining bytes.

Cost: O((n + events + x) log n), x being the number of times that a group crosses the level.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.links.rates import Rates
from testbed.network.fair_sharing.flights import TransferProgress
from testbed.network.fair_sharing.max_min import CAPPED, SHARED, MaxMinLevel

Steps = list[tuple[float, float]]  # the flights of all transfers: bytes, and the gap in seconds
_GONE = -1


@dataclass(frozen=True, eq=False)
class Events:
    """The transfers in a window of time, and the events in order: starts, stops and changes of rate.

    Attributes:
        first_rank: `(n,)` position in `caps` of the rate with which each transfer begins.
        first_until_s: `(n,)` seconds until which it has that rate, or stays in the window.
        here: `(n,)` whether it is active when the window begins; otherwise its start is an event.
        time_s: `(events,)` seconds since the window began, ascending.
        member: `(events,)` transfer of the event.
        rank: `(events,)` position of the rate from then on in `caps`; -1: the transfer is cut off.
        until_s: `(events,)` the time of the next event of the same transfer, or the end of its stay in the window.
        caps: all rates, ascending, bytes per second.
    """

    first_rank: Ids
    first_until_s: Floats
    here: npt.NDArray[np.bool_]
    time_s: Floats
    member: Ids
    rank: Ids
    until_s: Floats
    caps: Floats

    @classmethod
    def of(
        cls,
        rates: Rates,
        first: Floats,
        *,
        since_s: Floats,
        until_s: Floats,
        origin_s: float,
        stops: npt.NDArray[np.bool_],
        level: Callable[[Floats], float],
    ) -> "Events":
        """Return the events of transfers that are active in the given periods.

        Args:
            rates: rates of the n links.
            first: `(n,)` bytes per second of each link at `since_s`.
            since_s: `(n,)` seconds since `origin_s` at which each transfer becomes active.
            until_s: `(n,)` seconds since `origin_s` until which it is active.
            origin_s: beginning of the window, seconds.
            stops: `(n,)` whether a transfer is cut off at `until_s`; otherwise it only leaves the window.
            level: returns an upper bound of the level, given the lowest rate of each transfer. Rates above the bound
                make no difference, so changes between them are left out.
        """
        row, change_s, changed = rates.changes(since_s + origin_s, until_s + origin_s)
        least = first.copy()
        np.minimum.at(least, row, changed)
        highest = level(least)
        first, changed = np.minimum(first, highest), np.minimum(changed, highest)
        before = np.append(0.0, changed[:-1])
        begins = np.append(True, row[1:] != row[:-1])[: len(row)]
        before = np.where(begins, first[row], before[: len(row)])
        really = changed != before
        row, change_s, changed = row[really], change_s[really], changed[really]
        change_s = np.clip(change_s - origin_s, since_s[row], until_s[row])
        everybody, stopping = np.arange(len(rates)), np.flatnonzero(stops)
        member = np.concatenate((everybody, row, stopping))
        by_member = np.argsort(member, kind="stable")  # start, changes, stop of each
        member = member[by_member]
        time_s = np.concatenate((since_s, change_s, until_s[stopping]))[by_member]
        caps, rank = np.unique(np.concatenate((first, changed)), return_inverse=True)
        rank = np.append(rank, np.full(len(stopping), _GONE))[by_member]
        following = np.append(time_s[1:], np.inf)
        last = np.append(member[1:] != member[:-1], True)
        following[last] = until_s[member[last]]
        begins = np.append(True, last[:-1])  # the first event of each is its start
        first_rank, first_until_s, here = rank[begins], following[begins], since_s == 0
        order = np.argsort(time_s, kind="stable")
        order = order[~(begins & here[member])[order]]
        return cls(
            first_rank=first_rank,
            first_until_s=first_until_s,
            here=here,
            time_s=time_s[order],
            member=member[order],
            rank=rank[order],
            until_s=following[order],
            caps=caps,
        )


class _VaryingLevel(MaxMinLevel):
    """The level in a window of time, with all transfers that are there from its beginning.

    A group that was on one side of the level begins there again. (`MaxMinLevel` asks for the largest cap below the
    level instead. Both are right, but round differently; each keeps its own, so that recorded times keep their bits.)

    Args:
        caps: see `MaxMinLevel`.
        capacity: bytes per second.
        members: `(groups,)` how many transfers each group has when the window begins.
    """

    def __init__(self, caps: Floats, capacity: float, members: Ids) -> None:
        super().__init__(caps.tolist(), capacity)
        self._finite = int(np.isfinite(caps).sum())
        self._border = border = _border(caps[: self._finite], members, capacity)  # groups from here on are shared
        self.members = members.tolist()
        active = np.flatnonzero(members).tolist()
        self._largest_capped = [-group for group in reversed(active) if group < border]
        self._smallest_shared = [group for group in active if group >= border]
        for group in active:
            self.mode[group] = CAPPED if group < border else SHARED
        # Exactly rounded: the load of thousands of groups begins each window, and decides which are capped.
        self._capped_load = math.fsum(cap * many for cap, many in zip(self.caps[:border], self.members, strict=False))
        self.shared_members = sum(self.members[border:])
        if self.shared_members:
            self.speed = (capacity - self._capped_load) / self.shared_members

    def _begins_capped(self, group: int) -> bool:
        return group < self._border

    def _cross(self, group: int) -> None:
        super()._cross(group)
        self._border = group + 1 if self.mode[group] == CAPPED else group

    def settle(self) -> bool:
        """See `MaxMinLevel.settle`."""
        lowered = super().settle()
        if self.shared_members:
            self._border = bisect_right(self.caps, self.speed, 0, self._border if lowered else self._finite)
        return lowered


class _Window:
    """The simulation of one window of time; its arguments are those of `share_time_varying`."""

    def __init__(
        self,
        events: Events,
        progress: TransferProgress,
        steps: Steps,
        count: Ids,
        negligible: Floats,
        slack_s: Floats,
        capacity: float,
        origin_s: float,
    ) -> None:
        groups, here, size = events.first_rank, events.here, progress.lacking
        members = np.bincount(groups[here], count[here], len(events.caps)).astype(np.int64)
        self.level = level = _VaryingLevel(events.caps, capacity, members)
        self.finish = [math.inf] * len(size)
        self._count, self._negligible, self._slack_s = count.tolist(), negligible.tolist(), slack_s.tolist()
        # The group's work at which a flight is through; for an inactive transfer, the remaining bytes of the flight.
        self.goal: list[float] = size.tolist()
        self.group: list[int] = np.where(here, groups, _GONE).tolist()
        self._until_s: list[float] = events.first_until_s.tolist()
        self._steps, self._origin_s = steps, origin_s
        self.flight, self._last = progress.flight.tolist(), progress.last.tolist()
        self.begin_s: list[float] = progress.begin_s.tolist()
        self.waiting: list[tuple[float, int]] = []  # by the time at which their next flight begins
        self._resting: dict[int, int] = {}  # the groups that waiting transfers will join
        ending = here & (size <= events.caps[groups] * events.first_until_s)
        self._queued: list[bool] = ending.tolist()
        self.by_time: list[tuple[float, int]] = []
        self.by_volume: list[tuple[float, int]] = []
        for member in np.flatnonzero(ending).tolist():
            if level.capped(self.group[member]):
                self.by_time.append((self.goal[member] / level.caps[self.group[member]], member))
            else:
                self.by_volume.append((self.goal[member], member))
        heapify(self.by_time)
        heapify(self.by_volume)

    def leaves(self, member: int) -> bool:
        """Return whether a transfer that came up in a queue leaves the link, as it is complete or waits."""
        level, group = self.level, self.group[member]
        if group == _GONE:
            self._queued[member] = False
            return False
        lack = level.lacking(group, self.goal[member])
        if not level.capped(group):
            if level.volume + lack > level.volume:
                heappush(self.by_volume, (level.volume + lack, member))
                return False
        else:
            own = level.caps[group]
            if lack > own * (self._until_s[member] - level.time_s):
                self._queued[member] = False
                return False
            if lack > 0 and (due := level.time_s + lack / own) > level.time_s:
                heappush(self.by_time, (due, member))
                return False
        self._queued[member] = False
        if self.flight[member] == self._last[member]:
            self.finish[member] = level.time_s
            self.goal[member] = 0.0
        elif self._next_begins(member):
            self.goal[member] += self._steps[self.flight[member]][0]
            self.queue(member)
            return False
        else:
            self.goal[member] = self._steps[self.flight[member]][0]
            self._resting[member] = group
        self.group[member] = _GONE
        level.leave(group, self._count[member])
        return True

    def change(self, member: int, group: int, until_s: float) -> bool:
        """Start a transfer, stop it (`group` -1) or give it the rate of `group`; return whether it must be queued."""
        level, goal, count, old = self.level, self.goal, self._count[member], self.group[member]
        if old != _GONE:
            rate = level.caps[old] if level.mode[old] == CAPPED else level.speed
            goal[member] -= level.leave(old, count)
            self.group[member] = _GONE
            spare = self._negligible[member]
            if self.flight[member] == self._last[member]:
                if group == _GONE:
                    spare += rate * self._slack_s[member]
                if goal[member] <= spare:
                    self.finish[member] = level.time_s
                    return False
            elif goal[member] <= spare and group != _GONE:
                begins = self._next_begins(member)
                goal[member] = self._steps[self.flight[member]][0]
                if not begins:
                    self._resting[member], self._until_s[member] = group, until_s
                    return False
        elif member in self._resting:
            if group == _GONE:
                del self._resting[member]
            else:
                self._resting[member], self._until_s[member] = group, until_s
            return False
        elif self.finish[member] < math.inf:
            return False
        if group == _GONE:
            return False
        goal[member] += level.join(group, count)
        self.group[member], self._until_s[member] = group, until_s
        return not self._queued[member]

    def _next_begins(self, member: int) -> bool:
        """Move a transfer to its next flight; return whether the flight begins now, otherwise the transfer waits."""
        self.flight[member] = flight = self.flight[member] + 1
        now_s, gate_s = self._origin_s + self.level.time_s, self.begin_s[member] + self._steps[flight][1]
        if gate_s <= now_s:
            self.begin_s[member] = now_s
            return True
        self.begin_s[member] = gate_s
        heappush(self.waiting, (max(gate_s - self._origin_s, self.level.time_s), member))
        return False

    def rejoin(self, member: int) -> bool:
        """Begin the next flight of a transfer that has waited; return whether it must be queued."""
        group = self._resting.pop(member, _GONE)
        if group == _GONE:
            return False
        self.goal[member] += self.level.join(group, self._count[member])
        self.group[member] = group
        return not self._queued[member]

    def queue(self, member: int) -> None:
        """Queue a transfer if its flight can be through before its rate changes again."""
        level, group = self.level, self.group[member]
        own, lack = level.caps[group], level.lacking(group, self.goal[member])
        if lack <= own * (self._until_s[member] - level.time_s):
            if level.mode[group] != CAPPED:
                heappush(self.by_volume, (level.volume + lack, member))
                self._queued[member] = True
            elif own:
                heappush(self.by_time, (level.time_s + lack / own, member))
                self._queued[member] = True

    def clear(self) -> None:
        """Nobody is there: the queues have nothing to say, and the volume begins again, which keeps rounding small."""
        for _, member in self.by_time + self.by_volume:
            self._queued[member] = False
        self.by_time.clear()
        self.by_volume.clear()
        self.level.volume = 0.0

    def lacking(self) -> Floats:
        """`(n,)` bytes that each transfer's flight lacks now; may be below 0 by rounding."""
        done = [self.level.work(group) if group != _GONE else 0.0 for group in self.group]
        lacking: Floats = np.array(self.goal) - np.array(done)
        return lacking


def share_time_varying(
    events: Events,
    progress: TransferProgress,
    steps: Steps,
    count: Ids,
    negligible: Floats,
    slack_s: Floats,
    capacity: float,
    origin_s: float,
    end_s: float,
) -> Floats:
    """Return when transfers are complete that share a link during the events.

    Args:
        events: events of n transfers.
        progress: progress of the transfers, all of which are incomplete; updated to the end of the window.
        steps: the flights that `progress` refers to.
        count: `(n,)` number of equal transfers that each row stands for.
        negligible: `(n,)` bytes; a transfer with at most this remainder when its rate changes or it is cut off is
            complete.
        slack_s: `(n,)` seconds; a transfer that would be complete within this time after it is cut off is complete.
        capacity: bytes per second, above 0 and finite.
        origin_s: beginning of the window, seconds.
        end_s: end of the window, seconds since its beginning, after all events; may be infinite.

    Returns:
        `(n,)` seconds since the window began, infinite if not in this window.
    """
    window = _Window(events, progress, steps, count, negligible, slack_s, capacity, origin_s)
    level, by_time, by_volume, waiting = window.level, window.by_time, window.by_volume, window.waiting
    times, members, ranks, untils = (
        column.tolist() for column in (events.time_s, events.member, events.rank, events.until_s)
    )
    position, total = 0, len(times)
    while position < total or by_time or by_volume or waiting:
        event_s = times[position] if position < total else end_s
        rejoins = bool(waiting) and waiting[0][0] <= event_s
        if rejoins:
            event_s = waiting[0][0]
        due_s = by_time[0][0] if by_time else math.inf
        due_volume = by_volume[0][0] if by_volume else math.inf
        # Transfers that come up before the next event; no other transfer can be through by then.
        entered = []
        if by_volume and level.advance_to_volume(due_volume, min(event_s, due_s)):
            if not window.leaves(heappop(by_volume)[1]):
                continue
        elif due_s <= event_s and by_time:
            level.advance_to_time(due_s)
            if not window.leaves(heappop(by_time)[1]):
                continue
        elif position == total and not rejoins:
            break
        else:
            level.advance_to_time(event_s)
            while position < total and times[position] <= level.time_s:
                if window.change(members[position], ranks[position], untils[position]):
                    entered.append(members[position])
                position += 1
            while waiting and waiting[0][0] <= level.time_s:
                member = heappop(waiting)[1]
                if window.rejoin(member):
                    entered.append(member)
        level.settle()
        if level.idle:
            window.clear()
        for member in entered:
            window.queue(member)
    if end_s < math.inf:
        level.advance_to_time(end_s)
    finish, lacking = np.array(window.finish), window.lacking()
    there = np.array(window.group) != _GONE
    progress.flight[:], progress.begin_s[:] = window.flight, window.begin_s
    progress.lacking[:] = np.maximum(lacking, 0.0)
    # Rounding alone keeps these from being through; the next window would begin with nothing to carry.
    finish[there & (lacking <= negligible) & (progress.flight == progress.last)] = end_s
    return finish


def _border(caps: Floats, members: Ids, capacity: float) -> int:
    """Return how many of the finite `caps`, ascending, are below the level if `members[i]` transfers have each."""
    capped = np.cumsum(caps * members[: len(caps)])
    above = int(members.sum()) - np.cumsum(members[: len(caps)])
    return int(np.append(capped + caps * above > capacity, True).argmax())
