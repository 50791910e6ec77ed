"""How many samples the clients of generated data hold, and how many those of whom the held-out samples are."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from workloads.randomness import Purpose, stream


def sample_counts(
    population: int, each: int | None, seed: int, *, mean: float, deviation: float, minimum: int, maximum: int
) -> NDArray[np.int64]:
    """(population,) int64: `each`, or lognormal with this mean and deviation, within `minimum` and `maximum`."""
    if each is not None:
        return np.full(population, each, dtype=np.int64)
    spread = np.log1p((deviation / mean) ** 2)
    drawn = stream(seed, Purpose.SAMPLE_COUNTS).lognormal(np.log(mean) - spread / 2, np.sqrt(spread), population)
    return np.clip(np.rint(drawn), minimum, maximum).astype(np.int64)


def in_groups(count: int, each: int) -> Iterator[tuple[int, int]]:
    """(owner's number, its samples) for `count` samples of owners with `each`; the last one may have fewer."""
    for owner, start in enumerate(range(0, count, each)):
        yield owner, min(each, count - start)
