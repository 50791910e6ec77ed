"""Figure 5 of Hasircioglu and Gunduz (arXiv 2205.01556): epsilon over q at the same p q."""

import numpy as np
import pandas as pd

from analysis.bounds.random_participation import Delta, Participation, epsilon_at, lower_bound, recentred
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.random_participation.curves import (
    BASELINES,
    SIZE_COLOURS,
    curve,
    draw_curves,
    summary,
)
from analysis.reproduction.random_participation.published import PAPER
from analysis.reproduction.verdicts import PaperClaim, above, between

_BOTH_RATES, _SIGMA, _DELTA = 1e-4, 1.0, 1e-6
_RATES = np.geomspace(_BOTH_RATES, 1.0, 25)

SOLVER_ERROR = 1e-9
"""Error of epsilon that its solver leaves between neighbouring points of a curve."""


def measure_fig5(context: ReproductionContext) -> Measurements:
    """Compute epsilon over q at p q = 1e-4, sigma = 1."""
    context.progress("random-participation-fig5: epsilon of nine curves")
    curves: dict[str, tuple[Delta, int | None, str, str]] = {
        name: (delta, None, colour, style) for name, (delta, colour, style) in BASELINES.items()
    }
    for size, colour in SIZE_COLOURS.items():
        curves[f"d = {size}: 4.1"] = (recentred, size, colour, "--")
        curves[f"d = {size}: lower bound"] = (lower_bound, size, colour, "-")
    rows = []
    for name, (delta, local_samples, _, _) in curves.items():
        for q in _RATES.tolist():
            # The baselines do not depend on d. At q = 1e-4, rounding may make p larger than 1.
            participation = Participation(local_samples or 1, min(1.0, _BOTH_RATES / q), q)
            rows.append({"analysis": name, "q": q, "epsilon": epsilon_at(delta, participation, _SIGMA, _DELTA)})
    table = pd.DataFrame.from_records(rows)
    lines = [
        (part["q"], part["epsilon"], {"color": colour, "linestyle": style, "label": name, "linewidth": 1.0})
        for name, (_, _, colour, style) in curves.items()
        for part in [curve(table, name)]
    ]
    axes = {"xscale": "log", "xlabel": "q, at p q = 1e-4", "ylabel": "epsilon at delta = 1e-6"}
    return Measurements(
        Setting("none", sizes={"p q": _BOTH_RATES, "sigma": _SIGMA, "C": 1.0, "delta": _DELTA}),
        {"curves": table},
        draw_curves(context.out / "random-participation-fig5", 3.0, 2, lines, **axes),
    )


def conclude_fig5(measurements: Measurements) -> ReproductionResult:
    """Compare the cost of a larger q at the same p q with the paper's statements."""
    table = measurements.tables["curves"]
    return ReproductionResult(
        summary(table, ["analysis"], "q", "epsilon"),
        claims=claims_over_rates(table),
        remarks=[
            "delta = 1e-6 is ours; the paper does not state it. OLS is drawn with q, as in the paper.",
            "CS depends on p q alone, so its curve is level.",
        ],
    )


def claims_over_rates(table: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims on the cost of a larger q at the same p q.

    Args:
        table: columns analysis, q, epsilon; the first point of a curve has p = 1, the last q = 1.
    """
    curves = {str(name): rows["epsilon"].to_numpy(np.float64) for name, rows in table.groupby("analysis", sort=False)}
    schemes = {name: values for name, values in curves.items() if not name.endswith("lower bound")}
    first = [float(values[0]) for values in schemes.values()]
    single, many = curves["d = 1: 4.1"], curves["d = 100: 4.1"]
    more = many - single
    least = min(float(np.diff(values).min()) for values in schemes.values())
    excess = max(float(values[0] - values.min()) for values in schemes.values())
    return [
        PaperClaim(
            "at fixed p q, the guarantees of all the schemes degrade as q increases",
            "epsilon from q = 1e-4 to q = 1: "
            + "; ".join(f"{name} {values[0]:.3g} to {values[-1]:.3g}" for name, values in schemes.items()),
            [
                between("least step of epsilon, any scheme", least, least=-SOLVER_ERROR),
                *(
                    above(f"rise of epsilon, {name}", float(values[-1] - values[0]), SOLVER_ERROR)
                    for name, values in schemes.items()
                ),
            ],
        ),
        PaperClaim(
            "with p = 1 all schemes are equivalent, and epsilon is at its best",
            f"epsilon {min(first):.4g} to {max(first):.4g}",
            [
                between("largest epsilon over the smallest at p = 1", max(first) / min(first), 1.0, 1 + 1e-3),
                between("epsilon at p = 1 less the smallest, any scheme", excess, 0.0, SOLVER_ERROR),
            ],
        ),
        PaperClaim(
            "as q increases, smaller data sets become more favourable",
            f"at q = 1 epsilon is {single[-1]:.3g} for d = 1 and {many[-1]:.3g} for d = 100 (Theorem 4.1 as "
            f"evaluated), at q = 1e-4 {single[0]:.3g} and {many[0]:.3g}",
            [above("least step of the difference of d = 100 and d = 1, over q", float(np.diff(more).min()))],
        ),
    ]


REPRODUCTIONS = (
    Reproduction(
        "random-participation-fig5",
        "Client sampling against local sampling",
        f"{PAPER}, Figure 5",
        measure=measure_fig5,
        conclude=conclude_fig5,
    ),
)
