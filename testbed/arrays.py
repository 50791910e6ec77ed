"""Types and helpers for common arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
"""Client numbers (or other indices), usually sorted."""

Floats = npt.NDArray[np.float64]


def all_equal(column: npt.NDArray[Any]) -> bool:
    """Return whether all values of a one-dimensional array are the same.

    Example:
        >>> all_equal(np.array([2.0, 2.0])), all_equal(np.array([1.0, 2.0]))
        (True, False)
    """
    # A stride of 0 is a broadcast value (`compress_constant`): equal without a comparison of n values.
    return not len(column) or column.strides[0] == 0 or bool((column == column[0]).all())


def compress_constant(column: Floats) -> Floats:
    """Return an equal array that stores its value only once, and is read-only, if all values are equal.

    Args:
        column: (n,) float64.
    """
    return np.broadcast_to(column[0], column.shape) if len(column) and all_equal(column) else column
