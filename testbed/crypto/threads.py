"""One function of many inputs on all cores. libsodium and OpenSSL let other threads run while they compute."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

FEW = 8
"""Fewer are computed here: to hand them to others takes as long."""


@cache
def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_map(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]:
    """What `function` gives for each of the items, in their order; it depends on its argument alone.

    Raises what the function raises of the first item for which it does.
    """
    if len(items) < FEW or cores() == 1:
        return [function(item) for item in items]
    share = -(-len(items) // cores())
    parts = [items[first : first + share] for first in range(0, len(items), share)]
    with ThreadPoolExecutor(len(parts) - 1) as threads:
        others = [threads.submit(lambda part: [function(item) for item in part], part) for part in parts[1:]]
        results = [function(item) for item in parts[0]]
        for other in others:
            results += other.result()
    return results
