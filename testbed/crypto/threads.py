"""Map a function over many inputs on all cores; libsodium and OpenSSL release the global lock while they compute."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

FEW = 8
"""Smaller inputs are computed in the calling thread: starting threads would take as long."""


@cache
def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_map(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]:
    """Apply a function to all items on all cores.

    Args:
        function: depends on its argument alone; raises for the first item for which it raises.
        items: the arguments.

    Returns:
        The results in the order of the items.
    """
    if len(items) < FEW or cores() == 1:
        return [function(item) for item in items]
    share = -(-len(items) // cores())
    parts = [items[first : first + share] for first in range(0, len(items), share)]
    with ThreadPoolExecutor(len(parts) - 1) as threads:  # this thread computes the first part
        others = [threads.submit(lambda part: [function(item) for item in part], part) for part in parts[1:]]
        results = [function(item) for item in parts[0]]
        for other in others:
            results += other.result()
    return results
