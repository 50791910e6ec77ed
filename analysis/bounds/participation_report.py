"""What a client's rounds cost under a participation pattern, as one flat object, for scripts and for the command."""

from collections.abc import Sequence
from math import sqrt

import numpy as np

from analysis.bounds.balls_in_bins import BallsInBins, gaussian_epsilon, toeplitz_means
from analysis.bounds.rows import Row, finite, found, given, require_inside, require_positive, results
from testbed.privacy.gaussian import SubsampledGaussianAccountant

_MOST_NUMBERS = 50_000_000
_MOST_BINS = 2000
_LEAST_FAILING = 1e-12
_TOO_LARGE = "above 10,000"
_NO_PLD = "no finite figure: delta is below what its accounting cuts off, or the noise too little for it"


def participation_bounds(
    rounds: int,
    separation: int,
    noise_multiplier: float,
    delta: float,
    coefficients: Sequence[float] = (1.0,),
    samples: int = 100_000,
    confidence: float = 0.999,
    seed: int = 0,
) -> Row:
    """Epsilons of the whole training, of a client that is in every round; that keeps b rounds apart; in bins.

    Args:
        rounds: n.
        separation: b: of min-separation, and the number of bins.
        noise_multiplier: sigma: standard deviation of the noise z, of which C^-1 z is added to the sums, over the clip.
        delta: in (0, 1).
        coefficients: the first column of the Toeplitz matrix C; ``[1.0]`` is independent noise.
        samples, confidence, seed: of the epsilon that is drawn (`analysis.bounds.balls_in_bins`).

    Raises:
        ValueError: a number is out of range.
    """
    require_positive(noise_multiplier=noise_multiplier)
    require_inside(delta=delta, confidence=confidence)
    if 1 - confidence < _LEAST_FAILING:
        raise ValueError(f"confidence: {confidence}; at most 1 - {_LEAST_FAILING:g}")
    if separation > _MOST_BINS or separation * rounds > _MOST_NUMBERS:
        raise ValueError(
            f"separation: {separation} of {rounds} rounds; at most {_MOST_BINS}, and with the rounds as factor at most "
            f"{_MOST_NUMBERS}"
        )
    bins = BallsInBins(toeplitz_means(coefficients, rounds, separation), noise_multiplier)
    every = BallsInBins(toeplitz_means(coefficients, rounds, 1), noise_multiplier)
    drawn = bins.drawn_epsilon(delta, max(1, samples // 10))
    verified = bins.epsilon(drawn, delta, samples, confidence, np.random.default_rng(seed))
    bands = len(coefficients)
    row: Row = {
        "rounds": rounds,
        "separation": separation,
        "noise_multiplier": noise_multiplier,
        "delta": delta,
        "bands": bands,
        "participations": -(-rounds // separation),
        "samples": samples,
        "confidence": confidence,
    }
    row |= finite("epsilon_every_round", every.seen_epsilon(delta), _TOO_LARGE)
    row |= _min_separation(row, coefficients)
    row |= finite("epsilon_bins_seen", bins.seen_epsilon(delta), _TOO_LARGE)
    row |= finite("epsilon_bins_unseen", verified, _TOO_LARGE)
    row |= finite("epsilon_bins_unseen_drawn", drawn, _TOO_LARGE)
    if bands > 1:
        return row | found("epsilon_poisson", None, "its rounds are not independent: C is not the identity")
    poisson = SubsampledGaussianAccountant(noise_multiplier, 1 / separation).epsilon({1.0: rounds}, delta)
    return row | finite("epsilon_poisson", poisson, _NO_PLD)


def _min_separation(row: Row, coefficients: Sequence[float]) -> Row:
    """With b bands at most, columns of C that are b apart share no row: their squares add up, whichever they are."""
    if len(coefficients) > row["separation"]:
        reason = (
            f"{len(coefficients)} bands, more than b: columns that are b apart overlap, and which of them are worst "
        )
        return found("epsilon_min_separation", None, reason + "is not worked out here")
    norm = sqrt(row["participations"] * float(np.square(coefficients).sum()))
    return finite("epsilon_min_separation", gaussian_epsilon(norm / row["noise_multiplier"], row["delta"]), _TOO_LARGE)


# -- as text ----------------------------------------------------------------------------------------------------------

_GIVEN = {
    "rounds": "n",
    "separation": "b",
    "noise_multiplier": "sigma",
    "delta": "delta",
    "bands": "bands of C",
    "participations": "participations k",
}
_LABELS = {
    "epsilon_every_round": "in every round, whoever sees it",
    "epsilon_min_separation": "b rounds apart (min-separation), whoever sees it",
    "epsilon_bins_seen": "in one of b bins, to who sees the bins (the server)",
    "epsilon_bins_unseen": "in one of b bins, to who sees models alone (confidence {confidence:g})",
    "epsilon_bins_unseen_drawn": "  the same as drawn: near the truth, and no bound",
    "epsilon_poisson": "each round with probability 1/b, to who sees models alone",
}


def text(row: Row) -> str:
    """The row for a person."""
    return f"epsilon at {given(row, _GIVEN)}\n{results(row, _LABELS, lambda found, key: f'{found[key]:.4g}')}"
