"""Lotto's Figure 4: improvement of the worst client by population refinement."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.plot_data import plot_data
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
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


def run_fig4(context: ReproductionContext) -> ReproductionResult:
    """Compare the formula that the paper prints with refinement on the distribution that the paper states."""
    rows = [
        {
            "exponent": p,
            "excluded": d,
            "improvement": improvement(zipf(POPULATION, p), d),
            "(1-d)^-p (paper)": (1 - d) ** -p,
        }
        for p in EXPONENTS
        for d in EXCLUDED
    ]
    table = pd.DataFrame(rows)
    spread = zipf(POPULATION, 1.2)
    reversed_too = improvement((1 / spread)[::-1], 0.2)
    return ReproductionResult(
        table=table,
        figures=_draw(context.out / "lotto-fig4"),
        claims=claims_of(table),
        remarks=[
            "If the i-th worst client's X is proportional to i^-p, the worst client left is number dn + 1 and the "
            "factor is (dn + 1)^p, which grows with n. (1-d)^-p belongs to X proportional to i^p for the i-th best "
            f"client (checked: {reversed_too:.3f}), which has no long tail. The paper's point holds all the more.",
            f"Population {POPULATION}; the paper states none, nor its values of p.",
        ],
    )


def claims_of(table: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims on refinement, from the table's ratios and the stated distribution."""
    printed, stated = (1 - 0.2) ** -1.2, improvement(zipf(POPULATION, 1.2), 0.2)
    ratios = table["improvement"] / table["(1-d)^-p (paper)"]
    long_tail, short_tail = (improvement(zipf(POPULATION, p), 0.2) for p in (2.0, 0.5))
    return [
        PaperClaim(
            "leaving out the worst d improves the worst client left by (1-d)^-p",
            f"at d = 0.2, p = 1.2: {printed:.3f} by the formula, {stated:.0f} by the distribution that is stated",
            [
                within_factor("least of it over (1-d)^-p, all d and p", float(ratios.min()), 1, SAME),
                within_factor("most of it over (1-d)^-p, all d and p", float(ratios.max()), 1, SAME),
            ],
        ),
        PaperClaim(
            "refinement does best where few clients are bad (a long tail)",
            f"d = 0.2 improves the worst client by {long_tail:.0f} at p = 2 and by {short_tail:.0f} at p = 0.5",
            [above("improvement at p = 2 over that at p = 0.5", long_tail / short_tail, 1)],
        ),
    ]


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
        run_fig4,
        claims_of=lambda table, seeds: claims_of(table),
    ),
)
