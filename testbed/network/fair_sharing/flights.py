"""How transfers go through their flights (`emulation.transport.flights`), as far as nobody holds them back.

Two flights of a transfer are one here if the gap between them cannot matter: at no more than the rate of its own link
the first one lasts at least that long, so that the second follows at once, however the links are shared.
"""

import math
from dataclasses import dataclass

import numpy as np

from testbed.arrays import Floats, Ids
from testbed.emulation.links.rates import Rates
from testbed.emulation.transport.flights import Flights


def check_flights(flights: Flights, size: Floats) -> None:
    """Raise `ValueError` unless the flights belong to the transfers.

    Args:
        flights: the flights of n transfers.
        size: `(n,)` bytes of the transfers.
    """
    if len(flights) != len(size):
        raise ValueError(f"there are {len(size)} transfers, and flights of {len(flights)}")
    if not ((flights.size_bytes > 0) & (flights.size_bytes < np.inf)).all():
        raise ValueError("a flight's size must be a finite number of bytes above 0")
    if not ((flights.gap_s >= 0) & (flights.gap_s < np.inf)).all():
        raise ValueError("a flight's gap must be a finite number of seconds, at least 0")
    if not np.isclose(flights.total_bytes, size, rtol=1e-9, atol=0).all():
        raise ValueError("a transfer's size must be the total of its flights")


def first_gap(flights: Flights) -> Floats:
    """`(n,)` seconds from a transfer's start to its first flight; 0 if it has none."""
    gap = np.zeros(len(flights))
    has = flights.count > 0
    gap[has] = flights.gap_s[flights.first[has]]
    return gap


def merged(flights: Flights, size: Floats, fastest: Floats) -> Flights:
    """Merge flights that always follow each other without a gap.

    Args:
        flights: flights of n transfers, at least one each.
        size: `(n,)` bytes, their totals.
        fastest: `(n,)` bytes per second, the highest rate that each transfer ever gets.

    Returns:
        Flights in which each transfer has its own pattern.
    """
    first, count = flights.first, flights.count
    begins = np.cumsum(count) - count
    row = np.repeat(np.arange(len(flights)), count)
    at = np.arange(len(row)) + np.repeat(first - begins, count)
    bytes_, gap_s = flights.size_bytes[at], flights.gap_s[at]
    follows = np.zeros(len(row), np.bool_)  # at once upon the one before
    with np.errstate(invalid="ignore"):  # an infinite rate and no gap
        follows[1:] = (bytes_[:-1] >= gap_s[1:] * fastest[row[1:]]) | (gap_s[1:] == 0)
    follows[begins] = False
    # When a flight began must be known where the next one's gap matters.
    is_last = np.zeros(len(row), np.bool_)
    is_last[begins + count - 1] = True
    boundary = ~(follows & (is_last | np.append(follows[1:], True)))
    where = np.flatnonzero(boundary)
    sums = np.add.reduceat(bytes_, where) if len(where) else bytes_
    offsets = np.append(0, np.cumsum(np.bincount(row[where], minlength=len(flights))))
    single = np.diff(offsets) == 1
    # Exactly the size: the sum of the parts rounds, and one flight must equal a transfer without flights.
    sums[offsets[:-1][single]] = size[single]
    return Flights(np.arange(len(flights)), offsets, sums, np.where(follows, 0.0, gap_s)[where])


@dataclass(frozen=True, eq=False)
class Stretches:
    """The periods in which transfers carry bytes: one row per flight.

    Attributes:
        who: `(m,)` transfer of the flight.
        begin_s: `(m,)` seconds.
        end_s: `(m,)` seconds.
        size_bytes: `(m,)` bytes carried by the end.
    """

    who: Ids
    begin_s: Floats
    end_s: Floats
    size_bytes: Floats

    def carried(self, rates: Rates, stop_s: Floats) -> Floats:
        """`(n,)` bytes that each of the n transfers has carried by `stop_s`, `(n,)` seconds, on links with `rates`."""
        stop = stop_s[self.who]
        part = rates.take(self.who).bytes_between(self.begin_s, np.minimum(stop, self.end_s))
        part = np.where(self.end_s < stop, self.size_bytes, part)
        return np.bincount(self.who, part, len(stop_s)).astype(np.float64)

    def exceed(self, rate: Floats, order: Ids, count: Ids, capacity: float) -> bool:
        """Return whether `peak_load` exceeds the capacity if each transfer stands for `count`, `(n,)`, equal ones.

        Where rounding could decide, the rates are added one by one.
        """
        load, adds = self.peak_load(rate * count, order), 4 * int(count[self.who].sum())
        # A product rounds otherwise than repeated addition; beyond this margin both decide alike.
        if load == math.inf or abs(load - capacity) > adds * np.finfo(np.float64).eps * load:
            return load > capacity
        begins = np.cumsum(count) - count  # where those that are like each are to stand
        copies = count[self.who]
        nth = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
        who = np.repeat(begins[self.who], copies) + nth
        each = Stretches(who, *(np.repeat(of, copies) for of in (self.begin_s, self.end_s, self.size_bytes)))
        in_order = np.repeat(begins[order], count[order])
        in_order += np.arange(len(in_order)) - np.repeat(np.cumsum(count[order]) - count[order], count[order])
        return each.peak_load(np.repeat(rate, count), in_order) > capacity

    def peak_load(self, rate: Floats, order: Ids) -> float:
        """Return the largest sum of rates at any moment; ends count before begins.

        Args:
            rate: `(n,)` bytes per second.
            order: `(n,)` order in which transfers are added, so that rounding does not depend on their order in the
                arrays.
        """
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        at = np.argsort(place[self.who], kind="stable")
        rates, times = rate[self.who[at]], np.concatenate((self.end_s[at], self.begin_s[at]))
        # Ends stand first, and the sort is stable: at equal times, capacity is freed before it is taken.
        change = np.concatenate((-rates, rates))[np.argsort(times, kind="stable")]
        with np.errstate(invalid="ignore"):  # infinite rates: the load is infinite or NaN, which means contention
            peak = float(np.cumsum(change).max())
        return math.inf if math.isnan(peak) else peak


@dataclass(frozen=True, eq=False)
class TransferProgress:
    """How far n transfers are. Its arrays are written to as they go on.

    Attributes:
        flights: of all transfers.
        flight: `(n,)` where in `flights` the one stands that a transfer is in, or waits for.
        last: `(n,)` where its last one stands.
        begin_s: `(n,)` seconds: since when it is in that flight, or until when it waits for it.
        lacking: `(n,)` bytes of that flight.
    """

    flights: Flights
    flight: Ids
    last: Ids
    begin_s: Floats
    lacking: Floats

    @classmethod
    def of(cls, flights: Flights, start_s: Floats) -> "TransferProgress":
        """Return the progress of transfers, at least one flight each, that begin at `start_s`, `(n,)` seconds."""
        first = flights.first
        return cls(flights, first.copy(), first + flights.count - 1, start_s.copy(), flights.size_bytes[first])

    def take(self, ids: Ids) -> "TransferProgress":
        """Return a copy for the transfers `ids`, in that order."""
        return TransferProgress(self.flights, self.flight[ids], self.last[ids], self.begin_s[ids], self.lacking[ids])

    def put(self, ids: Ids, other: "TransferProgress") -> None:
        """Set the progress of the transfers `ids` to that of `other`."""
        self.flight[ids], self.begin_s[ids], self.lacking[ids] = other.flight, other.begin_s, other.lacking

    def advance(self, who: Ids, end_s: Floats) -> Floats:
        """Move transfers to their next flight, the previous one having ended.

        Args:
            who: `(m,)` int64, the transfers.
            end_s: `(m,)` seconds at which the previous flight ended.

        Returns:
            `(m,)` seconds at which the next flight begins.
        """
        self.flight[who] += 1
        following = self.flight[who]
        begin = np.maximum(end_s, self.begin_s[who] + self.flights.gap_s[following])
        self.begin_s[who], self.lacking[who] = begin, self.flights.size_bytes[following]
        return np.asarray(begin)

    def unhindered(self, rates: Rates, since_s: Floats, until_s: Floats) -> tuple[Floats, Stretches]:
        """Advance transfers on an uncontended link until none of them can complete a flight by `until_s`.

        Args:
            rates: rates of the n links.
            since_s: `(n,)` seconds from which on they carry the remaining bytes of their flights.
            until_s: `(n,)` seconds; may be infinite.

        Returns:
            (finish_s, stretches): `(n,)` seconds at which each is complete, infinite if it has more flights to begin by
            then; and the periods in which transfers carry bytes, the last ones perhaps ending after `until_s`.
        """
        finish = np.full(len(since_s), np.inf)
        parts: list[tuple[Ids, Floats, Floats, Floats]] = []
        moving, since = np.arange(len(since_s)), since_s
        while len(moving) or not parts:
            lacking, link = self.lacking[moving], rates if len(moving) == len(finish) else rates.take(moving)
            end = link.time_to_send(since, lacking)
            parts.append((moving, since, end, lacking))
            ends = self.flight[moving] == self.last[moving]
            finish[moving[ends]] = end[ends]
            goes_on = ~ends & (end <= until_s[moving]) & (end < np.inf)
            moving = moving[goes_on]
            since = self.advance(moving, end[goes_on])
            begins = since < until_s[moving]
            moving, since = moving[begins], since[begins]
        who, begin_s, end_s, size = (np.concatenate(column) for column in zip(*parts, strict=True))
        return finish, Stretches(who, begin_s, end_s, size)

    def total_lacking(self) -> Floats:
        """`(n,)` bytes that each transfer lacks, those of the flights to come among them."""
        to_come = self.last - self.flight
        row = np.repeat(np.arange(len(to_come)), to_come)
        at = np.arange(len(row)) - np.repeat(np.cumsum(to_come) - to_come - self.flight - 1, to_come)
        return np.asarray(self.lacking + np.bincount(row, self.flights.size_bytes[at], len(to_come)))
