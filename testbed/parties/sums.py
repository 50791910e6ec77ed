"""Summing clients' vectors where they lie, in a way that no grouping changes; and adding masks and noise to a sum."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from testbed.crypto.masks import add_masks
from testbed.emulation.compute.cost import meter, meter_parallel, metered, thread_cpu_s
from testbed.errors import ProtocolError, RunError
from testbed.messages import Vector

FIXED_POINT_BITS = 32
_LIMIT = 2.0**62
_CHUNK = 1 << 16  # elements: the working set stays in the second-level cache


def ring_total(vectors: Sequence[Vector]) -> npt.NDArray[Any]:
    """`(d,)` sum of ring vectors of one shape, reduced modulo their ring; see `_one_shape` for what it raises."""
    _one_shape(vectors)
    bits = vectors[0].bits
    total = vectors[0].values.copy()
    for vector in vectors[1:]:
        np.add(total, vector.values, out=total)
    return reduced(total, bits)


def float_total(vectors: Sequence[Vector], weights: Sequence[int]) -> npt.NDArray[np.int64]:
    """`(d,)` sum of weights[i] * vectors[i] in fixed point with 32 fractional bits (divide by 2**32).

    Integer addition is associative, so every grouping gives the same bits. Raises `RunError` when an element is not
    finite or so large that the sum could overflow; see `_one_shape` for what else it raises.
    """
    _one_shape(vectors)
    length = len(vectors[0])
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
    """`(d,)` sum of several hosts' partial sums: ring elements, or float64 when `bits` is 0; raises like `merged`."""
    total = merged(parts, bits)
    return total * 2.0**-FIXED_POINT_BITS if bits == 0 else total


def merged(parts: Iterable[npt.NDArray[Any]], bits: int) -> npt.NDArray[Any]:
    """`(d,)` sum of partial sums that is a partial sum itself: of a ring, or (`bits` 0) in fixed point.

    Raises `ProtocolError` when the parts differ in shape or type, `RunError` when there are none or they overflow.
    """
    total: npt.NDArray[Any] | None = None
    for part in parts:
        if total is None:
            total = part.copy()
            continue
        if (part.shape, part.dtype) != (total.shape, total.dtype):
            raise ProtocolError(f"partial sums differ: {part.shape} {part.dtype}, {total.shape} {total.dtype}")
        _add(total, part, may_wrap=bits > 0)
    if total is None:
        raise RunError("there is nothing to sum")
    return total if bits == 0 else reduced(total, bits)


def _add(total: npt.NDArray[Any], part: npt.NDArray[Any], *, may_wrap: bool) -> None:
    """Add in place; each host bounds only its own part, so fixed-point sums are checked for overflow here."""
    if may_wrap:
        np.add(total, part, out=total)
        return
    for begin in range(0, len(total), _CHUNK):
        own, other = total[begin : begin + _CHUNK], part[begin : begin + _CHUNK]
        summed = own + other
        if (((summed ^ own) & (summed ^ other)) < 0).any():  # a sign that neither term has
            raise RunError("the updates are too large to sum; lower workload.learning_rate")
        own[:] = summed


def _one_shape(vectors: Sequence[Vector]) -> None:
    """Raise `ProtocolError` unless all have one ring, word and length (numpy would stretch or promote)."""
    first = vectors[0]
    for vector in vectors:
        if (vector.bits, vector.values.dtype, len(vector)) != (first.bits, first.values.dtype, len(first)):
            raise ProtocolError(f"vectors to sum differ: {first} and {vector}")


def reduced(words: npt.NDArray[Any], bits: int) -> npt.NDArray[Any]:
    """`words` modulo ``2**bits``, in place where bits are to be cut off."""
    if bits < 8 * words.dtype.itemsize:
        np.bitwise_and(words, words.dtype.type((1 << bits) - 1), out=words)
    return words


Item = TypeVar("Item")


def add_masks_in_threads(total: npt.NDArray[Any], seeds: list[bytes], signs: list[int], bits: int) -> None:
    """`add_masks` with the seeds spread over the machine's cores; `(d,)` `total` changes in place."""

    def add(part: npt.NDArray[Any], masks: Sequence[tuple[bytes, int]]) -> None:
        add_masks(part, [seed for seed, _ in masks], [sign for _, sign in masks], bits)

    add_in_threads(total, list(zip(seeds, signs, strict=True)), add, bits, at_least=8)


def add_in_threads(
    total: npt.NDArray[Any],
    items: Sequence[Item],
    add: Callable[[npt.NDArray[Any], Sequence[Item]], None],
    bits: int,
    at_least: int,
) -> None:
    """Add what `add` makes of items to `(d,)` `total`, in place, modulo 2**bits.

    Args:
        total: ring elements.
        items: spread over the machine's cores.
        add: adds some of them to a vector like `total`, in place; what it meters counts as this thread's.
        bits: of the ring.
        at_least: so many items are worth a thread.
    """
    workers = min(os.cpu_count() or 1, max(1, len(items) // at_least))
    if workers == 1:
        add(total, items)
        reduced(total, bits)
        return

    def work(worker: int) -> tuple[npt.NDArray[Any], float, dict[str, float]]:
        began = thread_cpu_s()
        part = np.zeros_like(total)
        with metered() as block:
            add(part, items[worker::workers])
        return part, thread_cpu_s() - began, block.counts

    with ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(work, range(workers)))
    for part, _, counts in parts:
        np.add(total, part, out=total)
        for operation, count in counts.items():
            meter(operation, count)
    reduced(total, bits)
    meter_parallel(max(cpu_s for _, cpu_s, _ in parts))
