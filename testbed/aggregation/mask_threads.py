"""Masks added by as many threads as the machine has cores."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.cost import charge_parallel, thread_cpu_s
from testbed.crypto.masks import add_masks
from testbed.parties.summing import reduced


def add_masks_in_threads(total: npt.NDArray[Any], seeds: list[bytes], signs: list[int], bits: int) -> None:
    """`add_masks` with the seeds spread over the machine's cores; `(d,)` `total` changes in place."""
    workers = min(os.cpu_count() or 1, max(1, len(seeds) // 8))
    if workers == 1:
        add_masks(total, seeds, signs, bits)
        return

    def add(worker: int) -> tuple[npt.NDArray[Any], float]:
        began = thread_cpu_s()
        part = np.zeros_like(total)
        add_masks(part, seeds[worker::workers], signs[worker::workers], bits)
        return part, thread_cpu_s() - began

    with ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(add, range(workers)))
    for part, _ in parts:
        np.add(total, part, out=total)
    reduced(total, bits)
    charge_parallel(max(cpu_s for _, cpu_s in parts))
