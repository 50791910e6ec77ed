"""``testbed bound participation``: what a client's rounds cost under a participation pattern."""

from typing import Annotated

from analysis.cli.bound.selection import Format, in_options
from testbed.cli.invocation import Debug, examples, option
from testbed.cli.terminal import echo
from testbed.errors import ExperimentError

EPILOG = examples(
    "testbed bound participation --rounds 200 --separation 20 --noise-multiplier 2 --delta 1e-6",
    "testbed bound participation --rounds 200 --separation 20 --noise-multiplier 4 --delta 1e-6 --bands 20",
    "testbed bound participation --rounds 60 --separation 6 --noise-multiplier 3 --delta 1e-5 --coefficients 1,0.5 "
    "--format json",
    then="Of bins that nobody sees epsilon is drawn, and wrong with a probability of 1 - CONFIDENCE at most; more "
    "samples make it smaller, not safer.",
)


def bound_participation(
    rounds: Annotated[int, option("N", "Rounds of the training.", min=1)],
    separation: Annotated[int, option("B", "Rounds from one participation to the next (b), and bins.", min=1)],
    noise_multiplier: Annotated[float, option("Z", "Standard deviation of the noise over the clip.")],
    delta: Annotated[float, option("D", "The delta of epsilon.")],
    bands: Annotated[
        int | None,
        option(
            "P",
            "Correlated noise: the banded square root of the prefix sums, with so many bands.",
            min=1,
            max=1_000_000,
        ),
    ] = None,
    coefficients: Annotated[
        str | None, option("LIST", "Correlated noise: the first column of the Toeplitz matrix C, e.g. 1,0.5.")
    ] = None,
    samples: Annotated[int, option("M", "Samples of Monte Carlo accounting.", min=1000, max=100_000_000)] = 200_000,
    confidence: Annotated[float, option("C", "That of Monte Carlo accounting.", min=0, max=1)] = 0.999,
    seed: Annotated[int, option("S", "Of the samples.", min=0)] = 0,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """What a client's rounds cost: in every round, b rounds apart, in bins that somebody sees or nobody.

    Derived in docs/explanation/participation-patterns.md.
    """
    from analysis.bounds.balls_in_bins import square_root_coefficients
    from analysis.bounds.participation_report import participation_bounds, text
    from analysis.bounds.rows import render

    if bands is not None and coefficients is not None:
        raise ExperimentError("--bands: says C beside --coefficients; leave out one of the two")
    column = _numbers(coefficients) if coefficients is not None else square_root_coefficients(min(bands or 1, rounds))
    with in_options():
        row = participation_bounds(rounds, separation, noise_multiplier, delta, column, samples, confidence, seed)
    echo(render(row, format, text), nl=False)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ExperimentError(f"--coefficients: {text!r}; numbers with commas between them, as 1,0.5") from None
