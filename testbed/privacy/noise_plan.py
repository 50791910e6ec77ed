"""What an aggregation promises of its sums and of the noise in them, and what rounds with that noise cost: all that the
ledger asks.

A protocol's parameters configure it; what follows from them for so many participants is a `Guarantees`. What the
accountant, the ledger and the bounds take is one `NoisePlan`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import ClassVar, Literal, Protocol


class Accountant(Protocol):
    """What taking part costs in privacy, under one mechanism with fixed parameters.

    Attributes:
        unit: what is protected, a client's whole data or one sample of it; neighbours differ in one of them.
    """

    unit: ClassVar[Literal["client", "sample"]]

    @property
    def mechanism(self) -> str:
        """The name of the mechanism, as experiments write it."""

    def epsilon(self, rounds: Mapping[float, int], delta: float) -> float:
        """The epsilon at `delta` of all the rounds that one client took part in; inf where there was no noise.

        It holds for observers who see who takes part.

        Args:
            rounds: how many rounds had which share of the planned noise variance in their sum, as in
                ``{1.0: 7, 0.9: 2}``.
            delta: in (0, 1).
        """


NoiseSource = Literal["shares", "server", "clients"]
"""Whose noise hides a client: the sum of the participants' shares; what the server adds; each client's own alone."""

_ONE_BY_ONE = 10_000
_STEP = 1.001


@dataclass(frozen=True)
class Guarantees:
    """What holds of sums among so many participants.

    Attributes:
        participants: s.
        max_colluders: how many dishonest participants a malicious server may have and still see sums alone; -1: it
            sees updates.
        min_sum_size: how many of the participants a sum has at least, while the server follows the protocol.
        min_partition_size: how many, dishonest ones too, are in each sum that a malicious server may split them into,
            at least. It counts where no more than `max_colluders` are dishonest, and where it is less than
            `min_sum_size`.
        min_noise_share: the share of the planned noise that a sum has at least, where the participants share it.
    """

    participants: int
    max_colluders: int
    min_sum_size: int
    min_partition_size: int
    min_noise_share: float

    @classmethod
    def none(cls, participants: int, min_noise_share: float | None = None) -> "Guarantees":
        """Those of a server that sees every update; the noise share may still be more than one participant's."""
        share = 1 / participants if min_noise_share is None else min_noise_share
        return cls(participants, -1, 1, participants, share)


@dataclass(frozen=True)
class NoisePlan:
    """The noise of an aggregation, in rounds of all sizes that a run may have.

    Attributes:
        accountant: what taking part costs.
        guarantees: what holds among so many participants; `ValueError`: there is no sum of so many.
        smallest, largest: participants that a round may have.
        source: whose noise hides a client.
    """

    accountant: Accountant
    guarantees: Callable[[int], Guarantees]
    smallest: int
    largest: int
    source: NoiseSource = "shares"

    @property
    def noise_multiplier(self) -> float | None:
        """The accountant's, as given or found for an epsilon; None where it has none (a user-defined one need not)."""
        multiplier = getattr(self.accountant, "noise_multiplier", None)
        return float(multiplier) if isinstance(multiplier, int | float) else None

    @cached_property
    def min_share(self) -> float:
        """The share of the planned noise that a sum has at least, however many participants drop out.

        The least over all sizes that a round may have: as thresholds are rounded up, neither end of the range need have
        it. No larger round sums fewer, and noise that is kept when participants drop out changes so little with their
        number s that s^2 times the share does not fall either. So the share at one size bounds those at the next ones,
        and only sizes that may have less than was found are looked at; above 10,000 not each of them, but what lies
        between two that are is bounded from below, which costs at most two parts in a thousand.
        """
        least, size = 1.0, self.smallest
        while size <= self.largest:
            try:
                share = float(self.guarantees(size).min_noise_share)
            except ValueError:  # there is no sum of so many
                size += 1
                continue
            least = min(least, share)
            following = size + 1
            if least > 0:
                following = max(following, int(size * sqrt(share / least)))  # up to there no share is below `least`
            if size > _ONE_BY_ONE and (further := int(size * _STEP)) > following:
                following = min(further, self.largest + 1)
                least = min(least, share * (size / (following - 1)) ** 2)
            if size < self.largest < following:
                following = self.largest  # whose share is exact
            size = following
        return least
