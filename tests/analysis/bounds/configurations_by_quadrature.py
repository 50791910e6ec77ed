"""Slow oracle of the loss of gradient configurations: explicit densities, summed over the plane."""

from itertools import product

import numpy as np

from analysis.bounds.random_participation import Participation
from testbed.arrays import Floats

STEP = 0.05


def densities(who: Participation, sigma: float, gradients: Floats, with_x: Floats) -> tuple[Floats, Floats]:
    """Densities with and without x' at the points of a grid, from all subsets of the other samples.

    Args:
        gradients: `(d, 2)` in units of C.
        with_x: `(2,)`, the gradient of x'.
    """
    unit, p, q = who.clip / sigma, who.client_rate, who.sample_rate
    reach = (len(gradients) + 1) * unit + 8
    axis = np.arange(-reach, reach, STEP)

    def bell(mean: Floats) -> Floats:
        factors = [np.exp(-((axis - place) ** 2) / 2) / np.sqrt(2 * np.pi) for place in mean]
        return np.outer(*factors)

    absent = bell(np.zeros(2))
    others, moved = np.zeros_like(absent), np.zeros_like(absent)
    for used in product((0, 1), repeat=len(gradients)):
        weight = q ** sum(used) * (1 - q) ** (len(used) - sum(used))
        total = unit * np.asarray(used, float) @ gradients
        others += weight * bell(total)
        moved += weight * bell(total + unit * with_x)
    return (1 - p) * absent + p * ((1 - q) * others + q * moved), (1 - p) * absent + p * others


def divergence(upper: Floats, lower: Floats, epsilon: float) -> float:
    """Hockey-stick divergence of two densities of `densities`."""
    return float(np.maximum(upper - np.exp(epsilon) * lower, 0).sum() * STEP**2)


def unit_vectors(angles: Floats) -> Floats:
    """`(n, 2)` vectors of norm 1."""
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)
