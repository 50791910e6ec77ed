"""Seed-homomorphic masks from Ring-LWE: a key of 4,096 small numbers gives a mask of any length.

R_q is Z_q[X] / (X**4096 + 1), q the product of three primes just below 2**31 (93 bits). Polynomials a_1, a_2, ... of
R_q are public and uniform; a key s and the errors e_j have discrete Gaussian coefficients. The mask is a_j s + e_j. A
sum of masks is the mask of the sum of keys, up to the sum of the errors: the sum of keys alone suffices to remove a sum
of masks. This is the LWE-based seed-homomorphic PRG of Karthikeyan and Polychroniadou, OPA: One-shot Private
Aggregation with Single Client Interaction (arXiv 2410.22303), in the ring of Willow (Bell-Clark et al., CRYPTO 2025).

**Hardness.** The party that sums learns the sum of keys and, with the messages, the sum of errors: one linear hint on
each key and error, hidden by those of all other honest clients. This is Hint-Ring-LWE; two honest clients in a sum are
assumed. An estimate of the primal attack is in tests/crypto/test_ring_lwe_hardness.py.

**Not claimed.** Nothing here runs in constant time, and no party proves that a key or an error is small.
"""

import functools
from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt

from testbed.crypto import prf
from testbed.crypto.masks import STREAM_SLACK, key_stream
from testbed.crypto.negacyclic_ntt import DEGREE, Limbs, Residues, transform

# Below 2**31 and 1 modulo 8,192, as `negacyclic_ntt` requires.
PRIMES = (2147377153, 2147352577, 2147295233)
MODULUS = PRIMES[0] * PRIMES[1] * PRIMES[2]
# Hint-Ring-LWE is no easier than Ring-LWE with deviation sigma_0, 1 / sigma_0**2 = 2 (1 / sigma**2 + 1 / sigma**2);
# the hint's noise is that of one other honest client (Kim, Lee, Seo, Song, Toward Practical Lattice-Based Proof of
# Knowledge from Hint-MLWE, CRYPTO 2023, Theorem 1, with B = 1): 6.4 gives sigma_0 = 3.2. The theorem asks for a sigma_0
# that smooths the integers; the advantage that it loses is about 2**-100 here.
DEVIATION = 6.4
"""Sigma: a coefficient is x with probability in proportion to exp(-x**2 / (2 sigma**2))."""
# Homomorphic Encryption Security Standard (Albrecht et al., version 1.1, Table 1), for degree 4,096, sigma_0 = 3.2 and
# ternary keys (the keys here are wider). At 192 bits of security it allows 75 bits; q has 93.
STANDARD_LOG_MODULUS = 109
"""The most bits of q at 128 bits of classical security and this degree, by the standard's table."""

# Cells decide more than 99 % of the numbers by one look-up; the others take a binary search.
_CELL_BITS = 14
_CHUNK_BYTES = 1 << 17
_AT_ONCE = 4  # polynomials transformed together: they fit a core's cache


def _distribution() -> tuple[int, npt.NDArray[np.uint64]]:
    """Return the largest value, and the `(2 * largest,)` ascending bounds, in units of 2**-64, between the values."""
    with localcontext() as context:
        context.prec = 60
        # 6.4 itself, not the double next to it: the table is the same on every machine.
        variance = Decimal(repr(DEVIATION)) ** 2
        weights = {x: (-Decimal(x * x) / (2 * variance)).exp() for x in range(-200, 201)}
        whole = sum(weights.values())
        upto, bounds = Decimal(0), {}
        for x, weight in weights.items():
            upto += weight
            bounds[x] = int((upto / whole * 2**64).to_integral_value())
    largest = max(x for x in range(200) if bounds[x] > bounds[x - 1])
    return largest, np.array([bounds[x] for x in range(-largest, largest)], np.uint64)


LARGEST, _BOUNDS = _distribution()


@functools.cache
def _cells() -> tuple[npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
    """Return, by the upper bits of a number, its value and whether its other bits may change the value."""
    first = np.arange(1 << _CELL_BITS, dtype=np.uint64) << np.uint64(64 - _CELL_BITS)
    last = first | np.uint64((1 << 64 - _CELL_BITS) - 1)
    lowest, highest = (np.searchsorted(_BOUNDS, ends, side="right") for ends in (first, last))
    return (lowest - LARGEST).astype(np.int8), lowest != highest


def gaussian(seed: bytes, count: int) -> npt.NDArray[np.int8]:
    """Return discrete Gaussian integers, each from 64 bits of the seed's AES-256-CTR stream: exact up to 2**-64.

    Args:
        seed: 32 bytes.
        count: number of integers.

    Returns:
        `(count,)` int8.

    Raises:
        InvalidKey: the seed is not 32 bytes long.
    """
    next_chunk = key_stream(seed)
    stream = np.empty(_CHUNK_BYTES + STREAM_SLACK, np.uint8)
    numbers = stream[:_CHUNK_BYTES].view("<u8")
    values, undecided = _cells()
    integers = np.empty(count, np.int8)
    for begin in range(0, count, len(numbers)):
        target = integers[begin : begin + len(numbers)]
        next_chunk(stream, 8 * len(target))
        some = numbers[: len(target)]
        cells = (some >> np.uint64(64 - _CELL_BITS)).astype(np.intp)
        target[:] = values[cells]
        at = np.flatnonzero(undecided[cells])
        target[at] = np.searchsorted(_BOUNDS, some[at], side="right") - LARGEST
    return integers


def uniform(seed: bytes, count: int, prime: int) -> npt.NDArray[np.uint32]:
    """Return uniform numbers below a prime of 31 bits: upper bits of AES-256-CTR words, rejecting larger ones.

    Args:
        seed: 32 bytes.
        count: number of integers.
        prime: of 31 bits.

    Returns:
        `(count,)` uint32.
    """
    next_chunk = key_stream(seed)
    stream = np.empty(_CHUNK_BYTES + STREAM_SLACK, np.uint8)
    words = stream[:_CHUNK_BYTES].view("<u4")
    integers, filled = np.empty(count, np.uint32), 0
    while filled < count:
        next_chunk(stream, _CHUNK_BYTES)
        halves = words >> np.uint32(1)  # primes are just below 2**31, so few of these are rejected
        fitting = halves[halves < prime][: count - filled]
        integers[filled : filled + len(fitting)] = fitting
        filled += len(fitting)
    return integers


@functools.lru_cache(maxsize=2)
def public_polynomials(seed: bytes, count: int) -> tuple[Residues, ...]:
    """Return the values of a_1 to a_count by prime, `(count, 4096)` each; all parties of a round have the same.

    Args:
        seed: 32 public bytes, of one round.
        count: number of polynomials.
    """
    by_prime = []
    for number, prime in enumerate(PRIMES):
        integers = uniform(prf.evaluate(seed, number.to_bytes(8, "big")), count * DEGREE, prime)
        # Uniform values belong to a uniform polynomial, so no transform is needed.
        values = transform(prime).centred(integers.astype(np.int64)).reshape(count, DEGREE)
        values.setflags(write=False)
        by_prime.append(values)
    return tuple(by_prime)


def products(key: npt.NDArray[np.int64], seed: bytes, length: int) -> npt.NDArray[np.uint32]:
    """Return the first coefficients of a_1 s, a_2 s, ..., modulo each of the primes: `(3, length)`.

    Args:
        key: s, `(4096,)`; or a sum of keys.
        seed: of the public polynomials.
        length: number of coefficients.
    """
    public = public_polynomials(seed, -(-length // DEGREE))
    coefficients = np.empty((len(PRIMES), length), np.uint32)
    for row, (prime, values) in enumerate(zip(PRIMES, public, strict=True)):
        of_prime = transform(prime)
        limbs = Limbs.of(of_prime.forward(of_prime.centred(key)[None]))
        for first in range(0, len(values), _AT_ONCE):
            made = of_prime.inverse(of_prime.product(values[first : first + _AT_ONCE], limbs))
            target = coefficients[row, first * DEGREE : first * DEGREE + made.size]
            target[:] = of_prime.canonical(made.reshape(-1)[: len(target)])
    return coefficients
