"""Summing clients' vectors where they lie, in a way that no grouping changes; and adding masks and noise to a sum."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from testbed.crypto.masks import Prg, add_masks, word_dtype
from testbed.emulation.compute.cost import meter, meter_parallel, metered, thread_cpu_s
from testbed.errors import ProtocolError, RunError
from testbed.messages import Vector
from testbed.network.masked_vectors import Elements, MaskedVector, Masks

FIXED_POINT_BITS = 32
# Of the absolute sum of one host in fixed point: a factor of 2 below the range of int64.
_LIMIT = 2.0**62
# With this added, a float64 below 2^51 is rounded to an integer as `rint` does (half to even), and its bits are that
# integer more than those of the constant: one pass instead of three.
_ROUNDING = 1.5 * 2.0**52
_ROUNDING_BITS = int(np.float64(_ROUNDING).view(np.int64))
_ROUNDED_BELOW = 2.0**51
_CHUNK = 1 << 16  # elements: the working set stays in the second-level cache


@dataclass(frozen=True)
class Sum:
    """A sum of clients' vectors, or a host's part of one.

    Attributes:
        values: `(d,)` ring elements below ``2**bits``; or (`bits` 0) int64 with 32 fractional bits.
        bits: of the ring (`Vector.sum_bits`); 0 for float vectors.
        masks: those that are in the sum, but not in `values`.
    """

    values: npt.NDArray[Any]
    bits: int
    masks: Masks = field(default_factory=Masks)

    def __len__(self) -> int:
        return len(self.values)

    def with_masks(self, more: Masks) -> "Sum":
        """Return the sum with more masks added; raises `ProtocolError` if their generator differs."""
        masks = Masks()
        masks.add(self.masks)
        masks.add(more)
        return Sum(self.values, self.bits, masks)

    def materialised(self) -> npt.NDArray[Any]:
        """`(d,)` the sum itself: ring elements, every mask in them, or float64."""
        if self.bits == 0:
            return self.values * 2.0**-FIXED_POINT_BITS
        total = self.values.copy()
        if self.masks:
            add_masks_in_threads(total, *self.masks.expanded(), self.bits, self.masks.prg)
        return total


def ring_total(vectors: Sequence[Vector]) -> Sum:
    """Return the sum of ring vectors of one shape; unexpanded masks are counted.

    The sum has the word size of the ring, even if the vectors have other words: 8-bit elements are sent as bytes, and a
    malicious client may send wider words than it should.

    Raises:
        ProtocolError: the vectors differ in ring or length.
    """
    _one_shape(vectors)
    masks, bits = Masks(), vectors[0].sum_bits
    total = np.zeros(len(vectors[0]), word_dtype(bits))
    to_be_made: list[Elements] = []
    for vector in vectors:
        if isinstance(vector, MaskedVector):
            masks.add(vector.masks)
        elements = _elements(vector)
        if isinstance(elements, np.ndarray):
            # Casting keeps the low bits, which is the reduction modulo the ring's words.
            np.add(total, elements, out=total, casting="unsafe")
        else:
            to_be_made.append(elements)
    if to_be_made:
        # Eight: each thread needs a vector of its own and an addition at the end.
        add_in_threads(total, to_be_made, _make, bits, at_least=8)
    return Sum(reduced(total, bits), bits, masks)


def _make(total: npt.NDArray[Any], elements: Sequence[Elements]) -> None:
    for term in elements:
        term.add_to(total)


def float_total(vectors: Sequence[Vector], weights: Sequence[int]) -> Sum:
    """Return the sum of weights[i] * vectors[i] in fixed point.

    Integer addition is associative, so every grouping gives the same bits.

    Args:
        vectors: float vectors of one length d.
        weights: one factor per vector.

    Returns:
        `(d,)` in 64-bit fixed point.

    Raises:
        ProtocolError: the vectors differ in length.
        RunError: an element is not finite, or so large that the sum could overflow.
    """
    _one_shape(vectors)
    length, bound = len(vectors[0]), _LIMIT / max(1, len(vectors))
    total = np.zeros(length, np.int64)
    buffer = np.empty(min(_CHUNK, length), np.float64)
    for begin in range(0, length, _CHUNK):
        summed = total[begin : begin + _CHUNK]
        scaled, shifted = buffer[: len(summed)], 0
        for vector, weight in zip(vectors, weights, strict=True):
            part, scale = vector.part(begin, begin + _CHUNK), float(weight) * 2.0**FIXED_POINT_BITS
            least, most = float(part.min()) * scale, float(part.max()) * scale
            if not (-bound < np.rint(least) and np.rint(most) < bound):  # not so either if it is not a number
                raise RunError("an update is not finite or too large to sum; lower workload.learning_rate")
            # In float64: float32 has too few bits for the fractional part.
            scaled[:] = part
            scaled *= scale
            if least > -_ROUNDED_BELOW and most < _ROUNDED_BELOW:
                scaled += _ROUNDING
                summed += scaled.view(np.int64)
                shifted += 1
            else:
                summed += np.rint(scaled, out=scaled).astype(np.int64)
        # Take off the constants' bits at once; modulo 2^64, as the true sum is known to fit.
        summed -= np.array(shifted * _ROUNDING_BITS % 2**64, np.uint64).view(np.int64)
    return Sum(total, 0)


def merged(parts: Iterable[Sum]) -> Sum:
    """Return the sum of partial sums; order and grouping of the parts do not matter.

    Raises:
        ProtocolError: the parts differ in shape or type.
        RunError: there are no parts, or their sum overflows.
    """
    total: npt.NDArray[Any] | None = None
    masks, bits = Masks(), 0
    for part in parts:
        masks.add(part.masks)
        if total is None:
            total, bits = part.values.copy(), part.bits
            continue
        if (part.values.shape, part.values.dtype, part.bits) != (total.shape, total.dtype, bits):
            shapes = [f"{values.shape} {values.dtype}" for values in (part.values, total)]
            raise ProtocolError(f"partial sums differ in shape or type: {', '.join(shapes)}")
        _add(total, part.values, may_wrap=bits > 0)
    if total is None:
        raise RunError("there are no vectors to sum")
    return Sum(total if bits == 0 else reduced(total, bits), bits, masks)


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
    """Raise `ProtocolError` unless all have one ring and length (numpy would stretch)."""
    first = vectors[0]
    for vector in vectors:
        if (vector.bits, len(vector)) != (first.bits, len(first)):
            raise ProtocolError(f"vectors to sum differ: {first} and {vector}")


def _elements(vector: Vector) -> npt.NDArray[Any] | Elements:
    """Return the elements without unexpanded masks."""
    return vector.plain if isinstance(vector, MaskedVector) else vector.values


def reduced(words: npt.NDArray[Any], bits: int) -> npt.NDArray[Any]:
    """Reduce ring elements modulo ``2**bits``, in place unless the words have exactly `bits` bits.

    Args:
        words: `(d,)` of an unsigned dtype.
        bits: bits of the ring.

    Returns:
        The reduced array.
    """
    if bits < 8 * words.dtype.itemsize:
        np.bitwise_and(words, words.dtype.type((1 << bits) - 1), out=words)
    return words


Item = TypeVar("Item")


def add_masks_in_threads(
    total: npt.NDArray[Any], seeds: list[bytes], signs: list[int], bits: int, prg: Prg = "aes-256-ctr"
) -> None:
    """Run `add_masks` with the seeds spread over the machine's cores.

    Args:
        total: `(d,)` ring elements, changed in place.
        seeds: 32 bytes each.
        signs: 1 (add) or -1 (subtract), aligned with `seeds`.
        bits: bits of the ring.
        prg: the generator that expands the masks.
    """

    def add(part: npt.NDArray[Any], masks: Sequence[tuple[bytes, int]]) -> None:
        add_masks(part, [seed for seed, _ in masks], [sign for _, sign in masks], bits, prg)

    add_in_threads(total, list(zip(seeds, signs, strict=True)), add, bits, at_least=8)


def add_in_threads(
    total: npt.NDArray[Any],
    items: Sequence[Item],
    add: Callable[[npt.NDArray[Any], Sequence[Item]], None],
    bits: int,
    at_least: int,
) -> None:
    """Add the vectors that `add` makes of the items to `total`, in place, modulo 2**bits.

    Args:
        total: `(d,)` ring elements.
        items: the items, spread over the machine's cores.
        add: adds some items to a vector like `total`, in place; operations that it meters are charged to this thread.
        bits: bits of the ring.
        at_least: the smallest number of items that is worth a thread.
    """
    workers = min(os.cpu_count() or 1, max(1, len(items) // at_least))
    if workers == 1:
        add(total, items)
        reduced(total, bits)
        return

    def work(worker: int) -> tuple[npt.NDArray[Any], float, dict[str, float]]:
        began = thread_cpu_s()
        # A sum of its own per thread: threads must not add to the same memory.
        part = np.full_like(total, 0)
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
    # The threads work at the same time, so the slowest one decides the server's seconds.
    meter_parallel(max(cpu_s for _, cpu_s, _ in parts))
