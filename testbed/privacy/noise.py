"""Noise that participants add to their updates: the experiment's section `aggregation.noise`.

The sum of all participants' shares is the noise of the round, distributed as if one had added it: each adds noise of
the planned variance over the number of planned participants. Who drops out takes its share along.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from testbed.errors import ExperimentError
from testbed.privacy.encoding import CONDITIONAL_BIAS, Encoding
from testbed.privacy.rotation import padded
from testbed.privacy.sampling import LARGEST_VARIANCE, SMALLEST_VARIANCE, Mechanism, add_noise

_FINEST = 2**14


@dataclass(frozen=True)
class NoiseShare:
    """What one noise vector is made of: the same share gives the same vector, so it can be taken away again.

    Attributes:
        mechanism: its distribution.
        variance: of each coordinate, in squared steps.
        seed: 32 secret bytes, for this vector alone.
    """

    mechanism: Mechanism
    variance: float
    seed: bytes

    def add_to(self, vector: npt.NDArray[Any], sign: int = 1) -> None:
        """Add it to the coordinates of an encoded `vector` `(D+1,)` in place, modulo its lane (-1: take it away)."""
        add_noise(vector[:-1], self.mechanism, self.variance, self.seed, sign)


class Noise(BaseModel):
    """Noise that the participants add, for differential privacy of what the sums tell."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mechanism: Literal["skellam", "discrete-gaussian"] = Field(
        "skellam", description="Distribution of each participant's share of the noise"
    )
    clip: float = Field(1.0, gt=0, description="Largest L2 norm of an update; a longer one is shortened to it")
    noise_multiplier: float = Field(
        ...,
        gt=0,
        le=1e6,
        description="Standard deviation of the noise in the sum over the clip, when all planned participants add some",
    )
    scale: float | None = Field(
        None,
        ge=1,
        le=2**30,
        description="The clip in integer steps; none: 8 sqrt(d), where rounding hardly matters, rounded up to a power "
        "of two and at most 16384",
    )
    bias: float = Field(
        CONDITIONAL_BIAS,
        ge=0,
        lt=1,
        description="Conditional rounding repeats at most this share of roundings, to keep updates short (the paper's "
        "beta); 0: never",
    )

    def steps(self, dimension: int) -> float:
        """The clip in integer steps, for a model of so many parameters."""
        if self.scale is not None:
            return self.scale
        return float(min(_FINEST, 8 << -(-(padded(dimension).bit_length() - 1) // 2)))

    def encoding(self, dimension: int, bits: int) -> Encoding:
        """How updates of d parameters become elements of a ring."""
        return Encoding(dimension, self.clip, self.steps(dimension), bits, self.bias)

    def variance(self, dimension: int) -> float:
        """Of the noise of a coordinate of the sum that is planned, in squared steps."""
        return (self.noise_multiplier * self.steps(dimension)) ** 2

    def share(self, participants: int, dimension: int, seed: bytes) -> NoiseShare:
        """What one of so many planned participants adds."""
        return NoiseShare(self.mechanism, self.variance(dimension) / participants, seed)

    def check(self, participants: int, dimension: int, bits: int) -> None:
        """Raise `ExperimentError` (one line) where the sum would not fit the ring, or shares cannot be drawn."""
        share = self.variance(dimension) / participants
        if not SMALLEST_VARIANCE <= share <= LARGEST_VARIANCE:
            wrong, instead = ("more", "lower") if share > LARGEST_VARIANCE else ("less", "raise")
            limit = (LARGEST_VARIANCE if share > LARGEST_VARIANCE else SMALLEST_VARIANCE) ** 0.5
            raise ExperimentError(
                f"aggregation.noise.scale: at {self.steps(dimension):g} steps to the clip, each of {participants} "
                f"participants adds noise of {share**0.5:.4g} steps, {wrong} than {limit:g}; {instead} it"
            )
        needed = self.encoding(dimension, bits).bits_needed(participants, self.noise_multiplier)
        if needed > bits:
            raise ExperimentError(
                f"aggregation.bits: {participants} updates of {self.steps(dimension):g} steps to the clip and their "
                f"noise need {needed} bits, the ring has {bits}; set aggregation.bits to {needed}, or lower "
                f"aggregation.noise.scale"
            )
