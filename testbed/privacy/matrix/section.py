"""The experiment's section `aggregation.noise` with ``mechanism: correlated``: noise that the server adds to sums.

Kairouz, McMahan, Song, Thakkar, Thakurta, Xu, Practical and Private (Deep) Learning without Sampling or Shuffling
(DP-FTRL), arXiv 2103.00039, and the strategies of `testbed.privacy.matrix`. A sum is divided by the number of planned
participants, not by that of survivors: only then does later noise cancel earlier noise exactly.
"""

from functools import lru_cache
from math import sqrt
from typing import Literal

from pydantic import Field, model_validator

from testbed.errors import ExperimentError
from testbed.privacy.accounting import squared_norm_bound
from testbed.privacy.encoding import padded
from testbed.privacy.matrix.accounting import CorrelatedAccountant
from testbed.privacy.matrix.buffered import MOST_BUFFERS
from testbed.privacy.matrix.strategy import Name, Strategy, strategy
from testbed.privacy.noise import ClippedUpdates, planned_multiplier
from testbed.privacy.participation_pattern import ParticipationPattern

MOST_ROUNDS = 20_000
_LEAST_STEPS, _LARGEST_STEPS = 2.0, 2.0**40
"""Standard deviation of z in steps: with less, rounding would cost accuracy; with more, noise would not be exact."""


class CorrelatedNoise(ClippedUpdates):
    """Noise of the server, part of which later rounds cancel: it hides clients from observers of the models only.

    The server itself is trusted: it sees the sums without noise.
    """

    mechanism: Literal["correlated"] = Field(description="Gaussian noise that is correlated over rounds")
    added_by: Literal["server"] = Field("server", description="The party that adds the noise, and is trusted to do so")
    strategy: Name = Field(
        "blt",
        description="The matrix C, which says how much earlier noise is cancelled: blt (by a few buffers), band (that "
        "of the last rounds), identity (none: DP-FedAvg), prefix-sum (all: each model has independent noise)",
    )
    buffers: int | None = Field(
        None, ge=1, le=MOST_BUFFERS, description="For strategy: blt, the number of buffers (vectors kept). none: 4"
    )
    bands: int | None = Field(
        None, ge=1, description="For strategy: band, the number of bands, at most min_separation; none: min_separation"
    )
    error: Literal["mean", "max"] = Field(
        "mean", description="The error of the models that a strategy minimises: the mean squared one, or the largest"
    )
    noise_multiplier: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="Standard deviation of the independent noise, over the largest change by a client with rounds as "
        "planned: the epsilon of the plan depends on nothing else",
    )
    epsilon: float | None = Field(
        None, gt=0, description="Instead of noise_multiplier: the epsilon of a client with rounds as planned"
    )
    delta: float | None = Field(None, gt=0, lt=1, description="The delta of epsilon; none: the ledger's")
    rounds: int | None = Field(
        None, gt=0, le=MOST_ROUNDS, description="The rounds that C is made for; none: all of the experiment"
    )
    participants: int | None = Field(
        None,
        gt=0,
        description="The number that a sum is divided by, with or without dropouts; none: the planned participants",
    )
    min_separation: int | None = Field(
        None, gt=0, description="Least distance between two rounds of a client; none: as promised by the selection"
    )
    max_participations: int | None = Field(
        None, gt=0, description="Most rounds of a client; none: as promised by the selection"
    )

    @model_validator(mode="after")
    def _holds_together(self) -> "CorrelatedNoise":
        if (self.noise_multiplier is None) == (self.epsilon is None):
            then = "" if self.epsilon is None else "; set the other to null"
            raise ValueError(f"noise_multiplier: set either this or epsilon, not both{then}")
        if self.epsilon is None and self.delta is not None:
            raise ValueError("delta: allowed only with epsilon; the ledger's delta is privacy.delta")
        for key, own in (("buffers", "blt"), ("bands", "band")):
            if getattr(self, key) is not None and self.strategy != own:
                raise ValueError(f"{key}: allowed only with strategy: {own}; leave it out")
        return self

    def planned_for(self, rounds: int, delta: float) -> "CorrelatedNoise":
        """Return the section with `rounds` and, for an epsilon, `delta` filled in from the experiment."""
        completed = {"rounds": self.rounds or rounds}
        return self.model_copy(update=completed if self.epsilon is None else completed | {"delta": self.delta or delta})

    def planned_under(self, participants: int, pattern: ParticipationPattern | None) -> "CorrelatedNoise":
        """Return the section with the limits of the selection filled in.

        Args:
            participants: planned participants of a round.
            pattern: the participation pattern that the selection promises over `rounds`; None: it promises none.

        Raises:
            ValueError: (one line) if the strategy needs a promise and there is none, or the section contradicts it.
        """
        own_limits = self.min_separation, self.max_participations
        rounds = self.rounds or 1
        if pattern is None:
            if self.strategy != "identity":
                raise ValueError(
                    f"strategy: {self.strategy} needs a least distance between the rounds of a client, which this "
                    "selection does not promise; set selection.protocol to min-separation, or strategy: identity"
                )
            pattern = ParticipationPattern(1)
        promised = pattern.min_separation, pattern.most_participations(rounds)
        for key, own, sure in zip(("min_separation", "max_participations"), own_limits, promised, strict=True):
            if own is not None and own != sure:
                raise ValueError(f"{key}: {own}, but the selection promises {sure} over {rounds} rounds; leave it out")
        if self.bands is not None and self.bands > min(promised[0], rounds):
            raise ValueError(
                f"bands: {self.bands}; at most {min(promised[0], rounds)}, as the rounds of a client must not overlap"
            )
        update = {"min_separation": promised[0], "max_participations": promised[1]}
        return self.model_copy(update=update | {"participants": self.participants or participants})

    def check_rounds(self, rounds: int) -> None:
        """Raise `ValueError` (one line) if the experiment has more rounds than C."""
        if self.rounds is not None and rounds > self.rounds:
            raise ValueError(f"rounds: {self.rounds}, for an experiment of {rounds}: the noise would end before it")
        if self.rounds is not None and self.rounds > MOST_ROUNDS:
            raise ValueError(f"rounds: {self.rounds}; at most {MOST_ROUNDS}")

    @property
    def matrix(self) -> Strategy:
        """The matrix C; raises `ExperimentError` if the section was not completed."""
        separation, participations, rounds = self.min_separation, self.max_participations, self.rounds
        if separation is None or participations is None or rounds is None:
            raise ExperimentError(
                "aggregation.noise.min_separation: correlated noise needs the limits on the rounds of a client; an "
                "experiment fills them in, where the selection promises them"
            )
        size = (self.buffers or 4) if self.strategy == "blt" else self.bands
        return strategy(self.strategy, size, rounds, separation, participations, self.error)

    def contribution(self, dimension: int) -> float:
        """Return the largest norm of an encoded update in a sum, in units of an update."""
        steps = self.steps(dimension)
        return self.clip * sqrt(squared_norm_bound(steps, padded(dimension), self.bias)) / steps

    def multiplier(self) -> float:
        """Return the noise multiplier, as given or computed for the given epsilon.

        Raises:
            ExperimentError: (one line) if no noise keeps the epsilon.
        """
        return self.noise_multiplier if self.noise_multiplier is not None else _multiplier(self)

    def accountant(self) -> CorrelatedAccountant:
        """Return the accountant of clients with rounds as planned."""
        return self._accountant(self.multiplier())

    def _accountant(self, multiplier: float) -> CorrelatedAccountant:
        matrix = self.matrix
        return CorrelatedAccountant(multiplier, matrix, self.min_separation or 1, self.max_participations or 1)

    def deviation(self, dimension: int) -> float:
        """Return the standard deviation of z, in units of an update."""
        return self.multiplier() * self.accountant().sensitivity * self.contribution(dimension)

    def check(self, participants: int, dimension: int, bits: int) -> None:
        """Check that the sum fits the ring and the noise can be drawn.

        Args:
            participants: number of summed updates.
            dimension: number of model parameters d.
            bits: ring width.

        Raises:
            ExperimentError: (one line) if one of them fails.
        """
        deviation = self.deviation(dimension)
        self.check_ring(participants, dimension, bits, deviation * self.matrix.largest_release / self.clip)
        in_steps = deviation / self.clip * self.steps(dimension)
        if not _LEAST_STEPS <= in_steps <= _LARGEST_STEPS:
            raise ExperimentError(
                f"aggregation.noise.scale: at {self.steps(dimension):g} steps to the clip the server's noise has a "
                f"standard deviation of {in_steps:.4g} steps; allowed {_LEAST_STEPS:g} to {_LARGEST_STEPS:g}"
            )


@lru_cache(maxsize=256)
def _multiplier(noise: CorrelatedNoise) -> float:
    if noise.delta is None or noise.epsilon is None or noise.max_participations is None:
        raise ExperimentError("aggregation.noise.epsilon: needs delta and the rounds of a client, see noise.accountant")
    return planned_multiplier(noise._accountant, noise.epsilon, noise.delta, noise.max_participations)
