"""Vectors over the integers modulo 2**64 - 2**32 + 1: `Field64` of draft-irtf-cfrg-vdaf, section 6.1.

Its 2**32-th roots of unity allow transforms of any power-of-two length. An element is a uint64 below the prime. Modulo
the prime, 2**64 is 2**32 - 1 and 2**96 is -1, so a product of 128 bits is reduced by shifts.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

PRIME = 2**64 - 2**32 + 1
ELEMENT_BYTES = 8
GENERATOR = pow(7, 2**32 - 1, PRIME)
"""Generator of the subgroup of order 2**32 (draft-irtf-cfrg-vdaf, table 3)."""

Elements = npt.NDArray[np.uint64]

_P = np.uint64(PRIME)
_EPSILON = np.uint64(2**32 - 1)  # 2**64 modulo the prime
_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)
_AT_ONCE = 1 << 14  # elements of an operation that fit a core's cache together


def element(integer: int) -> Elements:
    """Return an integer modulo the prime, `(1,)`."""
    return np.array([integer % PRIME], np.uint64)


def from_signed(integers: npt.NDArray[np.int64]) -> Elements:
    """Return signed integers modulo the prime, `(d,)`."""
    words = integers.view(np.uint64)
    return words - np.where(integers < 0, _EPSILON, np.uint64(0))  # the view added 2**64 instead of the prime


def to_signed(elements: Elements) -> npt.NDArray[np.int64]:
    """Return the representatives nearest to zero, `(d,)` int64."""
    words = elements + np.where(elements > np.uint64(PRIME // 2), _EPSILON, np.uint64(0))
    return words.view(np.int64)


def add(left: Elements, right: Elements) -> Elements:
    """Add element by element, with numpy's broadcasting.

    Args:
        left: elements.
        right: elements.
    """
    return _in_parts(_sum, left, right)


def subtract(left: Elements, right: Elements) -> Elements:
    """Subtract element by element, with numpy's broadcasting.

    Args:
        left: elements.
        right: elements.
    """
    return _in_parts(_difference, left, right)


def multiply(left: Elements, right: Elements) -> Elements:
    """Multiply element by element, with numpy's broadcasting.

    Args:
        left: elements.
        right: elements.

    Example:
        >>> multiply(element(PRIME - 1), element(PRIME - 1)).tolist()  # (-1) * (-1)
        [1]
    """
    return _in_parts(_product, left, right)


def total(elements: Elements, axis: int = 0) -> Elements:
    """Return the sum along an axis.

    Args:
        elements: any shape; at most 2**31 along the axis.
        axis: to sum over.
    """
    # Sums of 32-bit halves: 2**31 halves fit a word, two whole elements would not.
    low = np.atleast_1d(np.add.reduce(elements & _LOW, axis=axis, dtype=np.uint64))
    high = np.atleast_1d(np.add.reduce(elements >> _HALF, axis=axis, dtype=np.uint64))
    shifted = high << _HALF
    lower = low + shifted
    reduced = _reduced(lower, (high >> _HALF) + _where(lower < shifted))
    return reduced if elements.ndim > 1 else reduced[0]


def powers(base: int, count: int) -> Elements:
    """Return the powers of one element from exponent 0 on.

    Args:
        base: an element.
        count: number of powers.

    Returns:
        `(count,)` elements.

    Example:
        >>> powers(2, 4).tolist()
        [1, 2, 4, 8]
    """
    result, power = [], 1
    for _ in range(count):
        result.append(power)
        power = power * base % PRIME
    return np.array(result, np.uint64)


def root_of_unity(order: int) -> int:
    """Return a primitive root of unity; `order` is a power of two up to 2**32."""
    return pow(GENERATOR, 2**32 // order, PRIME)


def transform(values: Elements) -> Elements:
    """Evaluate m polynomials at the n-th roots of unity, in the order of powers.

    Args:
        values: `(n, m)` coefficients, lowest first.

    Returns:
        `(n, m)` values.
    """
    return _transformed(values, root_of_unity(len(values)))


def inverse_transform(values: Elements) -> Elements:
    """Return the `(n, m)` coefficients of `(n, m)` values from `transform`."""
    n = len(values)
    scaled = _transformed(values, pow(root_of_unity(n), -1, PRIME))
    return multiply(scaled, element(pow(n, -1, PRIME)))


def at_points_between(values: Elements) -> Elements:
    """Evaluate polynomials at the 2n-th roots of unity that are no n-th roots.

    Args:
        values: `(n, m)` values of polynomials of degree below n at the n-th roots of unity.

    Returns:
        `(n, m)` values.
    """
    n = len(values)
    # A factor w**i at coefficient i, with w a 2n-th root, moves the values to the odd powers of w.
    twist = multiply(powers(root_of_unity(2 * n), n), element(pow(n, -1, PRIME)))
    coefficients = _transformed(values, pow(root_of_unity(n), -1, PRIME))
    return transform(multiply(coefficients, twist[:, None]))


def _transformed(values: Elements, root: int) -> Elements:
    """Transform by Stockham's algorithm: each step halves the length of the transforms and doubles their number."""
    n, m = values.shape
    # Stockham needs no bit reversal, at the price of a second array.
    current, length, side = values, n, 1
    while length > 1:
        half = length // 2
        # Element (i, k) of the view is number i of the k-th of `side` interleaved sequences of this length.
        upper, lower = current.reshape(2, half, side * m)
        following = np.empty((half, 2, side * m), np.uint64)
        following[:, 0] = add(upper, lower)
        following[:, 1] = subtract(upper, lower)
        if half > 1:  # else all twiddles are 1
            following[:, 1] = multiply(following[:, 1], _twiddles(root, n, side)[:, None])
        current, length, side = following.reshape(n, m), half, 2 * side
    return current.reshape(n, m)


@functools.lru_cache(maxsize=64)
def _twiddles(root: int, n: int, side: int) -> Elements:
    table: Any = powers(pow(root, side, PRIME), n // side // 2)
    # All callers share the cached table.
    table.setflags(write=False)
    return table  # type: ignore[no-any-return]


def to_bytes(elements: Elements) -> bytes:
    """Return eight bytes for each element, little-endian."""
    return elements.astype("<u8", copy=False).tobytes()


def from_bytes(data: bytes | memoryview) -> Elements | None:
    """Return the elements that `to_bytes` encoded, in the same memory; None if the data encodes no elements."""
    if len(data) % ELEMENT_BYTES:
        return None
    elements = np.frombuffer(data, "<u8").astype(np.uint64, copy=False)
    # Refuse such a word instead of reducing it (draft-irtf-cfrg-vdaf, section 6.1): an element has one encoding.
    return None if int(elements.max(initial=0)) >= PRIME else elements


# -- parts that fit a core's cache -------------------------------------------------------------------------------------

Operation = Callable[[Elements, Elements], Elements]


def _in_parts(operation: Operation, left: Elements, right: Elements) -> Elements:
    shape = np.broadcast_shapes(np.shape(left), np.shape(right))
    size = int(np.prod(shape))
    if size <= 2 * _AT_ONCE or not shape:
        return operation(left, right)
    result = np.empty(shape, np.uint64)
    wide_left, wide_right = np.broadcast_to(left, shape), np.broadcast_to(right, shape)
    rows, columns = shape[0], size // shape[0]
    if columns >= _AT_ONCE:
        for row in range(rows):
            result[row] = _in_parts(operation, wide_left[row], wide_right[row])
        return result
    step = max(1, _AT_ONCE // columns)
    for first in range(0, rows, step):
        part = slice(first, first + step)
        result[part] = operation(wide_left[part], wide_right[part])
    return result


def _sum(left: Elements, right: Elements) -> Elements:
    # left - (p - right) instead of left + right - p: the sum of two elements may exceed 64 bits.
    missing = _P - right
    result = left - missing
    result += _where(left < missing) * _P
    return result


def _difference(left: Elements, right: Elements) -> Elements:
    result = left - right
    # The words borrowed 2**64 where the field needs p: the difference is _EPSILON.
    result -= _where(left < right) * _EPSILON
    return result


def _product(left: Elements, right: Elements) -> Elements:
    # Products of 32-bit halves: numpy has no type of 128 bits.
    left_low, left_high, right_low, right_high = left & _LOW, left >> _HALF, right & _LOW, right >> _HALF
    lowest = left_low * right_low
    middle = left_low * right_high
    middle += lowest >> _HALF  # no overflow: (2**32 - 1)**2 + 2**32 - 1 is below 2**64
    other = left_high * right_low
    other += middle & _LOW
    highest = left_high * right_high
    highest += middle >> _HALF
    highest += other >> _HALF
    other <<= _HALF
    lowest &= _LOW
    other |= lowest
    return _reduced(other, highest)


def _reduced(low: Elements, high: Elements) -> Elements:
    """Return `high` * 2**64 + `low` modulo the prime."""
    top = high >> _HALF  # times 2**96, which is -1
    result = low - top
    result -= _where(low < top) * _EPSILON
    rest = high & _LOW  # times 2**64, which is 2**32 - 1
    rest = (rest << _HALF) - rest
    result += rest
    result += _where(result < rest) * _EPSILON
    lower: Elements = np.minimum(result, result - _P)  # wraps, and so stays larger, if there is nothing to subtract
    return lower


def _where(condition: npt.NDArray[np.bool_]) -> Elements:
    """Return 1 where the condition holds, else 0; faster than numpy's products of conditions."""
    return condition.view(np.uint8).astype(np.uint64)
