"""Encoding of updates as ring elements that take noise, and decoding of their sum.

Kairouz, Liu, Steinke, The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation, arXiv
2102.06387, Algorithms 1 and 2.

A client clips its update in L2, rotates it, scales it to integer steps and rounds it up or down at random, repeatedly,
until its norm meets `squared_norm_bound`. Then it adds its noise (`sampling`), modulo the ring. The server centres the
sum, scales and rotates it back, and divides by the number of updates.

The rotation is random signs, then the Walsh-Hadamard transform. It spreads an update evenly over all coordinates, so
that none is much larger than the others and the sum fits a small ring: Suresh, Yu, Kumar, McMahan, Distributed Mean
Estimation with Limited Communication, arXiv 1611.00429, section 3.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import ceil, exp, frexp, log, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats
from testbed.crypto.masks import word_dtype
from testbed.emulation.compute.cost import meter
from testbed.errors import RoundAborted
from testbed.messages import signed_content
from testbed.privacy.accounting import squared_norm_bound
from testbed.privacy.sampling import CHUNK, Integers, words

_DOMAIN = b"testbed/privacy/rotation/v1"
# One small matrix product for each five bits of the index, instead of one pass over the vector for each bit.
_GROUP_BITS = 5
_COLUMNS = 256  # 32 x 32 x 256: BLAS uses one thread for products of this size, and they stay in the cache


def padded(dimension: int) -> int:
    """Return D, the smallest power of two that is at least d: the length of a rotated update.

    Example:
        >>> padded(1000)
        1024
    """
    return 1 << (dimension - 1).bit_length()


def rotation_seed(experiment_id: bytes, round_number: int) -> bytes:
    """Return the 32 public bytes from which the signs of a round are derived.

    Args:
        experiment_id: 16 bytes.
        round_number: the round, from 1.
    """
    # The signs are public: server and clients derive them without a message.
    return hashlib.sha256(_DOMAIN + signed_content(experiment_id, round_number)).digest()


def flip_signs(vector: Floats, seed: bytes) -> None:
    """Flip the sign of each coordinate with a 1 bit in the seed's key stream, in place.

    Args:
        vector: `(D,)` float64.
        seed: 32 bytes, see `rotation_seed`.
    """
    for number, part in enumerate(words(seed, -(-len(vector) // 64))):
        flat = np.unpackbits(part.astype("<u8", copy=False).view(np.uint8), bitorder="little")
        begin = number * len(flat)
        target = vector[begin : begin + len(flat)]
        np.multiply(target, 1.0 - 2.0 * flat[: len(target)], out=target)


def hadamard(vector: Floats) -> Floats:
    """Return the Walsh-Hadamard transform of a vector, in Sylvester's order and not normalised.

    Applied twice, the transform gives D times the vector.

    Args:
        vector: `(D,)` float64; D is a power of two.

    Raises:
        ValueError: if D is not a power of two.

    Example:
        >>> hadamard(np.array([1.0, 2.0])).tolist()
        [3.0, -1.0]
    """
    length = len(vector)
    if length & (length - 1) or not length:
        raise ValueError(f"hadamard needs a power of two of coordinates, not {length}")
    bits = length.bit_length() - 1
    groups = -(-bits // _GROUP_BITS)
    buffers = (np.empty_like(vector), np.empty_like(vector))
    here, before = vector, 1
    for group in range(groups):
        size = 1 << (bits * (group + 1) // groups - bits * group // groups)
        after = length // (before * size)
        out = buffers[group % 2]
        if after == 1:
            shape: tuple[int, ...] = (-1, min(before, _COLUMNS), size)
            np.matmul(here.reshape(shape), _matrix(size), out=out.reshape(shape))
        else:
            shape = (before, size, -1, min(after, _COLUMNS))
            np.matmul(_matrix(size), here.reshape(shape).swapaxes(1, 2), out=out.reshape(shape).swapaxes(1, 2))
        here, before = out, before * size
    return here.copy() if here is vector else here


@lru_cache
def _matrix(size: int) -> Floats:
    """Return Sylvester's matrix of this size, read-only."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    matrix.setflags(write=False)
    return matrix


CONDITIONAL_BIAS = exp(-0.5)
"""The paper's beta: at least 1 - beta of all roundings are short enough."""

# Coordinates are integers of at most 52 bits in doubles, so the transform is exact in any order of summation: no sum of
# absolute values exceeds 2**53.
_EXACT_BITS = 52
_WRAPPING_BITS = 40  # a coordinate of a round's sum leaves the ring with a probability of at most 2**-40


@dataclass(frozen=True)
class Encoding:
    """The encoding of updates, the same for all clients of an experiment.

    Attributes:
        dimension: d, the parameters of the model.
        clip: largest L2 norm of an update; a longer one is shortened to it.
        scale: the clip in integer steps.
        bits: ring width; sums are taken modulo 2**bits.
        bias: the paper's beta, above 0 and below 1; 0 rounds unconditionally.

    Example:
        >>> encoding = Encoding(dimension=3, clip=1.0, scale=2.0**15, bits=32, bias=0.6)
        >>> update = np.array([0.25, -0.5, 0.75], np.float32)
        >>> elements = encoding.encode(update, rotation=bytes(32), rounding=bytes(31) + b"1")
        >>> mean, updates = encoding.decode(elements, 1, rotation=bytes(32))
        >>> mean.round(3).tolist(), updates
        ([0.25, -0.5, 0.75], 1)
    """

    dimension: int
    clip: float
    scale: float
    bits: int
    bias: float = CONDITIONAL_BIAS

    @property
    def length(self) -> int:
        """D, the coordinates of a rotated update: d, padded to a power of two."""
        return padded(self.dimension)

    def encode(self, delta: npt.NDArray[np.float32], rotation: bytes, rounding: bytes) -> npt.NDArray[Any]:
        """Encode an update as ring elements, without noise.

        Args:
            delta: `(d,)` float32, finite.
            rotation: the round's `rotation_seed`.
            rounding: 32 secret bytes, for this update alone.

        Returns:
            `(D+1,)` ring elements: the steps, and a 1 that counts the update.
        """
        fraction = _EXACT_BITS - frexp(self.scale)[1]  # fractional bits of a step
        fixed = self.rotated(delta, fraction, rotation).astype(np.int64)
        bound = squared_norm_bound(self.scale, self.length, self.bias)
        for attempt in count():
            steps = rounded(fixed, fraction, hashlib.sha256(rounding + attempt.to_bytes(4, "big")).digest())
            meter("round.element", len(steps))
            # The sensitivity of the mechanism is this bound, exactly.
            if int(steps @ steps) <= bound:
                break
        encoded = np.empty(self.length + 1, word_dtype(self.bits))
        encoded[:-1] = steps  # two's complement: negative steps are counted down from the ring's end
        # Summed without noise: a sum with the wrong count has a mask left in it.
        encoded[-1] = 1
        return encoded

    def rotated(self, delta: npt.NDArray[np.float32], fraction: int, rotation: bytes) -> Floats:
        """Return the rotated update `delta` `(d,)` in steps, times 2**fraction: `(D,)` integers."""
        # numpy's order of summation decides the last bit, so bytes are equal only with the same numpy.
        norm = sqrt(float(np.square(delta, dtype=np.float64).sum()))
        factor = self.scale * 2.0**fraction / sqrt(self.length) / max(norm, self.clip)
        vector = np.zeros(self.length)
        np.multiply(delta, factor, out=vector[: self.dimension], dtype=np.float64)
        np.rint(vector, out=vector)
        flip_signs(vector, rotation)
        meter("rotate.element", self.length)
        return hadamard(vector)

    def decode(self, total: npt.NDArray[Any], updates: int, rotation: bytes) -> tuple[npt.NDArray[np.float64], int]:
        """Decode a sum of encoded updates.

        A mask that was not removed goes unnoticed with probability 2**-bits.

        Args:
            total: `(D+1,)` the sum, in the ring.
            updates: number of updates in it.
            rotation: the round's `rotation_seed`.

        Returns:
            `(d,)` the mean of the updates, and their number.

        Raises:
            RoundAborted: if the count in the sum differs from `updates`.
        """
        self.check_count(total, updates)
        vector = hadamard(centred(total[:-1], self.bits))
        flip_signs(vector, rotation)
        meter("rotate.element", self.length)
        mean = vector[: self.dimension]
        mean *= self.clip / (self.scale * sqrt(self.length) * updates)
        return mean, updates

    def check_count(self, total: npt.NDArray[Any], updates: int) -> None:
        """Raise `RoundAborted` if the count in a `(D+1,)` sum of encoded updates differs from `updates`."""
        if int(total[-1]) != updates % (1 << self.bits):
            raise RoundAborted("implausible-sum", "a mask was not removed, or an input was not an encoded update")

    def with_noise(self, total: npt.NDArray[Any], noise: Floats, rotation: bytes) -> npt.NDArray[Any]:
        """Return a sum of encoded updates with noise added in rotated coordinates, rounded to steps.

        Args:
            total: `(D+1,)` the sum, in the ring.
            noise: `(D,)` noise in units of an update, of the padded model; not changed.
            rotation: the round's `rotation_seed`.
        """
        # The noise is added before the sum is centred. So a sum that has left the ring is hidden like any other.
        vector = noise * (self.scale / (self.clip * sqrt(self.length)))
        flip_signs(vector, rotation)
        meter("rotate.element", self.length)
        steps = np.rint(hadamard(vector)).astype(np.int64)
        noisy = total.copy()
        noisy[:-1] += steps.view(np.uint64).astype(total.dtype)
        return noisy

    def bits_needed(self, participants: int, noise_multiplier: float) -> int:
        """Return the smallest ring width that holds the sum of the updates and their noise.

        A coordinate of a round's sum leaves the ring with a probability of at most 2**-40.

        Args:
            participants: number of summed updates.
            noise_multiplier: standard deviation of the noise in the sum over the clip.

        Returns:
            Width in bits.
        """
        # A rotated coordinate of the sum is sub-Gaussian over the random signs (Hoeffding), the noise has Bernstein's
        # tail (see `sampling`), and rounding moves a coordinate by less than 1 per update.
        exponent = log(4 * self.length) + _WRAPPING_BITS * log(2)
        signal = participants * self.scale * min(1.0, sqrt(2 * exponent / self.length))
        variance = (noise_multiplier * self.scale) ** 2
        noise = exponent / 3 + sqrt(exponent**2 / 9 + 2 * exponent * variance)
        return ceil(signal + participants + noise).bit_length() + 1


def rounded(fixed: Integers, fraction: int, seed: bytes) -> Integers:
    """Drop the fractional bits of fixed-point numbers, rounding up or down at random without bias.

    Args:
        fixed: `(D,)` fixed-point numbers.
        fraction: number of fractional bits.
        seed: 32 secret bytes.

    Returns:
        `(D,)` integers.
    """
    steps = np.empty_like(fixed)
    shift = np.uint64(64 - fraction)
    for number, part in enumerate(words(seed, len(fixed))):
        place = slice(number * CHUNK, number * CHUNK + len(part))
        # Uniform fractional bits, then cut: rounds up with the probability of the fraction.
        np.add(fixed[place], (part >> shift).view(np.int64), out=steps[place])
        np.right_shift(steps[place], fraction, out=steps[place])
    return steps


def centred(elements: npt.NDArray[Any], bits: int) -> Floats:
    """Return ring elements as integers from -2**(bits-1) to 2**(bits-1) - 1.

    Args:
        elements: `(D,)` unsigned ring elements.
        bits: ring width.

    Returns:
        `(D,)` float64.

    Example:
        >>> centred(np.array([1, 255], np.uint8), 8).tolist()
        [1.0, -1.0]
    """
    unused = 8 * elements.itemsize - bits
    # Move the ring's sign bit to that of the word; the arithmetic shift back extends it.
    signed = (elements << elements.dtype.type(unused)).view(f"i{elements.itemsize}")
    integers: Floats = np.right_shift(signed, unused).astype(np.float64)
    return integers
