"""The experiment's section `aggregation.noise` with ``mechanism: correlated``: noise that the server adds to sums.

Kairouz, McMahan, Song, Thakkar, Thakurta, Xu, Practical and Private (Deep) Learning without Sampling or Shuffling
(DP-FTRL), arXiv 2103.00039, and the strategies of `testbed.privacy.matrix`. A sum is divided by the participants that
were planned, not by those that were left: only then does later noise take back earlier noise exactly.
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
"""Deviation of z: of fewer, rounding would cost accuracy; of more, noise would not be exact."""


class CorrelatedNoise(ClippedUpdates):
    """Noise of the server, some of which later rounds take back: it hides clients from whoever sees the models, and not
    from the server.
    """

    mechanism: Literal["correlated"] = Field(description="Gaussian noise that is correlated over rounds")
    added_by: Literal["server"] = Field("server", description="Who adds it, and is trusted with that")
    strategy: Name = Field(
        "blt",
        description="Which noise is taken back, the matrix C: blt (a few buffers), band (that of the last rounds), "
        "identity (none of it: DP-FedAvg), prefix-sum (all of it: each model has noise of its own)",
    )
    buffers: int | None = Field(
        None, ge=1, le=MOST_BUFFERS, description="Of strategy: blt; as many vectors are kept. none: 4"
    )
    bands: int | None = Field(
        None, ge=1, description="Of strategy: band, at most min_separation; none: as many as that"
    )
    error: Literal["mean", "max"] = Field(
        "mean", description="Which error of the models a strategy makes small: the mean squared one, or the largest"
    )
    noise_multiplier: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="Standard deviation of the independent noise, over all that a client can change whose rounds are "
        "as planned: the epsilon of the plan depends on nothing else",
    )
    epsilon: float | None = Field(
        None, gt=0, description="Instead: what the epsilon of a client shall be whose rounds are as planned"
    )
    delta: float | None = Field(None, gt=0, lt=1, description="At which epsilon is kept; none: the ledger's")
    rounds: int | None = Field(
        None, gt=0, le=MOST_ROUNDS, description="That C is made for; none: all of the experiment"
    )
    participants: int | None = Field(
        None,
        gt=0,
        description="By how many a sum is divided, whoever drops out; none: the participants that selection plans with",
    )
    min_separation: int | None = Field(
        None, gt=0, description="Rounds between two of one client, at least; none: what the selection promises"
    )
    max_participations: int | None = Field(
        None, gt=0, description="Rounds of one client, at most; none: what the selection promises"
    )

    @model_validator(mode="after")
    def _holds_together(self) -> "CorrelatedNoise":
        if (self.noise_multiplier is None) == (self.epsilon is None):
            then = "" if self.epsilon is None else "; set the other to null"
            raise ValueError(f"noise_multiplier: either this or epsilon is needed, and not both{then}")
        if self.epsilon is None and self.delta is not None:
            raise ValueError("delta goes with epsilon; privacy.delta is that of the ledger")
        for key, own in (("buffers", "blt"), ("bands", "band")):
            if getattr(self, key) is not None and self.strategy != own:
                raise ValueError(f"{key}: goes with strategy: {own}; leave it out")
        return self

    def planned_for(self, rounds: int, delta: float) -> "CorrelatedNoise":
        """The same, with what is left to the rest of the experiment filled in."""
        completed = {"rounds": self.rounds or rounds}
        return self.model_copy(update=completed if self.epsilon is None else completed | {"delta": self.delta or delta})

    def planned_under(self, participants: int, pattern: ParticipationPattern | None) -> "CorrelatedNoise":
        """The same, with what selection says; `pattern` is what it promises over `rounds`.

        Raises `ValueError` (one line) for a strategy that needs a promise where there is none, or says another.
        """
        own_limits = self.min_separation, self.max_participations
        rounds = self.rounds or 1
        if pattern is None:
            if self.strategy != "identity":
                raise ValueError(
                    f"strategy: {self.strategy} is planned for clients whose rounds are known to be apart, which this "
                    "selection does not promise; set selection.protocol to min-separation, or strategy: identity"
                )
            pattern = ParticipationPattern(1)
        promised = pattern.min_separation, pattern.most_participations(rounds)
        for key, own, sure in zip(("min_separation", "max_participations"), own_limits, promised, strict=True):
            if own is not None and own != sure:
                raise ValueError(f"{key}: {own}, but the selection promises {sure} over {rounds} rounds; leave it out")
        if self.bands is not None and self.bands > min(promised[0], rounds):
            raise ValueError(
                f"bands: {self.bands}; at most {min(promised[0], rounds)}, as the rounds of a client must not touch"
            )
        update = {"min_separation": promised[0], "max_participations": promised[1]}
        return self.model_copy(update=update | {"participants": self.participants or participants})

    def check_rounds(self, rounds: int) -> None:
        """Raise `ValueError` (one line) where the experiment has more rounds than C."""
        if self.rounds is not None and rounds > self.rounds:
            raise ValueError(f"rounds: {self.rounds}, for an experiment of {rounds}: the noise would end before it")
        if self.rounds is not None and self.rounds > MOST_ROUNDS:
            raise ValueError(f"rounds: {self.rounds}; at most {MOST_ROUNDS}")

    @property
    def matrix(self) -> Strategy:
        """C; raises `ExperimentError` where the section was not completed."""
        separation, participations, rounds = self.min_separation, self.max_participations, self.rounds
        if separation is None or participations is None or rounds is None:
            raise ExperimentError(
                "aggregation.noise.min_separation: correlated noise needs to know the rounds that a client may have; "
                "an experiment fills it in, where selection promises them"
            )
        size = (self.buffers or 4) if self.strategy == "blt" else self.bands
        return strategy(self.strategy, size, rounds, separation, participations, self.error)

    def contribution(self, dimension: int) -> float:
        """How long an update can be in a sum, as it is encoded."""
        steps = self.steps(dimension)
        return self.clip * sqrt(squared_norm_bound(steps, padded(dimension), self.bias)) / steps

    def multiplier(self) -> float:
        """The noise multiplier, as given or for the given epsilon; raises `ExperimentError` if there is none."""
        return self.noise_multiplier if self.noise_multiplier is not None else _multiplier(self)

    def accountant(self) -> CorrelatedAccountant:
        """What taking part costs."""
        return self._accountant(self.multiplier())

    def _accountant(self, multiplier: float) -> CorrelatedAccountant:
        matrix = self.matrix
        return CorrelatedAccountant(multiplier, matrix, self.min_separation or 1, self.max_participations or 1)

    def deviation(self, dimension: int) -> float:
        """The standard deviation of z, in units of an update."""
        return self.multiplier() * self.accountant().sensitivity * self.contribution(dimension)

    def check(self, participants: int, dimension: int, bits: int) -> None:
        """Raise `ExperimentError` (one line) where the sum would not fit the ring, or noise could not be drawn."""
        deviation = self.deviation(dimension)
        self.check_ring(participants, dimension, bits, deviation * self.matrix.largest_release / self.clip)
        in_steps = deviation / self.clip * self.steps(dimension)
        if not _LEAST_STEPS <= in_steps <= _LARGEST_STEPS:
            raise ExperimentError(
                f"aggregation.noise.scale: at {self.steps(dimension):g} steps to the clip the server's noise has a "
                f"deviation of {in_steps:.4g} steps; allowed {_LEAST_STEPS:g} to {_LARGEST_STEPS:g}"
            )


@lru_cache(maxsize=256)
def _multiplier(noise: CorrelatedNoise) -> float:
    if noise.delta is None or noise.epsilon is None or noise.max_participations is None:
        raise ExperimentError("aggregation.noise.epsilon: needs delta and the rounds of a client, see noise.accountant")
    return planned_multiplier(noise._accountant, noise.epsilon, noise.delta, noise.max_participations)
