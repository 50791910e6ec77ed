"""Lotto's Figures 4 and 5: what population refinement gains, and how many clients it may leave out."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.bounds.lotto_parameters import largest_exclusion
from analysis.figures.style import COLUMN_INCHES, house_style, save
from analysis.reproduction.contract import Claim, ReproductionContext, ReproductionResult

POPULATION = 700
EXPONENTS = (0.5, 1.0, 1.2, 2.0)
EXCLUDED = (0.1, 0.2, 0.4, 0.6, 0.8)
TARGETS = (0.1, 0.2, 0.3, 0.4)
_FINE = 100_000  # clients, so that whole ones do not show
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def zipf(population: int, exponent: float) -> np.ndarray:
    """The metric of each client, worst first: i**-p for the i-th worst (smaller is better); `(n,)` float64."""
    return np.arange(1, population + 1, dtype=np.float64) ** -exponent


def improvement(metric: np.ndarray, excluded: float) -> float:
    """Worst value in the population over worst value after leaving out the worst fraction; `metric` worst first."""
    return float(metric[0] / metric[round(excluded * len(metric))])


def run_fig4(context: ReproductionContext) -> ReproductionResult:
    """The formula that the paper prints, and what refinement does to the distribution that it states."""
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
    printed, stated = (1 - 0.2) ** -1.2, improvement(zipf(POPULATION, 1.2), 0.2)
    spread = zipf(POPULATION, 1.2)
    reversed_too = improvement((1 / spread)[::-1], 0.2)
    return ReproductionResult(
        table=table,
        figures=_draw_fig4(context.out / "lotto-fig4"),
        claims=[
            Claim("leaving out the worst d improves the worst client left by (1-d)^-p",
                  f"at d = 0.2, p = 1.2: {printed:.3f} by the formula, {stated:.0f} by the distribution that is stated",
                  "no"),
            Claim("refinement does best where few clients are bad (a long tail)",
                  f"d = 0.2 improves the worst client by {improvement(zipf(POPULATION, 2.0), 0.2):.0f} at p = 2 and by "
                  f"{improvement(zipf(POPULATION, 0.5), 0.2):.0f} at p = 0.5", "yes"),
        ],
        remarks=[
            "If the i-th worst client's X is proportional to i^-p, the worst client left is number dn + 1 and the "
            "factor is (dn + 1)^p, which grows with n. (1-d)^-p belongs to X proportional to i^p for the i-th best "
            f"client (checked: {reversed_too:.3f}), which has no long tail. The paper's point holds all the more.",
            f"Population {POPULATION}; the paper states none, nor its values of p.",
        ],
    )  # fmt: skip


def run_fig5(context: ReproductionContext) -> ReproductionResult:
    """The largest exclusion for four target base rates, in whole clients."""
    rows = []
    for target in TARGETS:
        for percent in range(1, round(100 * target) + 1):
            excluded = largest_exclusion(_FINE, percent * _FINE // 100, target)
            assert excluded is not None
            rows.append(
                {
                    "target_percent": round(100 * target),
                    "initial_percent": percent,
                    "largest_exclusion": excluded / _FINE,
                    "largest_exclusion (paper)": 0.75 if (target, percent) == (0.2, 5) else None,
                }
            )
    table = pd.DataFrame(rows)
    at = table[(table["target_percent"] == 20) & (table["initial_percent"] == 5)]["largest_exclusion"].iloc[0]
    return ReproductionResult(
        table=table[table["initial_percent"] % 5 == 0].reset_index(drop=True),
        figures=_draw_fig5(table, context.out / "lotto-fig5"),
        claims=[
            Claim("5% dishonest at first, at most 20% wanted: exclude at most 75%", f"{100 * at:.4g}%",
                  "yes" if at == 0.75 else "no"),
        ],
        remarks=["In the worst case all excluded clients are honest: d = 1 - initial rate / target rate."],
    )  # fmt: skip


def _draw_fig4(path: Path) -> list[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
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
        right.set_xlabel("Excluded d [%]")
        right.set_ylabel("Improvement")
        right.plot([], [], "k-", label="by the stated distribution")
        right.plot([], [], "k--", label=r"by the printed formula $(1-d)^{-p}$")
        figure.legend(handles=right.get_lines()[-2:], loc="outside lower center", ncols=2)
        right.set_xlim(0, 90)
        right.set_xticks(range(0, 91, 30))
        for axes in (left, right):
            axes.grid()
        return save(figure, path)


def _draw_fig5(table: pd.DataFrame, path: Path) -> list[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with house_style():
        figure = Figure(figsize=(COLUMN_INCHES, 2.1), layout="constrained")
        axes = figure.add_subplot()
        for (target, part), colour in zip(table.groupby("target_percent"), _COLOURS, strict=True):
            axes.plot(part["initial_percent"], 100 * part["largest_exclusion"], color=colour, label=f"{target}%")
        axes.plot(5, 75, "k*", markersize=7, markeredgewidth=0, label="paper")
        axes.legend(title="target base rate", loc="upper right", title_fontsize=7)
        axes.set_xlim(0, 40)
        axes.set_ylim(0, 100)
        axes.set_xlabel("Initial base rate of dishonest clients [%]")
        axes.set_ylabel("Largest exclusion d [%]")
        axes.grid()
        return save(figure, path)
