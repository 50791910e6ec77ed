"""Vectors and matrices over the integers modulo 2**32 - 5, the largest prime below 2**32.

Protocols that decode a code over the masks (LightSecAgg: So et al., MLSys 2022, arXiv 2109.14236) need a field; the
integers modulo 2**32 are none. An element is a uint32 below the prime.

A matrix product uses exact double arithmetic, at BLAS speed.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.crypto.masks import STREAM_SLACK, key_stream

PRIME = 2**32 - 5
ELEMENT_BYTES = 4

Elements = npt.NDArray[np.uint32]

_LIMB = 16  # bits
# Products of a limb and an element, each within 2**46: a sum of 120 stays within 2**53 - 2**49, so doubles are exact in
# any order of summation, with 2**49 to spare.
_EXACT = 120
_AT_ONCE = 1 << 15  # elements summed or reduced at once: they fit a core's cache
_TOGETHER = 1 << 16  # elements of a product computed at once, likewise
_CHUNK_BYTES = 1 << 18


def reduce_words(words: npt.NDArray[np.uint64]) -> Elements:
    """Return `words` modulo the prime; any shape."""
    flat = words.reshape(-1)
    result = np.empty(len(flat), np.uint32)
    for begin in range(0, len(flat), _AT_ONCE):
        result[begin : begin + _AT_ONCE] = _reduced(flat[begin : begin + _AT_ONCE])
    return result.reshape(words.shape)


def _reduced(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    # Division by a constant: faster than the remainder, and than folding the high bits.
    multiples = words // np.uint64(PRIME)
    multiples *= np.uint64(PRIME)
    return words - multiples


def total(vectors: Sequence[Elements]) -> Elements:
    """Return the sum of `(d,)` vectors; at most 2**32 of them."""
    result = np.empty(len(vectors[0]), np.uint32)
    for begin in range(0, len(result), _AT_ONCE):
        summed = vectors[0][begin : begin + _AT_ONCE].astype(np.uint64)
        for vector in vectors[1:]:
            summed += vector[begin : begin + _AT_ONCE]
        result[begin : begin + _AT_ONCE] = _reduced(summed)
    return result


def difference(left: Elements, right: Elements) -> Elements:
    """Return `left - right`.

    Args:
        left: `(d,)` elements.
        right: `(d,)` elements.
    """
    return total([left, np.uint32(PRIME) - right])


def product(left: Elements, right: Elements) -> Elements:
    """Return the matrix product, `(m, n)`.

    Args:
        left: `(m, k)` elements.
        right: `(k, n)` elements.
    """
    rows, columns = len(left), right.shape[1]
    centred = _centred(left)
    # Rounded instead of cut off: both limbs lie within 2**15 of zero.
    high = np.rint(centred / 2**_LIMB)
    limbs = np.concatenate([high, centred - high * 2**_LIMB])
    result = np.empty((rows, columns), np.uint32)
    at_once = max(1, _TOGETHER // rows)
    for first in range(0, columns, at_once):
        stretch = slice(first, first + at_once)
        factors = _centred(right[:, stretch])
        summed = np.zeros((rows, factors.shape[1]))
        for begin in range(0, len(right), _EXACT):
            part = slice(begin, begin + _EXACT)
            both = limbs[:, part] @ factors[part]
            upper, lower = both[:rows], both[rows:]
            # Reduce before the shift by 16 bits, which would leave the exact range of doubles.
            _near_zero(upper)
            upper *= 2**_LIMB  # within 2**48
            lower += upper
            lower += summed
            _near_zero(lower)
            summed = lower
        summed += np.where(summed < 0, PRIME, 0)
        result[:, stretch] = summed
    return result


def _centred(elements: Elements) -> npt.NDArray[np.float64]:
    """Return the representatives between -2**31 and 2**31."""
    centred = elements.view(np.int32).astype(np.float64)  # 2**32 less from 2**31 on: 5 more is the prime less
    centred += (elements >> np.uint32(31)) * np.uint32(2**32 - PRIME)
    return centred


def _near_zero(values: npt.NDArray[np.float64]) -> None:
    """Replace integers within 2**53 by the nearest to zero that are equal modulo the prime, in place."""
    # Faster than a division.
    multiples = values * (1 / PRIME)
    np.rint(multiples, out=multiples)
    multiples *= PRIME
    values -= multiples


def uniform(seed: bytes, count: int) -> Elements:
    """Return uniform elements: little-endian words of an AES-256-CTR key stream, rejecting those not below the prime.

    Args:
        seed: 32 bytes.
        count: number of elements.

    Returns:
        `(count,)` uint32.

    Raises:
        InvalidKey: the seed is not 32 bytes long.
    """
    next_chunk = key_stream(seed)
    stream = np.empty(_CHUNK_BYTES + STREAM_SLACK, np.uint8)
    words = stream[:_CHUNK_BYTES].view("<u4")
    elements, filled = np.empty(count, np.uint32), 0
    while filled < count:
        next_chunk(stream, _CHUNK_BYTES)
        # Rejection keeps elements uniform; only five of 2**32 words do not fit, so most chunks need no copy.
        fitting = words if int(words.max()) < PRIME else words[words < PRIME]
        some = fitting[: count - filled]
        elements[filled : filled + len(some)] = some
        filled += len(some)
    return elements


def inverse(element: int) -> int:
    """Return the multiplicative inverse; raises `ValueError` for 0.

    Example:
        >>> inverse(2) * 2 % PRIME
        1
    """
    return pow(element, -1, PRIME)


@functools.lru_cache(maxsize=8)
def vandermonde(points: tuple[int, ...], rows: int) -> Elements:
    """Return the powers of n points from exponent 0 on.

    Args:
        points: n integers.
        rows: number of powers.

    Returns:
        `(rows, n)` uint32, read-only.

    Example:
        >>> vandermonde((1, 2), 3).tolist()
        [[1, 1], [1, 2], [1, 4]]
    """
    powers = np.ones((rows, len(points)), np.uint64)
    bases = np.array(points, np.uint64)
    for row in range(1, rows):
        powers[row] = reduce_words(powers[row - 1] * bases)
    matrix: Any = reduce_words(powers)
    # All callers share the cached matrix.
    matrix.setflags(write=False)
    return matrix  # type: ignore[no-any-return]


def interpolation(points: Sequence[int], rows: int) -> Elements:
    """Return the matrix that maps values at n points to the lowest coefficients of a polynomial of degree below n.

    Column c holds the c-th coefficients of the Lagrange polynomials of the points: ``values @ interpolation`` are the
    coefficients. Takes O(n**2) steps.

    Args:
        points: n distinct integers modulo the prime.
        rows: number of coefficients.

    Returns:
        `(n, rows)` uint32.

    Raises:
        ValueError: two points are equal modulo the prime.
    """
    n = len(points)
    whole = [1]  # the product of all (x - point), lowest coefficient first
    for point in points:
        whole = [(low - point * high) % PRIME for low, high in zip([0, *whole], [*whole, 0], strict=True)]
    matrix = np.empty((n, rows), np.uint32)
    for i, point in enumerate(points):
        quotient, carry = [0] * n, 0
        for degree in range(n, 0, -1):  # synthetic division by (x - point)
            carry = (whole[degree] + point * carry) % PRIME
            quotient[degree - 1] = carry
        at_point = 0
        for coefficient in reversed(quotient):
            at_point = (at_point * point + coefficient) % PRIME
        if at_point == 0:
            raise ValueError(f"the point {point} is there twice")
        scale = inverse(at_point)
        matrix[i] = [coefficient * scale % PRIME for coefficient in quotient[:rows]]
    return matrix


def elements_to_bytes(elements: Elements) -> bytes:
    """Return four bytes for each element, little-endian."""
    return elements.astype("<u4", copy=False).tobytes()


def elements_from_bytes(data: bytes) -> Elements | None:
    """Return the elements that `elements_to_bytes` encoded; None if the data encodes no elements."""
    if len(data) % ELEMENT_BYTES:
        return None
    elements = np.frombuffer(data, "<u4").astype(np.uint32, copy=False)
    # Refuse such a word instead of reducing it: an element has one encoding.
    return None if int(elements.max(initial=0)) >= PRIME else elements
