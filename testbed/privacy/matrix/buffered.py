"""Buffered linear Toeplitz strategies (BLT): correlated noise with a few vectors of memory.

Dvijotham, McMahan, Pillutla, Steinke, Thakurta, Efficient and Near-Optimal Noise Generation for Streaming Differential
Privacy, FOCS 2024, arXiv 2404.16706. McMahan, Xu, Zhang, A Hassle-free Algorithm for Strong Differential Privacy in
Federated Learning Systems, EMNLP 2024, arXiv 2408.08868: for clients with several rounds, at least b apart.

With decays theta and scales omega of m buffers the coefficients are 1 and sum_i omega_i theta_i^(j-1) for j = 1, 2, ...
Their generating function is prod(1 - theta'_i x) / prod(1 - theta_i x), a ratio of polynomials, so the inverse is a
BLT as well, with decays theta' (Lemma 5.2 of arXiv 2404.16706): `scales` gives omega from both.

"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from testbed.arrays import Floats
from testbed.privacy.matrix.toeplitz import error_of, sensitivity

MOST_BUFFERS = 10
_SMALLEST, _LARGEST = 1e-10, 50.0  # of a step between logarithms of decays: steps beyond make no difference
_DIGITS = 5  # of a step: the loss is flat there, and the last bits differ between machines


@dataclass(frozen=True)
class Buffers:
    """The parameters of a BLT.

    Attributes:
        decays: theta, one per buffer, in (0, 1].
        scales: omega, one per buffer.
    """

    decays: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()

    def coefficients(self, rounds: int) -> Floats:
        """Return the first column of C, `(rounds,)`."""
        return _series(np.array(self.decays), np.array(self.scales), rounds)


INDEPENDENT = Buffers()
"""C = I: each release has independent noise (DP-SGD, DP-FedAvg)."""
PREFIX_SUMS = Buffers((1.0,), (1.0,))
"""C = A: each model, rather than each step, has independent noise ("output perturbation")."""


def _series(decays: Floats, scales: Floats, rounds: int) -> Floats:
    series = np.zeros(rounds)
    series[0] = 1.0
    if len(decays):
        with np.errstate(under="ignore"):
            series[1:] = (scales[:, None] * np.exp(np.outer(np.log(decays), np.arange(rounds - 1)))).sum(axis=0)
    return series


def scales(decays: Floats, inverse_decays: Floats) -> Floats:
    """Compute the scales of a BLT from its decays and those of its inverse.

    Args:
        decays: `(m,)` theta.
        inverse_decays: `(m,)` theta'.

    Returns:
        `(m,)` omega.

    Source:
        arXiv 2404.16706, Lemma 5.2.
    """
    apart = decays[:, None] - decays
    np.fill_diagonal(apart, 1.0)
    ratios = (decays[:, None] - inverse_decays) / apart
    np.fill_diagonal(ratios, decays - inverse_decays)
    omegas: Floats = ratios.prod(axis=1)
    return omegas


def _decays(steps: Floats) -> tuple[Floats, Floats]:
    """Return the decays and the inverse decays from the logarithms of the `(2 m,)` steps between them."""
    # The decays alternate, 1 > theta_1 > theta'_1 > theta_2 > ... > 0, for any steps: then omega is positive and the
    # coefficients fall from 1 on (the sum of omega is that of theta - theta', below 1), so the sensitivity is exact.
    places = np.exp(-np.cumsum(np.exp(steps)))
    return places[::2], places[1::2]


@lru_cache(maxsize=256)
def optimised(buffers: int, rounds: int, separation: int, participations: int, error: str = "mean") -> Buffers:
    """Find the BLT with the least expected error for its sensitivity, by a local search.

    Args:
        buffers: m, from 1 to `MOST_BUFFERS`.
        rounds: n, at least 2.
        separation, participations: see `toeplitz.sensitivity`.
        error: see `toeplitz.expected_error`.

    Returns:
        The BLT; the same for the same arguments.

    Raises:
        ValueError: if an argument is out of range.
    """
    from scipy.optimize import minimize  # slow to import

    if not 1 <= buffers <= MOST_BUFFERS:
        raise ValueError(f"buffers: {buffers}; must be from 1 to {MOST_BUFFERS}")
    if rounds < 2:
        raise ValueError(f"rounds: {rounds}; must be at least 2")

    def loss(steps: Floats) -> float:
        decays, inverse_decays = _decays(steps)
        if len(np.unique(np.append(decays, inverse_decays))) < 2 * buffers:
            return 1e3  # two decays are equal: the BLT has fewer buffers
        coefficients = _series(decays, scales(decays, inverse_decays), rounds)
        noise = np.cumsum(_series(inverse_decays, scales(inverse_decays, decays), rounds))
        return float(np.log(error_of(noise, error) * sensitivity(coefficients, separation, participations)))

    bounds = [(float(np.log(_SMALLEST)), float(np.log(_LARGEST)))] * (2 * buffers)
    solutions = []
    # A local search: take the better result of two starts.
    for slowest in (1.0 / rounds, 1.0 / min(rounds, 2 * separation)):
        places = np.geomspace(slowest, 2.0, 2 * buffers)
        beginning = np.log(np.diff(places, prepend=0.0))
        solutions.append(
            minimize(loss, beginning, method="L-BFGS-B", bounds=bounds, options={"maxiter": 300, "ftol": 1e-8})
        )
    best = min(solutions, key=lambda solution: float(solution.fun)).x
    # Rounded, because the last bits of a search differ between machines.
    rounded_steps = np.array([float(f"{step:.{_DIGITS - 1}e}") for step in np.exp(best)])
    decays, inverse_decays = _decays(np.log(rounded_steps))
    return Buffers(tuple(decays.tolist()), tuple(scales(decays, inverse_decays).tolist()))
