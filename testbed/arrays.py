"""Names for the arrays that go everywhere."""

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
"""Client numbers (or other indices), usually sorted."""

Floats = npt.NDArray[np.float64]
