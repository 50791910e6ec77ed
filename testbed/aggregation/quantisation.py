"""From float updates to ring elements and back: clip, stochastic rounding, weights in the sum.

An update's coordinate is clipped to [-clip, clip] and rounded, up or down at random so that it is right on average,
to one of 2**levels_bits levels; the client multiplies by its weight and appends the weight itself as one more
element. The server therefore learns the sum of weights and nothing else about them.

A sum from which not every mask was removed is uniform noise, and nothing signed tells it from a sum. But no honest
sum has a coordinate above the sum of weights times the highest level: `decode` refuses what has.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.crypto.masks import word_dtype
from testbed.emulation.compute.cost import meter
from testbed.errors import ExperimentError, Refusal, RoundAborted

LARGEST_RING = 64  # bits
_CHUNK = 1 << 15  # elements: the float64 working set stays in the second-level cache


@dataclass(frozen=True)
class Quantisation:
    """The mapping, the same for all clients of an experiment.

    Attributes:
        clip: largest absolute value of a coordinate.
        levels_bits: bits per coordinate before summing.
        bits: ring width; sums are taken modulo 2**bits.
    """

    clip: float
    levels_bits: int
    bits: int

    @property
    def highest(self) -> int:
        """The highest level."""
        return (1 << self.levels_bits) - 1

    def check(self, participants: int, maximum_weight: int) -> None:
        """Raise `ExperimentError` when the sum of so many weighted updates could exceed the ring."""
        largest = participants * maximum_weight * self.highest
        if largest >= 1 << self.bits:
            raise ExperimentError(
                f"aggregation.bits: {participants} participants with weights up to {maximum_weight} at "
                f"{self.levels_bits} bits need {largest.bit_length()} bits, the ring has {self.bits}; "
                f"{self._advice(participants, maximum_weight)}"
            )

    def _advice(self, participants: int, maximum_weight: int) -> str:
        """What makes the sum fit: each of these by itself."""
        weighted, ring = participants * maximum_weight, 1 << self.bits
        found = []
        if (needed := (weighted * self.highest).bit_length()) <= LARGEST_RING:
            found.append(f"aggregation.bits to {needed}")
        # The most levels whose sum stays below the ring: (2**levels - 1) * weighted < 2**bits.
        if (levels := ((ring - 1) // weighted + 1).bit_length() - 1) >= 1:
            found.append(f"aggregation.levels_bits to {levels}")
        if maximum_weight > 1 and participants * self.highest < ring:
            found.append("aggregation.weights to equal")
        return f"set {', or '.join(found)}" if found else "lower selection.participants"

    def encode(self, delta: npt.NDArray[np.float32], weight: int, generator: np.random.Generator) -> npt.NDArray[Any]:
        """`(d+1,)` ring elements: the weighted levels of `delta` `(d,)`, and the weight.

        `generator` decides the stochastic rounding; `delta` must be finite. Raises `Refusal` for a weight below 1, or
        so large that this update alone exceeds the ring.
        """
        if weight < 1:
            raise Refusal("aggregation.no-weight", f"a weight of {weight} cannot be summed")
        if weight * self.highest >= 1 << self.bits:
            raise Refusal("aggregation.weight-too-large", f"a weight of {weight} exceeds the ring of {self.bits} bits")
        length = len(delta)
        word = word_dtype(self.bits)
        levels = np.empty(length + 1, word)
        scale = self.highest / (2 * self.clip)
        for begin in range(0, length, _CHUNK):
            part = np.clip(delta[begin : begin + _CHUNK], -self.clip, self.clip, dtype=np.float64)
            part += self.clip
            part *= scale
            part += generator.random(len(part))
            np.floor(part, out=part)
            np.minimum(part, self.highest, out=part)
            target = levels[begin : begin + len(part)]
            target[:] = part
            target *= word(weight)  # in integers: the product may have more than the 53 bits of a double
        levels[length] = weight
        meter("quantise.element", length)
        return levels

    def decode(self, total: npt.NDArray[Any], updates: int) -> tuple[npt.NDArray[np.float64], int]:
        """`(d,)` weighted mean and sum of weights from `total`, the `(d+1,)` sum of `updates` encoded updates.

        Raises `RoundAborted` for what no such sum can be. Noise passes with a probability of at most
        1 in 2**levels_bits - 1, and less the longer the update.
        """
        weight = int(total[-1])
        highest_sum = weight * self.highest
        if weight < updates or highest_sum >= 1 << self.bits or int(total[:-1].max(initial=0)) > highest_sum:
            raise RoundAborted("implausible-sum", "a mask was not removed, or an input was no encoded update")
        mean = total[:-1] / weight
        mean *= 2 * self.clip / self.highest
        mean -= self.clip
        return mean, weight
