"""Lotto's Figure 4: improvement of the worst client by population refinement."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.plot_data import plot_data
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.lotto.published import PAPER
from analysis.reproduction.verdicts import PaperClaim, above, within_factor
from analysis.style import COLUMN_INCHES, house_style, save

POPULATION = 700
EXPONENTS = (0.5, 1.0, 1.2, 2.0)
EXCLUDED = (0.1, 0.2, 0.4, 0.6, 0.8)
SAME = 1.01
"""Factor within which formula and distribution count as equal, since whole clients, of 700, are left out."""
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def zipf(population: int, exponent: float) -> np.ndarray:
    """Return the metric of each client, worst first: i**-p for the i-th worst, where smaller is better; `(n,)` float64.

    Args:
        population: n.
        exponent: p.
    """
    return np.arange(1, population + 1, dtype=np.float64) ** -exponent


def improvement(metric: np.ndarray, excluded: float) -> float:
    """Return the worst value in the population over the worst value after leaving out the worst fraction.

    Args:
        metric: `(n,)` worst first.
        excluded: fraction of the clients to leave out.
    """
    return float(metric[0] / metric[round(excluded * len(metric))])


_FORMULA = "(1-d)^-p (paper)"


def measure_fig4(context: ReproductionContext) -> Measurements:
    """Compute the improvement by refinement on the distribution that the paper states, and on the opposite one."""
    rows = [
        {
            "exponent": p,
            "excluded": d,
            "improvement": improvement(zipf(POPULATION, p), d),
            "opposite": improvement((1 / zipf(POPULATION, p))[::-1], d),
        }
        for p in EXPONENTS
        for d in EXCLUDED
    ]
    setting = Setting(
        "none",
        sizes={"population": POPULATION},
        differs=["the paper states neither the population nor the values of p"],
    )
    return Measurements(setting, {"improvements": pd.DataFrame(rows)}, _draw(context.out / "lotto-fig4"))


def conclude_fig4(measurements: Measurements) -> ReproductionResult:
    """Compare the improvements with the formula that the paper prints."""
    points = measurements.tables["improvements"]
    points = points.assign(**{_FORMULA: (1 - points["excluded"]) ** -points["exponent"]})
    of_point = {(row["exponent"], row["excluded"]): row for _, row in points.iterrows()}
    example, ratios = of_point[1.2, 0.2], points["improvement"] / points[_FORMULA]
    long_tail, short_tail = (float(of_point[p, 0.2]["improvement"]) for p in (2.0, 0.5))
    return ReproductionResult(
        table=points.drop(columns="opposite"),
        claims=[
            PaperClaim(
                "leaving out the worst d improves the worst client left by (1-d)^-p",
                f"at d = 0.2, p = 1.2: {example[_FORMULA]:.3f} by the formula, {example['improvement']:.0f} by the "
                "distribution that is stated",
                [
                    within_factor("least of it over (1-d)^-p, all d and p", float(ratios.min()), 1, SAME),
                    within_factor("most of it over (1-d)^-p, all d and p", float(ratios.max()), 1, SAME),
                ],
                uses_data=False,
            ),
            PaperClaim(
                "refinement does best where few clients are bad (a long tail)",
                f"d = 0.2 improves the worst client by {long_tail:.0f} at p = 2 and by {short_tail:.0f} at p = 0.5",
                [above("improvement at p = 2 over that at p = 0.5", long_tail / short_tail, 1)],
                uses_data=False,
            ),
        ],
        remarks=[
            "If the i-th worst client's X is proportional to i^-p, the worst client left is number dn + 1 and the "
            "factor is (dn + 1)^p, which grows with n. (1-d)^-p belongs to X proportional to i^p for the i-th best "
            f"client (checked: {example['opposite']:.3f}), which has no long tail. The paper's point holds all the "
            "more.",
            f"Population {POPULATION}; the paper states none, nor its values of p.",
        ],
    )


def _draw(path: Path) -> list[Path]:
    fractions = np.linspace(0, 0.9, 91)
    with house_style():
        figure = Figure(figsize=(COLUMN_INCHES, 2.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        for p, colour in zip(EXPONENTS, _COLOURS, strict=True):
            metric = zipf(POPULATION, p)
            left.loglog(np.arange(1, POPULATION + 1), metric, color=colour, label=f"p = {p:g}")
            left.set_xlabel("Client, worst first")
            right.semilogy(100 * fractions, (1 - fractions) ** -p, color=colour, linestyle="--")
            right.semilogy(100 * fractions, [improvement(metric, float(d)) for d in fractions], color=colour)
        left.set_title("(a) Metric X", loc="left")
        left.set_ylabel("X, smaller is better")
        left.legend(loc="lower left")
        right.set_title("(b) Worst client left", loc="left")
        right.set(xlabel="Excluded d [%]", ylabel="Improvement")
        right.plot([], [], "k-", label="by the stated distribution")
        right.plot([], [], "k--", label=r"by the printed formula $(1-d)^{-p}$")
        figure.legend(handles=right.get_lines()[-2:], loc="outside lower center", ncols=2)
        right.set_xlim(0, 90)
        right.set_xticks(range(0, 91, 30))
        for axes in (left, right):
            axes.grid()
        return save(figure, path, plot_data(figure))


REPRODUCTIONS = (
    Reproduction(
        "lotto-fig4",
        "Effect of population refinement on the worst client",
        f"{PAPER}, Figure 4",
        measure=measure_fig4,
        conclude=conclude_fig4,
    ),
)
