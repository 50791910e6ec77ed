"""Summing clients' vectors where they lie, in a way that no grouping changes."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.errors import RunError
from testbed.messages import Vector

FIXED_POINT_BITS = 32
_LIMIT = 2.0**62
_CHUNK = 1 << 16  # elements: the working set stays in the second-level cache


def ring_total(vectors: Sequence[Vector]) -> npt.NDArray[Any]:
    """`(d,)` sum of ring vectors, reduced modulo their ring."""
    bits = vectors[0].bits
    total = vectors[0].values.copy()
    for vector in vectors[1:]:
        np.add(total, vector.values, out=total)
    return reduced(total, bits)


def float_total(vectors: Sequence[Vector], weights: Sequence[int]) -> npt.NDArray[np.int64]:
    """`(d,)` sum of weights[i] * vectors[i] in fixed point with 32 fractional bits (divide by 2**32).

    Integer addition is associative, so every grouping gives the same bits. Raises `RunError` when an element is not
    finite or so large that the sum could overflow.
    """
    length = len(vectors[0].values)
    total = np.zeros(length, np.int64)
    buffer = np.empty(min(_CHUNK, length), np.float64)
    bound = _LIMIT / max(1, len(vectors))
    for vector, weight in zip(vectors, weights, strict=True):
        for begin in range(0, length, _CHUNK):
            part = vector.values[begin : begin + _CHUNK]
            scaled = np.multiply(part, float(weight) * 2.0**FIXED_POINT_BITS, out=buffer[: len(part)], dtype=np.float64)
            np.rint(scaled, out=scaled)
            if not (-bound < scaled.min() and scaled.max() < bound):
                raise RunError("an update is not finite or too large to sum; lower workload.learning_rate")
            total[begin : begin + _CHUNK] += scaled.astype(np.int64)
    return total


def combined(parts: Iterable[npt.NDArray[Any]], bits: int) -> npt.NDArray[Any]:
    """`(d,)` sum of several hosts' partial sums: ring elements, or float64 when `bits` is 0."""
    total: npt.NDArray[Any] | None = None
    for part in parts:
        total = part.copy() if total is None else np.add(total, part, out=total)
    if total is None:
        raise RunError("there is nothing to sum")
    return total * 2.0**-FIXED_POINT_BITS if bits == 0 else reduced(total, bits)


def reduced(lanes: npt.NDArray[Any], bits: int) -> npt.NDArray[Any]:
    """`lanes` modulo ``2**bits``, in place where bits are to be cut off."""
    if bits < 8 * lanes.dtype.itemsize:
        np.bitwise_and(lanes, lanes.dtype.type((1 << bits) - 1), out=lanes)
    return lanes
