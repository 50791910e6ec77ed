"""Banded Toeplitz strategies: the noise of a round takes back some of that of the last few.

Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta, Xu, (Amplified) Banded Matrix Factorization: A unified
approach to private training (BandMF), NeurIPS 2023, arXiv 2306.08153; here Toeplitz, which hardly costs accuracy.
With no more bands than the rounds of a client are apart, its rounds do not touch each other: k of them cost what k
separate releases would.
"""

from functools import lru_cache

import numpy as np

from testbed.arrays import Floats

_DIGITS = 6  # decimal places of a coefficient that are kept


@lru_cache(maxsize=256)
def optimised(bands: int, rounds: int, separation: int, participations: int, error: str = "mean") -> tuple[float, ...]:
    """The `bands` coefficients, the first of them 1, with the least expected error for their sensitivity.

    A quasi-Newton search from the square root of A, cut off, which is the best Toeplitz strategy for the largest error
    of clients with one round (Fichtenberger, Henzinger, Upadhyay, arXiv 2202.11205); the same arguments give the same
    coefficients.

    Args:
        bands: from 1 to `separation` and `rounds`.
        rounds: n, at least 1.
        separation, participations: see `toeplitz.sensitivity`.
        error: see `toeplitz.expected_error`.
    """
    from scipy.optimize import minimize  # slow to import

    if not 1 <= bands <= min(separation, rounds):
        raise ValueError(f"bands: {bands}; must be from 1 to {min(separation, rounds)}, so that rounds do not touch")
    blocks = min(participations, -(-rounds // separation))
    weights = np.arange(rounds, 0, -1) / rounds if error == "mean" else np.ones(rounds)
    # In how many of the worst case's columns, which begin at 0, b, 2b, ..., the coefficient is there at all.
    begins = separation * np.arange(blocks)
    counts = (begins[:, None] + np.arange(bands) < rounds).sum(axis=0).astype(np.float64)

    def loss(tail: Floats) -> tuple[float, Floats]:
        """The logarithm of the squared error, and its gradient by c_1, c_2, ..."""
        from scipy.signal import lfilter, oaconvolve

        band = np.append(1.0, tail)
        impulse = np.zeros(rounds)
        impulse[0] = 1.0
        noise = np.cumsum(lfilter([1.0], band, impulse))
        response = lfilter([1.0], band, noise)  # how A C^-1 changes, with the sign turned
        squares, cost = float((weights * noise * noise).sum()), float((counts * band * band).sum())
        if not np.isfinite(squares):
            return 1e3, np.zeros(bands - 1)
        pull = oaconvolve((weights * noise)[::-1], response)[:rounds][::-1][1:bands]
        gradient = -2 * pull / squares + 2 * counts[1:] * tail / cost
        return float(np.log(squares * cost)), gradient

    if bands == 1:
        return (1.0,)
    beginning = square_root(rounds)[1:bands]
    solution = minimize(loss, beginning, jac=True, method="L-BFGS-B", options={"maxiter": 1000})
    return (1.0, *np.round(solution.x, _DIGITS).tolist())


def square_root(rounds: int) -> Floats:
    """`(rounds,)` coefficients of the C with C C = A: binomials (2j over j) / 4^j."""
    places = np.arange(1, rounds)
    coefficients: Floats = np.append(1.0, np.cumprod((2 * places - 1) / (2 * places)))
    return coefficients
