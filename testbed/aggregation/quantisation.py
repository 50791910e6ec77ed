"""Mapping from float updates to levels that are summed in a ring, and back.

A coordinate of an update is clipped to [-clip, clip] and rounded, up or down at random so that it is unbiased, to one
of 2**levels_bits levels. The client multiplies by its weight and appends the weight as one more element. So the server
learns the sum of weights and nothing else about them.
"""

import threading
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from testbed.crypto.masks import STREAM_SLACK, key_stream, word_dtype
from testbed.emulation.compute.cost import meter
from testbed.errors import ExperimentError, Refusal, RoundAborted

LARGEST_RING = 64  # bits
# From an AES-256-CTR key stream, which takes a tenth of the time of a double of numpy's Philox. Coordinates are
# resolved to 1/65,536 of a level, so the bias is at most half of that.
_COIN_BITS = 16
_CHUNK = 1 << 17  # elements with coins from one call of the key stream; smaller chunks make threads wait


class _RoundingBuffers(threading.local):
    """Buffers of each thread for one chunk: allocating them per chunk would cost more than the arithmetic."""

    def __init__(self) -> None:
        self.values = np.empty(_CHUNK, np.float64)
        self.coins = np.empty(_CHUNK * _COIN_BITS // 8 + STREAM_SLACK, np.uint8)
        self.levels = np.empty(_CHUNK, np.uint64)


_buffers = _RoundingBuffers()


@dataclass(frozen=True)
class Quantisation:
    """Mapping from updates to levels, the same for all clients of an experiment.

    Attributes:
        clip: largest absolute value of a coordinate.
        levels_bits: bits per coordinate before summing.
        bits: ring width; sums are taken modulo 2**bits.
        most_bits: largest value of the key `bits`; 0: there is no such key.

    Example:
        >>> quantisation = Quantisation(clip=1.0, levels_bits=16, bits=32)
        >>> updates = np.array([[0.25, -0.5], [0.75, 0.0]], np.float32)
        >>> coins = [bytes(32), bytes(31) + b"2"]  # from the operating system in a real run
        >>> total = sum(quantisation.encode(update, weight=1, coins=own) for update, own in zip(updates, coins))
        >>> mean, weight = quantisation.decode(total, updates=2)
        >>> mean.round(3).tolist(), weight
        ([0.5, -0.25], 2)
    """

    most_bits: ClassVar[int] = LARGEST_RING
    clip: float
    levels_bits: int
    bits: int

    @property
    def highest(self) -> int:
        """The highest level."""
        return (1 << self.levels_bits) - 1

    @property
    def modulus(self) -> int:
        """Modulus of the sums."""
        return 1 << self.bits

    @property
    def limit(self) -> str:
        """The limit of a sum, for a message."""
        return f"the ring has {self.bits}"

    def check(self, participants: int, maximum_weight: int) -> None:
        """Check that a sum of weighted updates fits the modulus.

        Args:
            participants: most updates in a sum.
            maximum_weight: largest weight of an update.

        Raises:
            ExperimentError: it does not fit; the message says which keys to change.
        """
        weighted = participants * maximum_weight
        if weighted * self.highest < self.modulus:
            return
        needed, changes = (weighted * self.highest).bit_length(), []
        if needed <= self.most_bits:
            changes.append(f"aggregation.bits to {needed}")
        # The most levels with a sum below the modulus: (2**levels - 1) * weighted < modulus.
        if (levels := ((self.modulus - 1) // weighted + 1).bit_length() - 1) >= 1:
            changes.append(f"aggregation.levels_bits to {levels}")
        if maximum_weight > 1 and participants * self.highest < self.modulus:
            changes.append("aggregation.weights to equal")
        raise ExperimentError(
            f"aggregation.{'bits' if self.most_bits else 'levels_bits'}: {participants} participants with weights up "
            f"to {maximum_weight} at {self.levels_bits} bits need {needed} bits, {self.limit}; "
            + (f"set {', or '.join(changes)}" if changes else "lower selection.participants")
        )

    def encode(self, delta: npt.NDArray[np.float32], weight: int, coins: bytes) -> npt.NDArray[Any]:
        """Return the weighted levels of an update, and its weight, as ring elements.

        Args:
            delta: `(d,)` float32, finite.
            weight: number of times that the update counts.
            coins: 32 bytes, for this update alone, that decide the rounding.

        Returns:
            `(d+1,)` ring elements.

        Raises:
            Refusal: the weight is below 1, or so large that this update alone exceeds the ring.
        """
        elements: npt.NDArray[Any] = np.asarray(self.quantised(delta, weight, coins))
        return elements

    def quantised(self, delta: npt.NDArray[np.float32], weight: int, coins: bytes) -> "Quantised":
        """Return the result of `encode`, computed when it is needed; `delta` must not change until then."""
        self.check_weight(weight)
        meter("quantise.element", len(delta))
        return Quantised(self, delta, weight, coins)

    def check_weight(self, weight: int) -> None:
        """Raise `Refusal` for a weight below 1, or so large that a single update exceeds the ring."""
        if weight < 1:
            raise Refusal("aggregation.no-weight", f"a weight of {weight}; must be at least 1")
        if weight * self.highest >= self.modulus:
            raise Refusal("aggregation.weight-too-large", f"a weight of {weight} exceeds the ring of {self.bits} bits")

    def decode(self, total: npt.NDArray[Any], updates: int) -> tuple[npt.NDArray[np.float64], int]:
        """Return the weighted mean and the sum of weights.

        Noise instead of a sum passes with a probability of at most 1 in 2**levels_bits - 1, and less for longer
        updates.

        Args:
            total: `(d+1,)` sum of encoded updates.
            updates: number of updates in the sum.

        Returns:
            `(d,)` float64 mean, and the weight.

        Raises:
            RoundAborted: `total` cannot be such a sum.
        """
        weight = int(total[-1])
        # A sum with a mask left in it is uniform noise, and no signature shows it. But no coordinate of an honest sum
        # exceeds the sum of weights times the highest level.
        highest_sum = weight * self.highest
        if weight < updates or highest_sum >= self.modulus or int(total[:-1].max(initial=0)) > highest_sum:
            raise RoundAborted("implausible-sum", "a mask was not removed, or an input was not an encoded update")
        mean = total[:-1] / weight
        mean *= 2 * self.clip / self.highest
        mean -= self.clip
        return mean, weight


@dataclass(frozen=True, eq=False)
class Quantised:
    """An update's `(d+1,)` ring elements, computed when they are needed (`testbed.network.masked_vectors.Elements`).

    Attributes:
        quantisation: the mapping.
        delta: `(d,)` the update, finite.
        weight: number of times that the update counts.
        coins: 32 bytes that decide the rounding.
    """

    quantisation: Quantisation
    delta: npt.NDArray[np.float32]
    weight: int
    coins: bytes

    @property
    def dtype(self) -> np.dtype[Any]:
        """Unsigned integer type of the ring."""
        return np.dtype(word_dtype(self.quantisation.bits))

    def __len__(self) -> int:
        return len(self.delta) + 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the `(d+1,)` elements in newly allocated memory."""
        elements = np.full(len(self), 0, self.dtype)  # np.zeros: each page then stops the other cores when written to
        self.add_to(elements)
        return elements if dtype is None else elements.astype(dtype, copy=False)

    def add_to(self, total: npt.NDArray[Any]) -> None:
        """Add the elements to `(d+1,)` `total` in place, modulo the range of its dtype.

        A level is floor(exact + coin), where the coin is uniform in [0, 1). It is computed in units of a coin's last
        bit: the exact value is rounded to the nearest integer in these units, and nothing else is rounded.
        """
        mapping = self.quantisation
        unit = float(1 << _COIN_BITS)
        # 0.5 rounds to the nearest where the conversion cuts off the fraction.
        scale, middle, top = (
            mapping.highest / (2 * mapping.clip) * unit,
            mapping.highest / 2 * unit + 0.5,
            mapping.highest * unit + 0.5,
        )
        # Words of 32 bits are faster, where they hold a level and a coin.
        work = _buffers.levels if mapping.levels_bits + _COIN_BITS > 32 else _buffers.levels.view(np.uint32)
        next_coins, factor = key_stream(self.coins), total.dtype.type(self.weight)
        for begin in range(0, len(self.delta), _CHUNK):
            part = self.delta[begin : begin + _CHUNK]
            exact, levels = _buffers.values[: len(part)], work[: len(part)]
            next_coins(_buffers.coins, len(part) * _COIN_BITS // 8)
            np.multiply(part, scale, out=exact, dtype=np.float64)
            exact += middle
            np.clip(exact, 0, top, out=exact)
            levels[:] = exact  # cuts off the fraction
            levels += _buffers.coins[: 2 * len(part)].view("<u2")
            levels >>= _COIN_BITS
            target = total[begin : begin + len(part)]
            elements = levels if levels.dtype == total.dtype else levels.astype(total.dtype)
            elements *= factor  # in integers: the product may have more than the 53 bits of a double
            target += elements
        total[len(self.delta)] += factor
