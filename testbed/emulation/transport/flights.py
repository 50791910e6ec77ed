"""A transfer as the flights that a window-limited sender sends it in.

A sender may have one congestion window of bytes under way, and hears of their arrival a round trip later. So a message
goes in flights: a window's worth at once, as fast as the link carries it, then nothing until the first acknowledgement,
a round trip after the flight's first packet. Where a flight lasts longer than that there is no pause, and the window
limits nothing.

Which flights there are follows from what both ends know beforehand; when they go depends on the others that share a
link, too. So flights are made before (`windows`), and gone through where links are shared (`network.fair_sharing`, and
live in `network.live.links`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from testbed.arrays import Floats, Ids


@dataclass(frozen=True, eq=False)
class Flights:
    """In which flights n transfers go. Transfers that go alike have one pattern.

    A flight begins when the one before is through, and no earlier than its gap after the beginning of the one before;
    the first one, its gap after the transfer's start.

    Attributes:
        pattern: `(n,)` which pattern each transfer has.
        offsets: `(patterns + 1,)` where each pattern's flights begin in the next two.
        size_bytes: `(flights,)` float64, above 0.
        gap_s: `(flights,)` seconds, at least 0.
    """

    pattern: Ids
    offsets: Ids
    size_bytes: Floats
    gap_s: Floats

    def __len__(self) -> int:
        return len(self.pattern)

    @classmethod
    def whole(cls, size_bytes: Floats) -> "Flights":
        """Each of n transfers in one flight."""
        count = len(size_bytes)
        return cls(np.arange(count), np.arange(count + 1), size_bytes, np.zeros(count))

    @classmethod
    def of(cls, flights: list[list[tuple[float, float]]]) -> "Flights":
        """Each transfer with a pattern of its own: its flights as (bytes, gap in seconds)."""
        offsets = np.cumsum([0, *map(len, flights)])
        columns = np.array([flight for transfer in flights for flight in transfer], np.float64).reshape(-1, 2)
        return cls(np.arange(len(flights)), offsets, columns[:, 0].copy(), columns[:, 1].copy())

    def take(self, ids: Ids) -> "Flights":
        """The flights of the transfers `ids`, in that order."""
        return Flights(self.pattern[ids], self.offsets, self.size_bytes, self.gap_s)

    @property
    def first(self) -> Ids:
        """`(n,)` where each transfer's flights begin."""
        return self.offsets[self.pattern]

    @property
    def count(self) -> Ids:
        """`(n,)` how many flights each transfer has."""
        return np.diff(self.offsets)[self.pattern]

    @property
    def total_bytes(self) -> Floats:
        """`(n,)` bytes of all flights of each transfer."""
        pattern = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        return np.asarray(np.bincount(pattern, self.size_bytes, len(self.offsets) - 1)[self.pattern])

    def steps(self) -> Iterator[tuple[Ids, Floats, Floats]]:
        """For the first, second, ... flight: which transfers have one, its bytes, and its gap in seconds."""
        first, count = self.first, self.count
        who = np.arange(len(self))
        for number in range(int(count.max(initial=0))):
            who = who[count[who] > number]
            at = first[who] + number
            yield who, self.size_bytes[at], self.gap_s[at]
