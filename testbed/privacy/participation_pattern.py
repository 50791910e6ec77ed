"""Rounds in which one client may take part: promised by a selection, required by correlated noise.

Choquette-Choo, McMahan, Rush, Thakurta, Multi-Epoch Matrix Factorization Mechanisms for Private Machine Learning, arXiv
2211.06530, section 2 (a fixed cycle is its (k, b)-participation); Choquette-Choo et al., (Amplified) Banded Matrix
Factorization, arXiv 2306.08153, section 3 (min-separation).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ParticipationPattern:
    """Limits on the rounds of every single client, for all dropouts and all rounds without a sum.

    Attributes:
        min_separation: b, at least 1: a client that takes part in rounds t and t' has |t - t'| >= b; 1 forbids nothing.
        max_participations: k, most rounds of a client; None: as many as the separation leaves room for.
        fixed_cycle: whether all rounds of a client are equal modulo b (balls in bins; Chua et al., arXiv 2412.16802).

    Example:
        >>> ParticipationPattern(min_separation=5, max_participations=2).most_participations(rounds=100)
        2
    """

    min_separation: int
    max_participations: int | None = None
    fixed_cycle: bool = False

    def __post_init__(self) -> None:
        if self.min_separation < 1:
            raise ValueError(f"min_separation: {self.min_separation}; must be at least 1")
        if self.max_participations is not None and self.max_participations < 1:
            raise ValueError(f"max_participations: {self.max_participations}; must be at least 1, or none")

    def most_participations(self, rounds: int) -> int:
        """Return the most rounds that a client can have had after `rounds` rounds.

        Example:
            >>> ParticipationPattern(min_separation=4).most_participations(10)
            3
        """
        room = -(-rounds // self.min_separation)
        return room if self.max_participations is None else min(room, self.max_participations)
