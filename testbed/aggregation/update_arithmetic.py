"""Sums, distances and orders of updates for robust rules, with results that do not depend on the machine."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats
from testbed.emulation.compute.cost import meter

Updates = Sequence[npt.NDArray[np.float32]]
"""Updates of participants in the order of their numbers: `(d,)` float32 each, finite."""

_CHUNK = 1 << 12  # coordinates that are processed together: those of all updates fit the second-level cache
_CANCELLED = 2.0**-10  # smaller squared distances, relative to the squared norms, are computed directly


def sorted_columns(updates: Updates, begin: int) -> npt.NDArray[np.float32]:
    """Return the sorted values of each coordinate of a chunk; charges the operation `sort.element` per value.

    Args:
        updates: s updates.
        begin: first coordinate of the chunk.

    Returns:
        `(c, s)` float32, ascending in each row; c is the length of the chunk.
    """
    length = len(updates[0][begin : begin + _CHUNK])
    columns = np.empty((length, len(updates)), np.float32)
    for column, update in enumerate(updates):
        columns[:, column] = update[begin : begin + _CHUNK]
    columns.sort(axis=1)
    meter("sort.element", columns.size)
    return columns


def squared_distances(updates: Updates) -> Floats:
    """Return the squared distances between any two updates, from |x|^2 + |y|^2 - 2 x.y.


    Returns:
        `(s, s)` float64, rounded to float32.
    """
    s = len(updates)
    products = np.zeros((s, s))
    meter("float.multiply", s * s * len(updates[0]))
    for part in _chunks(updates):
        products += part @ part.T
    squares = np.diag(products)
    squared = np.maximum(squares[:, None] + squares - products - products.T, 0)
    # For two nearly equal updates the difference above is only the rounding of BLAS: compute |x - y|^2 instead.
    for i, j in np.argwhere(np.triu(squared < _CANCELLED * (squares[:, None] + squares), 1)).tolist():
        squared[i, j] = squared[j, i] = _squared_distance(updates[i], updates[j])
    np.fill_diagonal(squared, 0)
    with np.errstate(over="ignore"):  # overflow counts as the largest distance
        # BLAS sums in an order that differs by processor, which only affects bits below the last bit of a float32: the
        # same updates have the same distances, except for one in millions.
        return np.minimum(squared.astype(np.float32), np.finfo(np.float32).max).astype(np.float64)


def krum_scores(squared: Floats, dishonest: int) -> Floats:
    """Return each update's sum of squared distances to its s - f - 2 closest others.

    Args:
        squared: `(s, s)` squared distances.
        dishonest: f.

    Returns:
        `(s,)` float64.
    """
    others = np.sort(squared + np.diag(np.full(len(squared), np.inf)), axis=1)
    scores: Floats = others[:, : len(squared) - dishonest - 2].sum(axis=1)
    return scores


def mean_of_middle(updates: Updates, left_out: int) -> Floats:
    """Return the mean of each coordinate without the extreme values.

    Args:
        updates: s updates.
        left_out: number of values to leave out at either end.

    Returns:
        `(d,)` float64.
    """
    mean = np.empty(len(updates[0]))
    for begin in range(0, len(mean), _CHUNK):
        middle = sorted_columns(updates, begin)[:, left_out : len(updates) - left_out]
        mean[begin : begin + len(middle)] = _row_means(middle)
    return mean


def _squared_distance(update: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> float:
    meter("float.add.element", len(update))
    total = 0.0
    for begin in range(0, len(update), _CHUNK):
        away = update[begin : begin + _CHUNK].astype(np.float64) - other[begin : begin + _CHUNK]
        total += float(np.square(away, out=away).sum())
    return total


def _row_means(values: npt.NDArray[np.float32]) -> Floats:
    """Return `(c,)` float64; columns are added in order, so that the result does not depend on the machine."""
    total = np.zeros(len(values))
    for column in values.T:
        total += column
    total /= values.shape[1]
    return total


def weighted_sum(updates: Updates, weights: Floats) -> Floats:
    """Return the weighted sum of the updates, added in order.

    Args:
        updates: s updates.
        weights: `(s,)`.

    Returns:
        `(d,)` float64.
    """
    meter("float.add.element", int(np.count_nonzero(weights)) * len(updates[0]))
    total = np.zeros(len(updates[0]))
    for begin in range(0, len(total), _CHUNK):
        part = total[begin : begin + _CHUNK]
        for update, weight in zip(updates, weights.tolist(), strict=True):
            if weight:
                part += weight * update[begin : begin + _CHUNK].astype(np.float64)
    return total


def distances_to(updates: Updates, point: Floats) -> Floats:
    """Return the L2 distance of each update to a point.

    Args:
        updates: s updates.
        point: `(d,)` float64.

    Returns:
        `(s,)` float64.
    """
    meter("float.add.element", len(updates) * len(point))
    squared = np.zeros(len(updates))
    for begin, part in zip(range(0, len(point), _CHUNK), _chunks(updates), strict=True):
        part -= point[begin : begin + _CHUNK]
        squared += np.square(part, out=part).sum(axis=1)
    distances: Floats = np.sqrt(squared)
    return distances


def _chunks(updates: Updates) -> Iterator[Floats]:
    """Yield the updates in chunks of coordinates: `(s, c)` float64 each, in memory of its own."""
    for begin in range(0, len(updates[0]), _CHUNK):
        yield np.stack([update[begin : begin + _CHUNK] for update in updates], dtype=np.float64)
