"""How many samples the clients of generated data hold."""

import numpy as np
from numpy.typing import NDArray

from workloads.randomness import Purpose, stream


def sample_counts(
    population: int, each: int | None, seed: int, *, mean: float, deviation: float, fewest: int, most: int
) -> NDArray[np.int64]:
    """(population,) int64: `each`, or lognormal with this mean and standard deviation, within `fewest` and `most`."""
    if each is not None:
        return np.full(population, each, dtype=np.int64)
    spread = np.log1p((deviation / mean) ** 2)
    drawn = stream(seed, Purpose.SAMPLE_COUNTS).lognormal(np.log(mean) - spread / 2, np.sqrt(spread), population)
    return np.clip(np.rint(drawn), fewest, most).astype(np.int64)
