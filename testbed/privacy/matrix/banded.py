"""Banded Toeplitz strategies: the noise of a round cancels part of that of the last few rounds.

Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta, Xu, (Amplified) Banded Matrix Factorization: A unified
approach to private training (BandMF), NeurIPS 2023, arXiv 2306.08153; here Toeplitz, which hardly costs accuracy.
With no more bands than the rounds of a client are apart, its rounds do not overlap: k of them cost as much as k
separate releases.
"""

from functools import lru_cache

import numpy as np

from testbed.arrays import Floats

_DIGITS = 6  # decimal places of a coefficient that are kept


@lru_cache(maxsize=256)
def optimised(bands: int, rounds: int, separation: int, participations: int, error: str = "mean") -> tuple[float, ...]:
    """Find the coefficients with the least expected error for their sensitivity.

    Args:
        bands: number of coefficients, from 1 to `separation` and `rounds`.
        rounds: n, at least 1.
        separation, participations: see `toeplitz.sensitivity`.
        error: see `toeplitz.expected_error`.

    Returns:
        The `bands` coefficients, the first of them 1; the same for the same arguments.

    Raises:
        ValueError: if `bands` is out of range.
    """
    from scipy.optimize import minimize  # slow to import

    if not 1 <= bands <= min(separation, rounds):
        raise ValueError(f"bands: {bands}; must be from 1 to {min(separation, rounds)}, so that rounds do not overlap")
    blocks = min(participations, -(-rounds // separation))
    weights = np.arange(rounds, 0, -1) / rounds if error == "mean" else np.ones(rounds)
    # The number of the worst case's columns, which begin at 0, b, 2b, ..., in which each coefficient has room.
    begins = separation * np.arange(blocks)
    counts = (begins[:, None] + np.arange(bands) < rounds).sum(axis=0).astype(np.float64)

    def loss(tail: Floats) -> tuple[float, Floats]:
        """Return the logarithm of the squared error, and its gradient by c_1, c_2, ..."""
        from scipy.signal import lfilter, oaconvolve

        band = np.append(1.0, tail)
        impulse = np.zeros(rounds)
        impulse[0] = 1.0
        noise = np.cumsum(lfilter([1.0], band, impulse))
        response = lfilter([1.0], band, noise)  # minus the derivative of A C^-1
        squares, cost = float((weights * noise * noise).sum()), float((counts * band * band).sum())
        if not np.isfinite(squares):
            return 1e3, np.zeros(bands - 1)
        pull = oaconvolve((weights * noise)[::-1], response)[:rounds][::-1][1:bands]
        gradient = -2 * pull / squares + 2 * counts[1:] * tail / cost
        return float(np.log(squares * cost)), gradient

    if bands == 1:
        return (1.0,)
    # The quasi-Newton search starts at the square root of A, cut off: the best Toeplitz strategy for the largest error
    # of clients with one round (Fichtenberger, Henzinger, Upadhyay, arXiv 2202.11205).
    beginning = square_root(rounds)[1:bands]
    solution = minimize(loss, beginning, jac=True, method="L-BFGS-B", options={"maxiter": 1000})
    # Rounded, because the last bits of a search differ between machines.
    return (1.0, *np.round(solution.x, _DIGITS).tolist())


def square_root(rounds: int) -> Floats:
    """Return the coefficients of the C with C C = A: binomials (2j over j) / 4^j.

    Example:
        >>> square_root(3).tolist()
        [1.0, 0.5, 0.375]
    """
    places = np.arange(1, rounds)
    coefficients: Floats = np.append(1.0, np.cumprod((2 * places - 1) / (2 * places)))
    return coefficients
