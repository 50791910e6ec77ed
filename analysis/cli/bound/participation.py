"""``testbed bound participation``: privacy cost of a client's rounds under a participation pattern."""

from math import sqrt
from typing import Annotated

from analysis.cli.bound.declaration import Row, declare, finite, format_parameters, results, value_or_reason
from testbed.cli.invocation import option
from testbed.errors import ExperimentError

_MOST_NUMBERS = 50_000_000
_MOST_BINS = 2000
_LEAST_FAILING = 1e-12
_TOO_LARGE = "above 10,000"
_NO_PLD = "no finite value: delta is below the truncation error of the accounting, or the noise is too small for it"

_SYMBOLS = {
    "rounds": "n",
    "separation": "b",
    "noise_multiplier": "sigma",
    "delta": "delta",
    "bands": "bands of C",
    "participations": "participations k",
}
_LABELS = {
    "epsilon_every_round": "every round, public participants",
    "epsilon_min_separation": "b rounds apart (min-separation), public participants",
    "epsilon_bins_seen": "one of b bins, observer knows the bins (the server)",
    "epsilon_bins_unseen": "one of b bins, observer sees only models (confidence {confidence:g})",
    "epsilon_bins_unseen_drawn": "  estimate of this epsilon, no bound",
    "epsilon_poisson": "each round with probability 1/b, observer sees only models",
}


def _text(row: Row) -> str:
    parameters = format_parameters(row, _SYMBOLS)
    return f"epsilon by pattern, {parameters}\n{results(row, _LABELS, lambda values, key: f'{values[key]:.4g}')}"


@declare(
    _text,
    "testbed bound participation --rounds 200 --separation 20 --noise-multiplier 2 --delta 1e-6",
    "testbed bound participation --rounds 200 --separation 20 --noise-multiplier 4 --delta 1e-6 --bands 20",
    "testbed bound participation --rounds 60 --separation 6 --noise-multiplier 3 --delta 1e-5 --coefficients 1,0.5 "
    "--format json",
    then="The epsilon for secret bins is a Monte Carlo bound, wrong with probability at most 1 - CONFIDENCE. More "
    "samples make the bound smaller, not safer.",
)
def bound_participation(
    rounds: Annotated[int, option("N", "Rounds of the training.", min=1)],
    separation: Annotated[
        int, option("B", "Smallest number of rounds between two participations, and number of bins, b.", min=1)
    ],
    noise_multiplier: Annotated[float, option("Z", "Standard deviation of the noise, divided by the clipping norm.")],
    delta: Annotated[float, option("D", "delta of differential privacy.")],
    bands: Annotated[
        int | None,
        option(
            "P",
            "Correlated noise: the banded square root of the prefix sums, with P bands.",
            min=1,
            max=1_000_000,
        ),
    ] = None,
    coefficients: Annotated[
        str | None, option("LIST", "Correlated noise: the first column of the Toeplitz matrix C, e.g. 1,0.5.")
    ] = None,
    samples: Annotated[
        int, option("M", "Number of samples of Monte Carlo accounting.", min=1000, max=100_000_000)
    ] = 200_000,
    confidence: Annotated[float, option("C", "Confidence of Monte Carlo accounting.", min=0, max=1)] = 0.999,
    seed: Annotated[int, option("S", "Seed of the samples.", min=0)] = 0,
) -> Row:
    """Compute a client's epsilon by participation pattern: every round, b rounds apart, public or secret bins.

    Derived in docs/explanation/participation-patterns.md.
    """
    import numpy as np

    from analysis.bounds.balls_in_bins import (
        BallsInBins,
        gaussian_epsilon,
        square_root_coefficients,
        toeplitz_means,
    )
    from analysis.bounds.checks import require_inside, require_positive
    from testbed.privacy.gaussian import SubsampledGaussianAccountant

    if bands is not None and coefficients is not None:
        raise ExperimentError("--bands, --coefficients: both define C; give only one of them")
    column = _numbers(coefficients) if coefficients is not None else square_root_coefficients(min(bands or 1, rounds))
    require_positive(noise_multiplier=noise_multiplier)
    require_inside(delta=delta, confidence=confidence)
    if 1 - confidence < _LEAST_FAILING:
        raise ValueError(f"confidence: {confidence}; at most 1 - {_LEAST_FAILING:g}")
    if separation > _MOST_BINS or separation * rounds > _MOST_NUMBERS:
        raise ValueError(
            f"separation: {separation} of {rounds} rounds; at most {_MOST_BINS}, and its product with the rounds at "
            f"most {_MOST_NUMBERS}"
        )
    bins = BallsInBins(toeplitz_means(column, rounds, separation), noise_multiplier)
    every = BallsInBins(toeplitz_means(column, rounds, 1), noise_multiplier)
    estimate = bins.drawn_epsilon(delta, max(1, samples // 10))
    verified = bins.epsilon(estimate, delta, samples, confidence, np.random.default_rng(seed))
    participations, width = -(-rounds // separation), len(column)
    row: Row = {
        "rounds": rounds,
        "separation": separation,
        "noise_multiplier": noise_multiplier,
        "delta": delta,
        "bands": width,
        "participations": participations,
        "samples": samples,
        "confidence": confidence,
        **finite("epsilon_every_round", every.seen_epsilon(delta), _TOO_LARGE),
    }
    if width <= separation:  # columns of C that are b apart share no row: their squares add up, for any such columns
        norm = sqrt(participations * float(np.square(column).sum()))
        row |= finite("epsilon_min_separation", gaussian_epsilon(norm / noise_multiplier, delta), _TOO_LARGE)
    else:
        reason = (
            f"{width} bands, more than b: columns that are b apart overlap, and the worst of them are not computed here"
        )
        row |= value_or_reason("epsilon_min_separation", None, reason)
    row |= finite("epsilon_bins_seen", bins.seen_epsilon(delta), _TOO_LARGE)
    row |= finite("epsilon_bins_unseen", verified, _TOO_LARGE)
    row |= finite("epsilon_bins_unseen_drawn", estimate, _TOO_LARGE)
    if width > 1:
        return row | value_or_reason("epsilon_poisson", None, "its rounds are not independent: C is not the identity")
    poisson = SubsampledGaussianAccountant(noise_multiplier, 1 / separation).epsilon({1.0: rounds}, delta)
    return row | finite("epsilon_poisson", poisson, _NO_PLD)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ExperimentError(f"--coefficients: {text!r}; give numbers with commas between them, as 1,0.5") from None
