"""What robust rules are made of: sums, distances and orders of updates that do not depend on the machine."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats
from testbed.emulation.compute.cost import meter

Updates = Sequence[npt.NDArray[np.float32]]
"""`(d,)` float32 each, finite, of participants in the order of their numbers."""

_CHUNK = 1 << 12  # coordinates of all updates that are looked at together: they stay in the second-level cache
_CANCELLED = 2.0**-10  # squared distances below this share of the squares that they are a difference of


def sorted_columns(updates: Updates, begin: int) -> npt.NDArray[np.float32]:
    """`(c, s)` float32, the values of each coordinate from `begin` on in ascending order; c is a chunk's or what is
    left. Charged by the value.
    """
    length = len(updates[0][begin : begin + _CHUNK])
    columns = np.empty((length, len(updates)), np.float32)
    for column, update in enumerate(updates):
        columns[:, column] = update[begin : begin + _CHUNK]
    columns.sort(axis=1)
    meter("sort.element", columns.size)
    return columns


def squared_distances(updates: Updates) -> Floats:
    """`(s, s)` float64, rounded to float32: squared distances between any two, from |x|^2 + |y|^2 - 2 x.y.

    Products are summed in float64, in an order that BLAS chooses, and differs by processor; what it decides lies below
    the last bit of a float32, so the same updates have the same distances, but for one in millions. Of two that are
    nearly the same (or just that), |x|^2 + |y|^2 - 2 x.y is what BLAS has rounded, and |x - y|^2 is taken instead.
    """
    s = len(updates)
    products = np.zeros((s, s))
    meter("float.multiply", s * s * len(updates[0]))
    for part in _chunks(updates):
        products += part @ part.T
    squares = np.diag(products)
    squared = np.maximum(squares[:, None] + squares - products - products.T, 0)
    for i, j in np.argwhere(np.triu(squared < _CANCELLED * (squares[:, None] + squares), 1)).tolist():
        squared[i, j] = squared[j, i] = _squared_distance(updates[i], updates[j])
    np.fill_diagonal(squared, 0)
    with np.errstate(over="ignore"):  # as infinitely far
        return np.minimum(squared.astype(np.float32), np.finfo(np.float32).max).astype(np.float64)


def krum_scores(squared: Floats, dishonest: int) -> Floats:
    """`(s,)` of each update the sum of its `(s, s)` squared distances to the s - f - 2 closest others."""
    others = np.sort(squared + np.diag(np.full(len(squared), np.inf)), axis=1)
    scores: Floats = others[:, : len(squared) - dishonest - 2].sum(axis=1)
    return scores


def mean_of_middle(updates: Updates, left_out: int) -> Floats:
    """`(d,)` of each coordinate the mean without so many values at either end."""
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
    """`(c,)` float64; columns are added one after the other, so that the order does not depend on the machine."""
    total = np.zeros(len(values))
    for column in values.T:
        total += column
    total /= values.shape[1]
    return total


def weighted_sum(updates: Updates, weights: Floats) -> Floats:
    """`(d,)` float64, one update after the other."""
    meter("float.add.element", int(np.count_nonzero(weights)) * len(updates[0]))
    total = np.zeros(len(updates[0]))
    for begin in range(0, len(total), _CHUNK):
        part = total[begin : begin + _CHUNK]
        for update, weight in zip(updates, weights.tolist(), strict=True):
            if weight:
                part += weight * update[begin : begin + _CHUNK].astype(np.float64)
    return total


def distances_to(updates: Updates, point: Floats) -> Floats:
    """`(s,)` float64, the L2 distance of each update to `(d,)` `point`."""
    meter("float.add.element", len(updates) * len(point))
    squared = np.zeros(len(updates))
    for begin, part in zip(range(0, len(point), _CHUNK), _chunks(updates), strict=True):
        part -= point[begin : begin + _CHUNK]
        squared += np.square(part, out=part).sum(axis=1)
    distances: Floats = np.sqrt(squared)
    return distances


def _chunks(updates: Updates) -> Iterator[Floats]:
    """`(s, c)` float64 each, in memory of its own."""
    for begin in range(0, len(updates[0]), _CHUNK):
        yield np.stack([update[begin : begin + _CHUNK] for update in updates], dtype=np.float64)
