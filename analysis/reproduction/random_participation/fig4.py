"""Figure 4 of Hasircioglu and Gunduz (arXiv 2205.01556): random participation beside random check-ins."""

import numpy as np
import pandas as pd

from analysis.bounds.random_participation import (
    Delta,
    Participation,
    epsilon_at,
    lower_bound,
    recentred,
    weak_client_sampling,
)
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.random_participation.curves import GUARANTEE, summary
from analysis.reproduction.random_participation.published import PAPER
from analysis.reproduction.verdicts import PaperClaim

_SIGMA, _RATE, _SIZE = 3.0, 0.1, 10
_DELTAS = np.geomspace(1e-8, 1e-3, 26)


def measure_fig4(context: ReproductionContext) -> Measurements:
    """Compute epsilon over delta at p = q = 0.1, C = 1, sigma = 3, for this paper's own schemes."""
    context.progress("random-participation-fig4: epsilon of three curves")
    participation = Participation(_SIZE, _RATE, _RATE)
    curves: dict[str, Delta] = {
        GUARANTEE: weak_client_sampling,
        f"Theorem 4.1, d = {_SIZE} (no guarantee)": recentred,
        f"lower bound, d = {_SIZE}": lower_bound,
    }
    rows = [
        {"analysis": name, "delta": delta, "epsilon": epsilon_at(curve, participation, _SIGMA, delta)}
        for delta in _DELTAS.tolist()
        for name, curve in curves.items()
    ]
    sizes = {"p": _RATE, "q": _RATE, "C": 1.0, "sigma": _SIGMA, "d": _SIZE}
    return Measurements(Setting("none", sizes=sizes), {"curves": pd.DataFrame.from_records(rows)})


def conclude_fig4(measurements: Measurements) -> ReproductionResult:
    """Show this paper's own curves; the comparison needs inputs that the paper does not state."""
    return ReproductionResult(
        summary(measurements.tables["curves"], ["analysis"], "delta", "epsilon"),
        claims=[
            PaperClaim(
                "the proposed scheme significantly improves upon random check-ins (Balle et al., arXiv 2007.06605)",
                "not compared",
                undetermined="which of their bounds is drawn, for how many steps, and with how many samples a client",
            )
        ],
        remarks=[
            "The paper draws random check-ins in a region in which meaningful guarantees were found, and states "
            "neither the bound, nor the number of steps of its epsilon, nor d. Here are only this paper's own "
            f"curves, for d = {measurements.setting.sizes['d']:g}, without a figure.",
            "An earlier version drew the bounds of random check-ins from memory. Their paper was not available for a "
            "check, so they were removed.",
        ],
    )


REPRODUCTIONS = (
    Reproduction(
        "random-participation-fig4",
        "Random participation beside random check-ins",
        f"{PAPER}, Figure 4",
        measure=measure_fig4,
        conclude=conclude_fig4,
    ),
)
