"""Check that the features of tabular data have similar scales, as local training at one learning rate assumes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_RATIO = 10.0
"""Ratio of the largest feature to the median one, by root mean square, below which gradient descent still works."""
LEAST_SIZE = 10.0
"""Root mean square of the largest feature below which small features are rare (one-hot codes), not unscaled."""

_MOST_ROWS = 20_000


def unscaled_feature(samples: NDArray[Any], names: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return the feature that is far larger than the others; None if there is none, or the samples are not a table.

    The gradient of a feature's weight grows with the root mean square of the feature: a feature that is a hundred times
    as large as the median one needs a learning rate that is ten thousand times as small.

    Args:
        samples: `(n, features)` numbers; of more than 20,000 rows, 20,000 evenly spaced ones are used. Other shapes,
            such as images, have no features with scales of their own.
        names: names of the features; empty: they have none.

    Returns:
        ``name`` and ``ratio``, the largest root mean square over the median one (without features that are always 0).

    Example:
        >>> unscaled_feature(np.array([[1.0, 500.0, 2.0], [2.0, 700.0, 1.0]]), ["ash", "proline", "hue"])
        {'name': 'proline', 'ratio': 384.7}
        >>> unscaled_feature(np.array([[1.0, 0.5], [-1.0, 0.7]])) is None
        True
    """
    if samples.ndim != 2 or samples.shape[1] < 2 or not len(samples):
        return None
    rows = samples[:: -(-len(samples) // _MOST_ROWS)].astype(np.float64)
    sizes = np.sqrt((rows**2).mean(axis=0))
    present = sizes[sizes > 0]
    if not len(present):
        return None
    largest, median = int(sizes.argmax()), float(np.median(present))
    ratio = float(sizes[largest]) / median
    if sizes[largest] < LEAST_SIZE or ratio < LEAST_RATIO:
        return None
    name = str(names[largest]) if len(names) == len(sizes) else f"feature {largest + 1} of {len(sizes)}"
    return {"name": name, "ratio": round(ratio, 1)}
