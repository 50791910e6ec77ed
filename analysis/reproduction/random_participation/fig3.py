"""Figure 3 of Hasircioglu and Gunduz (arXiv 2205.01556): delta over sigma at epsilon = 0.5, p = q = 0.1."""

import numpy as np

from analysis.bounds.random_participation import Delta, Participation
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.random_participation.curves import draw_curves
from analysis.reproduction.random_participation.published import PAPER


def run_fig3(context: ReproductionContext) -> ReproductionResult:
    """delta over sigma at epsilon = 0.5, p = q = 0.1."""

    def delta_at(delta: Delta, who: Participation, sigma: float) -> float:
        return delta(who, sigma, 0.5)

    return draw_curves(
        context,
        "random-participation-fig3",
        np.geomspace(0.5, 3.0, 31),
        delta_at,
        x_label="sigma [C]",
        y_label="delta at epsilon = 0.5",
    )


REPRODUCTIONS = (
    Reproduction(
        name="random-participation-fig3",
        title="Random participation: delta against the noise",
        source=f"{PAPER}, Figure 3",
        run=run_fig3,
    ),
)
