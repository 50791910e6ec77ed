"""Guarantees of an aggregation on its sums and their noise, and the privacy cost of rounds: the input of the ledger.

A protocol's parameters determine its `Guarantees` for a number of participants. The accountant, the ledger and the
bounds take a `NoisePlan`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import ClassVar, Literal, Protocol


class Accountant(Protocol):
    """Computes the privacy cost of taking part, under one mechanism with fixed parameters.

    Attributes:
        unit: the protected unit, a client's whole data or one sample of it; neighbours differ in one of them.
    """

    unit: ClassVar[Literal["client", "sample"]]

    @property
    def mechanism(self) -> str:
        """The name of the mechanism, as experiments write it."""

    def epsilon(self, rounds: Mapping[float, int], delta: float) -> float:
        """Return the epsilon at `delta` of all rounds that one client took part in; inf if there was no noise.

        The epsilon holds for observers that see the participants.

        Args:
            rounds: number of rounds by the share of the planned noise variance in their sum, as in
                ``{1.0: 7, 0.9: 2}``.
            delta: in (0, 1).
        """


NoiseSource = Literal["shares", "server", "clients"]
"""Noise that hides a client: the sum of the participants' shares, the server's noise, or each client's own alone."""

_ONE_BY_ONE = 10_000
_STEP = 1.001


@dataclass(frozen=True)
class Guarantees:
    """Guarantees of an aggregation on the sums of a round, for a number of participants.

    Attributes:
        participants: s.
        max_colluders: most dishonest participants with which a malicious server still sees sums alone; -1: the server
            sees updates.
        min_sum_size: least number of participants in a sum, while the server follows the protocol.
        min_partition_size: least number of participants, dishonest ones included, in each sum into which a malicious
            server may split them. It counts where no more than `max_colluders` are dishonest, and where it is less than
            `min_sum_size`.
        min_noise_share: least share of the planned noise in a sum, where the participants share the noise.

    Example:
        >>> Guarantees.none(participants=20).min_noise_share
        0.05
    """

    participants: int
    max_colluders: int
    min_sum_size: int
    min_partition_size: int
    min_noise_share: float

    @classmethod
    def none(cls, participants: int, min_noise_share: float | None = None) -> "Guarantees":
        """Return the guarantees against a server that sees every update.

        Args:
            participants: s.
            min_noise_share: least share of the planned noise in a sum; None: one participant's.
        """
        share = 1 / participants if min_noise_share is None else min_noise_share
        return cls(participants, -1, 1, participants, share)


@dataclass(frozen=True)
class NoisePlan:
    """The noise of an aggregation, in rounds of all sizes that a run may have.

    Attributes:
        accountant: computes the cost of taking part.
        guarantees: computes the guarantees for a number of participants; raises `ValueError` if there is no sum of
            that many.
        smallest, largest: least and most participants of a round.
        source: origin of the noise that hides a client.
    """

    accountant: Accountant
    guarantees: Callable[[int], Guarantees]
    smallest: int
    largest: int
    source: NoiseSource = "shares"

    @property
    def noise_multiplier(self) -> float | None:
        """The accountant's noise multiplier; None if it has none (a user-defined accountant need not have one)."""
        multiplier = getattr(self.accountant, "noise_multiplier", None)
        return float(multiplier) if isinstance(multiplier, int | float) else None

    @cached_property
    def min_share(self) -> float:
        """The least share of the planned noise in a sum, over all sizes of a round and all dropouts."""
        # Thresholds are rounded up, so neither end of the range need have the least share. No larger round sums fewer,
        # and enforced noise changes so little with the number s of participants that s^2 times the share does not fall
        # either. So the share at one size bounds the shares at the next sizes, and only sizes that may have less than
        # `least` are evaluated. Above 10,000 some of those are skipped, too: the bound from below for the sizes between
        # two evaluated ones costs at most two parts in a thousand.
        least, size = 1.0, self.smallest
        while size <= self.largest:
            try:
                share = float(self.guarantees(size).min_noise_share)
            except ValueError:  # no sum of this size
                size += 1
                continue
            least = min(least, share)
            following = size + 1
            if least > 0:
                following = max(following, int(size * sqrt(share / least)))  # no share before it is below `least`
            if size > _ONE_BY_ONE and (further := int(size * _STEP)) > following:
                following = min(further, self.largest + 1)
                least = min(least, share * (size / (following - 1)) ** 2)
            if size < self.largest < following:
                following = self.largest  # evaluated exactly
            size = following
        return least
