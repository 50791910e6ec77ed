"""Figure 2 of Hasircioglu and Gunduz (arXiv 2205.01556): epsilon over sigma at delta = 1e-5, p = q = 0.1."""

import numpy as np

from analysis.bounds.random_participation import Delta, Participation, epsilon_at
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.random_participation.curves import draw_curves
from analysis.reproduction.random_participation.published import PAPER


def run_fig2(context: ReproductionContext) -> ReproductionResult:
    """epsilon over sigma at delta = 1e-5, p = q = 0.1."""

    def epsilon(delta: Delta, who: Participation, sigma: float) -> float:
        return epsilon_at(delta, who, sigma, 1e-5)

    return draw_curves(
        context,
        "random-participation-fig2",
        np.geomspace(0.5, 5.0, 25),
        epsilon,
        x_label="sigma [C]",
        y_label="epsilon at delta = 1e-5",
    )


REPRODUCTIONS = (
    Reproduction(
        name="random-participation-fig2",
        title="Random participation: epsilon against the noise",
        source=f"{PAPER}, Figure 2",
        run=run_fig2,
    ),
)
