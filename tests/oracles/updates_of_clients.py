"""Updates for robust rules: spread, clustered, poisoned, equal and huge."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]


def cases() -> Iterator[tuple[str, Rows, int]]:
    """Yield name, updates `(s, d)` and f, the number of dishonest updates, with 2f + 5 updates or more."""
    rng = np.random.default_rng(38)
    for updates, length, f in ((5, 1, 0), (7, 1, 1), (8, 3, 1), (9, 650, 2), (20, 40, 4), (25, 7, 10), (101, 30, 20)):
        honest = rng.normal(1.0, 1.0, (updates, length))
        yield f"spread, {updates} of {length}, f = {f}", honest.astype(np.float32), f
        poisoned = honest.copy()
        poisoned[:f] = 1e4 * rng.normal(0.0, 1.0, (f, length))
        yield f"poisoned, {updates} of {length}, f = {f}", poisoned.astype(np.float32), f
        colluding = honest.copy()
        colluding[:f] = honest[f:].mean(axis=0) - 1.5 * honest[f:].std(axis=0)
        yield f"colluding, {updates} of {length}, f = {f}", colluding.astype(np.float32), f
    close = 100 + 1e-3 * rng.normal(0.0, 1.0, (9, 20))
    yield "nearly equal, 9 of 20, f = 2", close.astype(np.float32), 2
    yield "huge, 9 of 20, f = 2", (1e15 * rng.normal(0.0, 1.0, (9, 20))).astype(np.float32), 2
