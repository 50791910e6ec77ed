"""Figure 1 of Hasircioglu and Gunduz (arXiv 2205.01556): delta over epsilon at sigma = 1, p = q = 0.1."""

import numpy as np

from analysis.bounds.random_participation import Delta, Participation
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.random_participation.curves import draw_curves
from analysis.reproduction.random_participation.published import PAPER


def run_fig1(context: ReproductionContext) -> ReproductionResult:
    """delta over epsilon at sigma = 1, p = q = 0.1."""

    def delta_at(delta: Delta, who: Participation, epsilon: float) -> float:
        return delta(who, 1.0, epsilon)

    return draw_curves(
        context, "random-participation-fig1", np.linspace(0.0, 2.0, 41), delta_at, x_label="epsilon", y_label="delta"
    )


REPRODUCTIONS = (
    Reproduction(
        name="random-participation-fig1",
        title="Random participation: delta against epsilon",
        source=f"{PAPER}, Figure 1",
        run=run_fig1,
    ),
)
