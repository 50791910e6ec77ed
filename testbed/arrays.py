"""Names for the arrays that go everywhere."""

from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
"""Client numbers (or other indices), usually sorted."""

Floats = npt.NDArray[np.float64]


def all_equal(column: npt.NDArray[Any]) -> bool:
    """Whether all values of an array of one dimension are the same."""
    return not len(column) or column.strides[0] == 0 or bool((column == column[0]).all())


def compress_constant(column: Floats) -> Floats:
    """The same array; where all values are equal, one that holds the value once, and cannot be written to."""
    return np.broadcast_to(column[0], column.shape) if len(column) and all_equal(column) else column
