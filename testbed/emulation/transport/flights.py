"""A transfer as the flights in which a window-limited sender sends it.

A sender may have one congestion window of bytes under way, and receives acknowledgements a round trip later. A message
therefore goes in flights: a window of bytes as fast as the link carries them, then a pause until the first
acknowledgement, one round trip after the flight's first packet. If a flight lasts longer than a round trip, there is no
pause and the window limits nothing.

The sizes and gaps of the flights depend only on the sender and its path; their times also depend on the other transfers
that share a link. Flights are therefore computed beforehand (`windows`) and replayed where links are shared
(`network.fair_sharing`, and live in `network.live.links`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from testbed.arrays import Floats, Ids


@dataclass(frozen=True, eq=False)
class Flights:
    """The flights of n transfers. Transfers with equal flights share one pattern.

    A flight begins when the flight before is through, and no earlier than its gap after the beginning of the flight
    before; the first flight, its gap after the start of the transfer.

    Attributes:
        pattern: `(n,)` pattern index of each transfer.
        offsets: `(patterns + 1,)` position of each pattern's first flight in the next two arrays.
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
        """Return n transfers of one flight each."""
        count = len(size_bytes)
        return cls(np.arange(count), np.arange(count + 1), size_bytes, np.zeros(count))

    @classmethod
    def of(cls, flights: list[list[tuple[float, float]]]) -> "Flights":
        """Return transfers with a pattern each, from their flights as (bytes, gap in seconds)."""
        offsets = np.cumsum([0, *map(len, flights)])
        columns = np.array([flight for transfer in flights for flight in transfer], np.float64).reshape(-1, 2)
        return cls(np.arange(len(flights)), offsets, columns[:, 0].copy(), columns[:, 1].copy())

    def take(self, ids: Ids) -> "Flights":
        """Return the flights of the transfers `ids`, in that order."""
        return Flights(self.pattern[ids], self.offsets, self.size_bytes, self.gap_s)

    @property
    def first(self) -> Ids:
        """`(n,)` positions of each transfer's first flight."""
        return self.offsets[self.pattern]

    @property
    def count(self) -> Ids:
        """`(n,)` numbers of flights of each transfer."""
        return np.diff(self.offsets)[self.pattern]

    @property
    def total_bytes(self) -> Floats:
        """`(n,)` bytes of all flights of each transfer."""
        pattern = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        # Per pattern, then spread: millions of transfers share a few patterns.
        return np.asarray(np.bincount(pattern, self.size_bytes, len(self.offsets) - 1)[self.pattern])

    def steps(self) -> Iterator[tuple[Ids, Floats, Floats]]:
        """Yield, for the first, second, ... flight: indices of transfers with this flight, bytes, gaps in seconds."""
        first, count = self.first, self.count
        who = np.arange(len(self))
        for number in range(int(count.max(initial=0))):
            who = who[count[who] > number]
            at = first[who] + number
            yield who, self.size_bytes[at], self.gap_s[at]
