"""Masks and noise added by as many threads as the machine has cores."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from testbed.crypto.masks import add_masks
from testbed.emulation.compute.cost import meter, meter_parallel, metered, thread_cpu_s
from testbed.parties.sums import reduced

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
