"""The water level of a shared link while the rates of the transfers' own links change (see `water_level`).

All rates that occur in a window of time stand in ascending order, with a border between those below the level
(*capped*: their transfers move at their own rate) and those above it (*shared*: their transfers move at the level). An
event moves the border by few places. What a transfer of each rate has done is kept per rate, so a change of rate
costs the same however many others are faster or slower because of it. A transfer that can be complete before its
rate changes again waits in a queue by time (when it would be done at its own rate) or by volume V, the integral of
the level over time; both are lower bounds, and one that comes up too early is queued again with what it lacks.

Cost: O((n + events) log n), and the places that the border passes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.links.rates import Rates

_GONE = -1


@dataclass(frozen=True, eq=False)
class Events:
    """Who is there when a window of time begins, and what then happens in that order: somebody starts, stops, changes.

    Attributes:
        first_rank: `(n,)` position in `caps` of the rate with which each transfer begins.
        first_until_s: `(n,)` until when it has that rate, or stays in the window.
        here: `(n,)` whether it is there when the window begins; otherwise its start is an event.
        time_s: `(events,)` seconds since the window began, ascending.
        member: `(events,)` whom it happens to.
        rank: `(events,)` position of the rate from then on in `caps`; -1: the transfer is cut off.
        until_s: `(events,)` the time of the next event of the same member, or the end of its stay in the window.
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
        cls, rates: Rates, first: Floats, since_s: Floats, until_s: Floats, origin_s: float,
        stops: npt.NDArray[np.bool_], level: Callable[[Floats], float],
    ) -> "Events":  # fmt: skip
        """The events of transfers that are there from `since_s` until `until_s`, `(n,)` seconds since `origin_s`.

        Args:
            first: `(n,)` bytes per second of each link at `since_s`.
            stops: `(n,)` whether a transfer is cut off at `until_s`; otherwise it only leaves the window.
            level: what the water level is at most, given the least rate of each transfer. Rates above that are the
                same to everybody, so changes between them are left out.
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
        return cls(first_rank, first_until_s, here, time_s[order], member[order], rank[order], following[order], caps)


def follow_level(
    events: Events, size: Floats, count: Ids, negligible: Floats, slack_s: Floats, capacity: float, end_s: float
) -> tuple[Floats, Floats]:
    """When transfers are complete that share a link while the events happen.

    Args:
        events: of n transfers.
        size: `(n,)` bytes that each has to carry, above 0.
        count: `(n,)` how many equal transfers there are of each.
        negligible: `(n,)` bytes; who lacks no more when its rate changes or when it is cut off has all of it.
        slack_s: `(n,)` seconds; who would be complete so soon after it is cut off is complete.
        capacity: bytes per second, above 0 and finite.
        end_s: seconds since the window began, after all events; may be infinite.

    Returns:
        (finish_s, lacking): `(n,)` each; seconds since the window began, infinite if not in this window, and bytes.
    """
    times, members, ranks, untils = (
        column.tolist() for column in (events.time_s, events.member, events.rank, events.until_s)
    )
    caps, goal, counts = events.caps.tolist(), size.tolist(), count.tolist()
    negligible_of, slack_of = negligible.tolist(), slack_s.tolist()
    n, finite = len(goal), int(np.isfinite(events.caps).sum())
    idle_speed = caps[finite - 1] if finite and caps[finite - 1] > 0 else 1.0
    finish = [math.inf] * n
    rank_of, until_of = np.where(events.here, events.first_rank, _GONE).tolist(), events.first_until_s.tolist()
    # Per rate: how many transfers have it, what each of them has done until `since`, a time if capped or a volume.
    crowd_now = np.bincount(events.first_rank[events.here], count[events.here], len(caps)).astype(np.int64)
    crowd, work, since = crowd_now.tolist(), [0.0] * len(caps), [0.0] * len(caps)
    border = _border(events.caps[:finite], crowd_now, capacity)  # rates from here on are shared
    everybody, shared = sum(crowd), sum(crowd[border:])
    capped_load = math.fsum(cap * many for cap, many in zip(caps[:border], crowd[:border], strict=True))
    now = volume = 0.0
    speed = (capacity - capped_load) / shared if shared else idle_speed
    own_rate = events.caps[events.first_rank]
    ending = events.here & (size <= own_rate * events.first_until_s)
    queued = ending.tolist()
    by_time = [(goal[i] / caps[rank_of[i]], i) for i in np.flatnonzero(ending & (events.first_rank < border)).tolist()]
    by_volume = [(goal[i], i) for i in np.flatnonzero(ending & (events.first_rank >= border)).tolist()]
    heapify(by_time)
    heapify(by_volume)
    position, total = 0, len(times)
    while position < total or by_time or by_volume:
        time_s = times[position] if position < total else end_s
        # Whoever comes up until then; everybody else has no chance to be complete.
        due = by_time[0][0] if by_time else math.inf
        if by_volume and (reached := now + (by_volume[0][0] - volume) / speed) <= time_s and reached <= due:
            volume, candidate = heappop(by_volume)
            now = reached
        elif due <= time_s:
            volume += speed * (due - now)
            now, candidate = heappop(by_time)
        elif position == total:
            break
        else:
            candidate = _GONE
            volume += speed * (time_s - now)
            now = time_s
        entered = []
        if candidate != _GONE:
            rank = rank_of[candidate]
            if rank == _GONE:
                continue
            if rank >= border:
                lack = goal[candidate] - work[rank] - (volume - since[rank])
                if volume + lack > volume:
                    heappush(by_volume, (volume + lack, candidate))
                    continue
            else:
                lack = goal[candidate] - work[rank] - caps[rank] * (now - since[rank])
                if lack > caps[rank] * (until_of[candidate] - now):
                    queued[candidate] = False
                    continue
                if lack > 0 and (due := now + lack / caps[rank]) > now:
                    heappush(by_time, (due, candidate))
                    continue
            finish[candidate] = now
            goal[candidate] = 0.0
            rank_of[candidate] = _GONE
            many = counts[candidate]
            crowd[rank] -= many
            everybody -= many
            if rank >= border:
                shared -= many
            else:
                capped_load -= caps[rank] * many
        else:
            while position < total and times[position] <= now:
                member, rank, until_s = members[position], ranks[position], untils[position]
                position += 1
                old, many, lack = rank_of[member], counts[member], goal[member]
                if old != _GONE:
                    crowd[old] -= many
                    everybody -= many
                    if old >= border:
                        lack -= work[old] + (volume - since[old])
                        shared -= many
                    else:
                        lack -= work[old] + caps[old] * (now - since[old])
                        capped_load -= caps[old] * many
                    goal[member] = lack
                    rank_of[member] = _GONE
                    spare = negligible_of[member]
                    if rank == _GONE:
                        spare += (speed if old >= border else caps[old]) * slack_of[member]
                    if lack <= spare:
                        finish[member] = now
                if rank != _GONE and finish[member] == math.inf:
                    clock = volume if rank >= border else now
                    if not crowd[rank]:
                        work[rank], since[rank] = 0.0, clock
                    elif rank >= border:
                        lack += work[rank] + (clock - since[rank])
                    else:
                        lack += work[rank] + caps[rank] * (clock - since[rank])
                    goal[member] = lack
                    rank_of[member], until_of[member] = rank, until_s
                    crowd[rank] += many
                    everybody += many
                    if rank >= border:
                        shared += many
                    else:
                        capped_load += caps[rank] * many
                    entered.append(member)
        # Move the border until every rate below it is at most the level, and every one above it is more.
        if shared == everybody:
            capped_load = 0.0  # exactly: adding and subtracting leaves rounding behind
        level = (capacity - capped_load) / shared if shared else math.inf if capped_load <= capacity else -math.inf
        moved = False
        while border and caps[border - 1] > level:
            border -= 1
            if many := crowd[border]:
                work[border] += caps[border] * (now - since[border])
                since[border] = volume
                capped_load -= caps[border] * many
                shared += many
                if shared == everybody:
                    capped_load = 0.0
                level = (capacity - capped_load) / shared
                moved = True
        # Both directions at once could swap a rate for ever between two roundings of one level.
        while not moved and shared and border < finite and caps[border] <= level:
            if many := crowd[border]:
                work[border] += volume - since[border]
                since[border] = now
                capped_load += caps[border] * many
                shared -= many
                level = (capacity - capped_load) / shared if shared else math.inf
            border += 1
        speed = level if shared else idle_speed
        if not everybody:
            by_time.clear()
            by_volume.clear()
            volume = 0.0  # keeps rounding small
        for member in entered:
            if queued[member]:
                continue
            rank = rank_of[member]
            own = caps[rank]
            if rank >= border:
                lack = goal[member] - work[rank] - (volume - since[rank])
                if lack <= own * (until_of[member] - now):
                    heappush(by_volume, (volume + lack, member))
                    queued[member] = True
            else:
                lack = goal[member] - work[rank] - own * (now - since[rank])
                if own and lack <= own * (until_of[member] - now):
                    heappush(by_time, (now + lack / own, member))
                    queued[member] = True
    if end_s < math.inf:
        volume += speed * (end_s - now)
        now = end_s
    done, begun = np.array(work), np.array(since)
    done[:border] += events.caps[:border] * (now - begun[:border])
    done[border:] += volume - begun[border:]
    return _when_it_ends(np.array(finish), np.array(goal), np.array(rank_of), done, negligible, end_s)


def _when_it_ends(
    finish: Floats, goal: Floats, rank: Ids, done: Floats, negligible: Floats, end_s: float
) -> tuple[Floats, Floats]:
    """What `follow_level` returns, from each transfer's `goal` and what those of each rate have `done` of theirs."""
    under_way = np.flatnonzero(rank != _GONE)
    goal[under_way] -= done[rank[under_way]]
    finish[under_way[goal[under_way] <= negligible[under_way]]] = end_s
    return finish, np.maximum(goal, 0.0)


def _border(caps: Floats, crowd: Ids, capacity: float) -> int:
    """How many of the finite `caps`, ascending, are below the level if `crowd[i]` transfers have each."""
    capped = np.cumsum(caps * crowd[: len(caps)])
    above = int(crowd.sum()) - np.cumsum(crowd[: len(caps)])
    return int(np.append(capped + caps * above > capacity, True).argmax())
