"""Lotto's Figure 5: largest share of clients that population refinement may leave out."""

from pathlib import Path

import pandas as pd

from analysis.bounds.lotto import largest_exclusion
from analysis.plot_data import plot_data
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.lotto.published import PAPER
from analysis.reproduction.verdicts import PaperClaim, equal
from analysis.style import one_panel, save

TARGETS = (0.1, 0.2, 0.3, 0.4)
_FINE = 100_000  # clients, so that whole ones do not show
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


PUBLISHED = {(20, 5): 0.75}
"""Largest exclusion by target and initial base rate [%]."""


def measure_fig5(context: ReproductionContext) -> Measurements:
    """Compute the largest exclusion for four target base rates, in whole clients."""
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
                }
            )
    table = pd.DataFrame(rows)
    setting = Setting("none", sizes={"population": _FINE})
    return Measurements(setting, {"exclusions": table}, _draw(table, context.out / "lotto-fig5"))


def conclude_fig5(measurements: Measurements) -> ReproductionResult:
    """Compare the paper's example."""
    table = measurements.tables["exclusions"]
    pairs = zip(table["target_percent"], table["initial_percent"], strict=True)
    table = table.copy()
    table["largest_exclusion (paper)"] = [PUBLISHED.get(pair) for pair in pairs]
    example = table.dropna(subset=["largest_exclusion (paper)"]).iloc[0]
    at = float(example["largest_exclusion"])
    return ReproductionResult(
        table=table[table["initial_percent"] % 5 == 0].reset_index(drop=True),
        claims=[
            PaperClaim(
                "5% dishonest at first, at most 20% wanted: exclude at most 75%",
                f"{100 * at:.4g}%",
                [equal("largest exclusion", at, float(example["largest_exclusion (paper)"]))],
                uses_data=False,
            )
        ],
        remarks=["In the worst case all excluded clients are honest: d = 1 - initial rate / target rate."],
    )


def _draw(table: pd.DataFrame, path: Path) -> list[Path]:
    with one_panel(2.1) as (figure, axes):
        for (target, part), colour in zip(table.groupby("target_percent"), _COLOURS, strict=True):
            axes.plot(part["initial_percent"], 100 * part["largest_exclusion"], color=colour, label=f"{target}%")
        axes.plot(5, 75, "k*", markersize=7, markeredgewidth=0, label="paper")
        axes.legend(title="target base rate", loc="upper right", title_fontsize=7)
        axes.set_xlim(0, 40)
        axes.set_ylim(0, 100)
        axes.set_xlabel("Initial base rate of dishonest clients [%]")
        axes.set_ylabel("Largest exclusion d [%]")
        axes.grid()
        return save(figure, path, plot_data(figure))


REPRODUCTIONS = (
    Reproduction(
        "lotto-fig5",
        "The largest exclusion that keeps a base rate of dishonest clients",
        f"{PAPER}, Figure 5",
        measure=measure_fig5,
        conclude=conclude_fig5,
    ),
)
