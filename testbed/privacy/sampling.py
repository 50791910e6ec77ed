"""Integer noise from a cryptographic generator: Skellam and the discrete Gaussian, by inversion of exact tables.

- Skellam of variance v, the difference of two Poissons of mean v/2: P(k) = exp(-v) I_k(v). Agarwal, Kairouz, Liu, The
  Skellam Mechanism for Differentially Private Federated Learning, arXiv 2110.04995.
- Discrete Gaussian of parameter sigma**2 = v: P(k) proportional to exp(-k**2 / 2v). Canonne, Kamath, Steinke, The
  Discrete Gaussian for Differential Privacy, arXiv 2004.00010. (Its variance is v from about 1 on, and smaller below.)

A draw is a sign and 127 bits u, read as a number in [0, 1): the magnitude is the number of table entries C_k <= u,
C_k = P(|X| <= k) in steps of 2**-127. The key stream is AES-256-CTR under a 32-byte seed, read as little-endian 64-bit
words. The noise of a seed is the same on every machine.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import isqrt
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from testbed.crypto import require_length
from testbed.emulation.compute.cost import meter

SEED_BYTES = 32
CHUNK = 1 << 15  # words per part: a part and the arrays computed from it stay in the second-level cache

_BLOCK_BYTES = 16
_WORD_BYTES = 8
_ZEROS = memoryview(bytes(CHUNK * _WORD_BYTES))
# Counters from here on are a separate stream: `words` never counts so far.
_BESIDE = 1 << 127

Words = npt.NDArray[np.uint64]


def words(seed: bytes, count: int) -> Iterator[Words]:
    """Yield the first words of a seed's key stream, `CHUNK` at a time (fewer in the last part).

    Each part is overwritten by the next.

    Args:
        seed: 32 bytes.
        count: number of words.

    Raises:
        InvalidKey: if the seed is not 32 bytes long.
    """
    require_length(seed, SEED_BYTES, "a key stream's seed")
    encryptor = Cipher(AES(seed), CTR(bytes(_BLOCK_BYTES))).encryptor()
    stream = np.empty(CHUNK * _WORD_BYTES + _BLOCK_BYTES, np.uint8)  # the cipher asks for a block of slack
    words = stream[: CHUNK * _WORD_BYTES].view("<u8")
    for begin in range(0, count, CHUNK):
        size = min(CHUNK, count - begin)
        encryptor.update_into(_ZEROS[: size * _WORD_BYTES], stream.data)
        yield words[:size]


def word_beside(seed: bytes, position: int) -> int:
    """Return one more word of 64 bits for a position, from another stream than that of `words`.

    Args:
        seed: 32 bytes, the key of AES-256.
        position: index of the number that needs more bits.
    """
    encryptor = Cipher(AES(seed), CTR((_BESIDE + position).to_bytes(_BLOCK_BYTES, "big"))).encryptor()
    return int.from_bytes(encryptor.update(bytes(_WORD_BYTES)), "little")


Mechanism = Literal["skellam", "discrete-gaussian"]

LARGEST_VARIANCE = 2.0**32
"""Tables of larger variances would not fit in a cache; coarser steps serve as well."""
SMALLEST_VARIANCE = 2.0**-32

_PRECISION = 256  # fractional bits while a table is computed
# Fractional bits in the table. Entries are off by less than 2**-120 (the tail is cut where less than 2**-130 is left):
# d coordinates of n clients in T rounds are within d n T times the number of entries times 2**-120 in total variation,
# which is added to delta (times 1 + exp(epsilon)): for d = 2**24, n T = 2**20 and 2**19 entries that is 2**-57.
_RESOLUTION = 127
_BUCKETS_PER_DEVIATION = 64  # of the guide: about one draw in twelve has to be searched for
_MOST_BUCKETS_BITS = 19
# One word of the key stream is the sign and the upper 63 bits. The lower 64 bits decide once in 2**63 per entry, so
# they are only made when they are needed.
_SIGN, _MAGNITUDE_BITS = np.uint64(1), 63

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NoiseTable:
    """The table of P(|X| <= k) of one distribution, computed by `table_of`.

    Attributes:
        upper, lower: `(K,)` uint64, the upper 63 and lower 64 bits of the entries; the last entry is 1 (above every
            draw).
        guide: `(2**b,)` int32, the magnitude by the upper b bits of a draw, or -1 where those bits do not decide.
    """

    upper: npt.NDArray[np.uint64]
    lower: npt.NDArray[np.uint64]
    guide: npt.NDArray[np.int32]

    def magnitudes(self, draws: npt.NDArray[np.uint64], further: Callable[[int], int]) -> npt.NDArray[np.int32]:
        """Return the magnitude of each draw: the number of entries that are at most the draw, `(m,)`.

        Args:
            draws: `(m,)` the upper 63 bits.
            further: returns the lower 64 bits of the draw at a position of `draws`.
        """
        shift = np.uint64(_MAGNITUDE_BITS - (len(self.guide).bit_length() - 1))
        magnitudes = self.guide.take((draws >> shift).view(np.int64))
        (open_,) = np.nonzero(magnitudes < 0)
        if len(open_):
            undecided = draws[open_]
            least = self.upper.searchsorted(undecided)  # entries with upper bits below those of the draw
            magnitudes[open_] = least
            for tie in np.flatnonzero(self.upper[least] == undecided).tolist():
                position = int(open_[tie])
                magnitudes[position] = self._beyond_ties(int(least[tie]), int(undecided[tie]), further(position))
        return magnitudes

    def _beyond_ties(self, entry: int, draw: int, lower: int) -> int:
        """Return the first entry above a draw, from `entry` on; the upper bits of both are equal."""
        while int(self.upper[entry]) == draw and int(self.lower[entry]) <= lower:
            entry += 1
        return entry

    @property
    def masses(self) -> list[Fraction]:
        """P(|X| = k) for each magnitude k, exactly as it is drawn."""
        entries = [int(high) << 64 | int(low) for high, low in zip(self.upper, self.lower, strict=True)]
        return [
            Fraction(after - before, 1 << _RESOLUTION) for before, after in zip([0, *entries], entries, strict=False)
        ]


@lru_cache(maxsize=64)
def table_of(mechanism: Mechanism, variance: float) -> NoiseTable:
    """Compute the table of a distribution, once in a process.

    Computing takes a microsecond and 16 bytes for each entry; 13.5 standard deviations have entries.

    Args:
        mechanism: Skellam or discrete Gaussian.
        variance: variance of a Skellam, or sigma**2 of a discrete Gaussian.

    Raises:
        ValueError: if the variance is out of range.
    """
    if not SMALLEST_VARIANCE <= variance <= LARGEST_VARIANCE:
        raise ValueError(f"noise variance: {variance:g}; must be from {SMALLEST_VARIANCE:g} to {LARGEST_VARIANCE:g}")
    exact = Fraction(variance)
    weights = (_skellam if mechanism == "skellam" else _discrete_gaussian)(exact, _last(exact))
    weights[1:] = [2 * weight for weight in weights[1:]]  # both signs
    # Long integers: each entry is right to its last bits.
    below = list(accumulate(weights))
    whole = below[-1]
    entries = [(partial << _RESOLUTION) // whole for partial in below]
    upper = np.array([entry >> 64 for entry in entries], np.uint64)
    lower = np.array([entry & (2**64 - 1) for entry in entries], np.uint64)
    return NoiseTable(upper, lower, _guide(upper, exact))


def _last(variance: Fraction) -> int:
    """Return the largest magnitude; a probability of less than 2**-130 is beyond it."""
    # Bernstein's inequality, P(X >= k) <= exp(-k**2 / 2(v + k/3)), holds for both, and 91 is above 131 ln 2.
    up = -(-variance.numerator // variance.denominator)
    return 32 + isqrt(921 + 182 * up)


def _skellam(variance: Fraction, last: int) -> list[int]:
    """Return numbers proportional to P(0), ..., P(last), from the top down (Miller)."""
    # I_{k-1}(v) = I_{k+1}(v) + (2k/v) I_k(v). All terms are positive, so nothing cancels. Taking I_{last+1} for 0
    # changes P(k) by P(last)**2 / P(k).
    twice_inverse = (2 << _PRECISION) * variance.denominator // variance.numerator
    above, here = 0, 1 << 192
    weights = [here]
    for k in range(last, 0, -1):
        above, here = here, above + (k * here * twice_inverse >> _PRECISION)
        weights.append(here)
    return weights[::-1]


def _discrete_gaussian(variance: Fraction, last: int) -> list[int]:
    """Return numbers proportional to P(0), ..., P(last): each is the one before times q**(2k-1), q = exp(-1/2v)."""
    # `decimal`'s exp is correctly rounded on all machines: no floating-point operation decides an entry.
    context = Context(prec=90)
    exponent = context.divide(Decimal(-variance.denominator), Decimal(2 * variance.numerator))
    q = int(context.multiply(context.exp(exponent), Decimal(1 << _PRECISION)))
    square = q * q >> _PRECISION
    here, ratio = 1 << _PRECISION, q
    weights = [here]
    for _ in range(last):
        here = here * ratio >> _PRECISION
        ratio = ratio * square >> _PRECISION
        weights.append(here)
    return weights


def _guide(upper: npt.NDArray[np.uint64], variance: Fraction) -> npt.NDArray[np.int32]:
    deviation = isqrt(int(variance)) + 1
    bits = min(_MOST_BUCKETS_BITS, (_BUCKETS_PER_DEVIATION * deviation - 1).bit_length())
    begins = np.arange((1 << bits) + 1, dtype=np.uint64) << np.uint64(_MAGNITUDE_BITS - bits)
    below = upper.searchsorted(begins).astype(np.int32)  # entries below where each bucket begins
    return np.where(below[:-1] == below[1:], below[:-1], np.int32(-1)).astype(np.int32)


def add_noise(accumulator: npt.NDArray[Any], mechanism: Mechanism, variance: float, seed: bytes, sign: int = 1) -> None:
    """Add the noise of a seed to a vector in place, or remove it again.

    Args:
        accumulator: `(m,)` integers; the noise is added modulo their width (cut the sum to the ring's bits
            afterwards).
        mechanism: distribution of the noise.
        variance: variance of each coordinate (sigma**2 of a discrete Gaussian).
        seed: 32 secret bytes, for this vector alone.
        sign: 1, or -1 to remove the noise.

    Raises:
        InvalidKey: if the seed is not 32 bytes long.
        ValueError: if the variance is out of range.

    Example:
        >>> vector = np.arange(3)
        >>> add_noise(vector, "discrete-gaussian", variance=25.0, seed=bytes(32))
        >>> add_noise(vector, "discrete-gaussian", variance=25.0, seed=bytes(32), sign=-1)  # remove the same noise
        >>> vector.tolist()
        [0, 1, 2]
    """
    table = table_of(mechanism, variance)
    combine = np.add if sign == 1 else np.subtract
    for number, part in enumerate(words(seed, len(accumulator))):
        begin = number * CHUNK

        def further(position: int, begin: int = begin) -> int:
            return word_beside(seed, begin + position)

        magnitudes = table.magnitudes(part >> _SIGN, further)
        negative = -(part & _SIGN).astype(np.int32)  # 0 or -1
        # Negation in two's complement, without a branch: x ^ -1 is -x - 1.
        magnitudes ^= negative
        magnitudes -= negative
        target = accumulator[begin : begin + len(part)]
        combine(target, magnitudes.astype(accumulator.dtype), out=target)
    meter("noise.element", len(accumulator))


def noise(mechanism: Mechanism, variance: float, seed: bytes, length: int) -> Integers:
    """Return the noise of a seed.

    Args:
        mechanism, variance, seed: see `add_noise`.
        length: number of coordinates.

    Returns:
        `(length,)` int64.

    Example:
        >>> values = noise("skellam", variance=100.0, seed=bytes(32), length=10_000)
        >>> bool(abs(values.var() / 100 - 1) < 0.05)
        True
    """
    vector = np.zeros(length, np.int64)
    add_noise(vector, mechanism, variance, seed)
    return vector
