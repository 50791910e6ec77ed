"""Gaussian noise and the coins of sampling, from a cryptographic key stream.

Noise in floating point can betray what it hides by its last bits (Mironov 2012, "On significance of the least
significant bits for differential privacy"): not every number is a sum of this value and some noise. Here values and
noise lie on one grid of 2**-32 before they are added, so that every grid point can come from every value, and what is
sent is the exact Gaussian mechanism's output rounded: post-processing. What is left is how well the noise follows its
distribution: it is made of 53-bit uniform numbers by Box and Muller's transform in 64-bit floating point, and never
beyond 8.57 standard deviations, which true noise is with probability 1e-17 per element.
"""

import math

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats
from testbed.crypto.masks import mask

GRID = 2.0**-32
"""The distance between values that noise is added to; `testbed.parties.sums` sums on the same grid."""

_UNIFORM_BITS = 53


def gaussian(seed: bytes, count: int) -> Floats:
    """`(count,)` independent standard normal numbers, a function of the seed.

    Args:
        seed: 32 secret bytes, used for nothing else.
        count: how many.
    """
    pairs = (count + 1) // 2
    words = mask(seed, 2 * pairs, 64) >> np.uint64(64 - _UNIFORM_BITS)
    uniform = (words[:pairs] + np.uint64(1)) * 2.0**-_UNIFORM_BITS  # in (0, 1]: has a logarithm
    radius = np.sqrt(-2.0 * np.log(uniform))
    angle = words[pairs:] * (2 * math.pi * 2.0**-_UNIFORM_BITS)
    return np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:count]


def with_noise(values: npt.NDArray[np.floating], sigma: float, seed: bytes) -> Floats:
    """`(d,)` the Gaussian mechanism: values plus independent noise of standard deviation `sigma`, on the grid.

    Noise is exact up to 2**21, hence `sigma` up to 2**17; a sum beyond that is rounded afterwards.

    Args:
        values: `(d,)` finite.
        sigma: much more than the grid's step, and at most 2**17; 0 adds nothing.
        seed: as of `gaussian`.
    """
    on_grid: Floats = np.rint(np.asarray(values, np.float64) / GRID) * GRID
    if sigma:
        on_grid += np.rint(gaussian(seed, len(on_grid)) * (sigma / GRID)) * GRID
    return on_grid


def coins(seed: bytes, count: int, rate: float) -> npt.NDArray[np.bool_]:
    """`(count,)` independent coins that are true with probability `rate` (to 2**-53), a function of the seed.

    Args:
        seed: 32 secret bytes, used for nothing else.
        count: how many.
        rate: in [0, 1].
    """
    uniform = (mask(seed, count, 64) >> np.uint64(64 - _UNIFORM_BITS)) * 2.0**-_UNIFORM_BITS
    return uniform < rate
