"""Probability that a round completes, exact for participants that drop out independently or in an exact number."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import binom, hypergeom


@dataclass(frozen=True)
class Tolerance:
    """Losses with which a round still completes.

    Attributes:
        participants: number of participants.
        lost: most participants that may drop out.
        members: number of participants on a committee; 0 without a committee.
        members_lost: most members that may drop out.
    """

    participants: int
    lost: int
    members: int = 0
    members_lost: int = 0

    def completes_with_rate(self, rate: float) -> float:
        """Return the probability that a round completes if each participant drops out independently.

        Args:
            rate: probability that a participant drops out.

        Example:
            >>> round(Tolerance(100, 44).completes_with_rate(0.5), 4)
            0.1356
            >>> round(Tolerance(100, 60, members=60, members_lost=24).completes_with_rate(0.5), 4)
            0.0775
        """
        members = np.arange(min(self.members_lost, self.lost) + 1)
        others = binom.cdf(self.lost - members, self.participants - self.members, rate)
        return float((binom.pmf(members, self.members, rate) * others).sum())

    def completes_with_number(self, number: int) -> float:
        """Return the probability that a round completes if an exact number of participants, at random, drops out.

        Args:
            number: number of participants that drop out.

        Example:
            >>> Tolerance(100, 44).completes_with_number(50)
            0.0
            >>> round(Tolerance(100, 60, members=60, members_lost=24).completes_with_number(50), 4)
            0.0121
        """
        if number > self.lost:
            return 0.0
        return float(hypergeom.cdf(self.members_lost, self.participants, self.members, number)) if self.members else 1.0


def tolerated(participants: int, rate: float, chance: float) -> int:
    """Return the fewest losses that a protocol must tolerate for rounds to complete with a probability.

    Args:
        participants: number of participants.
        rate: probability that each of them drops out, independently.
        chance: least probability that a round completes.

    Example:
        >>> tolerated(100, 0.1, 0.999)
        20
    """
    return int(binom.ppf(chance, participants, rate))
