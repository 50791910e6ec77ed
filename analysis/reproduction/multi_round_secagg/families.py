"""Multi-RoundSecAgg's Table 1 and Figure 3: how many sets a scheme can choose, and what privacy costs in cardinality.

So et al., Securing Secure Aggregation, arXiv 2106.03328, sections 4 to 6, Theorem 1; N = 120, K = 12.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure

from analysis.bounds.batch_partition import average_cardinality, family_size
from analysis.comparison.measures import mean_interval
from analysis.figures.style import COLUMN_INCHES, house_style, save
from analysis.multi_round import aggregation_cardinality
from analysis.multi_round.simulation import simulate
from analysis.reproduction.contract import Claim, Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.multi_round_secagg.schemes import PAPER, PARTITION, RANDOM, SELECTED, USERS, WEIGHTED
from testbed.selection.batch_partition import BatchPartitionParameters

TABLE_1 = {
    RANDOM: (1, "~10^16"),
    WEIGHTED: (1, "~10^16"),
    PARTITION: (12, "10"),
    "batch-partition, T = 6": (6, "190"),
    "batch-partition, T = 4": (4, "4060"),
    "batch-partition, T = 3": (3, "91389"),
}
"""T of each scheme, and the family size that the paper prints."""

PRIVACIES = (1, 2, 3, 4, 6, 12)
DROPOUTS = (0.1, 0.2, 0.3, 0.4, 0.5)
SIZES = {"small": (1500, 5), "paper": (1500, 20)}
"""Rounds and seeds of the simulated check."""


def run_table1(context: ReproductionContext) -> ReproductionResult:
    """Exact integers beside the paper's."""
    sizes = {name: family_size(USERS, SELECTED, privacy) for name, (privacy, _) in TABLE_1.items()}
    rows = [
        {"scheme": name, "T": privacy, "family size": sizes[name], "family size (paper)": printed}
        for name, (privacy, printed) in TABLE_1.items()
    ]
    three = sizes["batch-partition, T = 3"]
    claims = [
        Claim(
            "random selection has about 10^16 sets",
            f"C(120, 12) = {sizes[RANDOM]:,} = {sizes[RANDOM]:.2e}",
            "yes" if 5e15 < sizes[RANDOM] < 5e16 else "no",
        ),
        *(
            Claim(f"{name} has {TABLE_1[name][1]} sets", f"{sizes[name]}", _same(sizes[name], TABLE_1[name][1]))
            for name in (PARTITION, "batch-partition, T = 6", "batch-partition, T = 4")
        ),
        Claim("T = 3 has 91389 sets", f"C(40, 4) = {three}: the paper's is one too few", _same(three, "91389")),
    ]
    return ReproductionResult(pd.DataFrame.from_records(rows), claims=claims, remarks=["By formula: R = C(N/T, K/T)."])


def _same(ours: int, printed: str) -> Literal["yes", "no"]:
    return "yes" if str(ours) == printed else "no"


def run_fig3(context: ReproductionContext) -> ReproductionResult:
    """Theorem 1's C against T, and what the selection code does."""
    rounds, seeds = SIZES[context.scale]
    frame = trade_off(rounds, seeds, context)
    inside = (frame["C simulated"] - frame["C (Theorem 1)"]).abs() <= _tolerance(frame, rounds, seeds)
    falling = frame.groupby("p")["C (Theorem 1)"].apply(lambda values: bool((np.diff(values) <= 1e-12).all()))
    claims = [
        Claim(
            "C decreases as T grows (Remark 5)",
            f"at p = {', '.join(f'{p:g}' for p in falling.index[falling])}",
            "yes" if falling.all() else "no",
        ),
        Claim(
            "Theorem 1 gives the average cardinality of the scheme",
            f"{int(inside.sum())} of {len(frame)} simulated means within 4 standard errors",
            "yes" if inside.all() else "partly" if inside.mean() > 0.9 else "no",
        ),
    ]
    return ReproductionResult(
        frame,
        figures=draw(frame, context.out),
        claims=claims,
        remarks=[
            "Figure 3 shows one curve and does not state its dropout probability: here there is a curve for each of "
            "0.1 to 0.5, the range of section 6.",
            f"Simulated: {rounds} rounds with each of {seeds} seeds, uniform mode, all users with the same p.",
        ],
    )


def trade_off(rounds: int, seeds: int, context: ReproductionContext) -> pd.DataFrame:
    """A row for each p and T: C by Theorem 1, and the simulated mean with its 95% half-width over the seeds."""
    rows = []
    for dropout in DROPOUTS:
        context.progress(f"p = {dropout:g}: {rounds} rounds, {seeds} seeds, T = {', '.join(map(str, PRIVACIES))}")
        for privacy in PRIVACIES:
            parameters = BatchPartitionParameters(participants=SELECTED, privacy=privacy, mode="uniform")
            means = [
                aggregation_cardinality(simulate(parameters, np.full(USERS, dropout), rounds, seed))
                for seed in range(1, seeds + 1)
            ]
            interval = mean_interval(means)
            rows.append(
                {"p": dropout, "T": privacy, "C (Theorem 1)": average_cardinality(USERS, SELECTED, privacy, dropout),
                 "C simulated": interval.mean, "±": interval.half_width}
            )  # fmt: skip
    return pd.DataFrame.from_records(rows)


def _tolerance(frame: pd.DataFrame, rounds: int, seeds: int) -> pd.Series:
    """Four standard errors of the mean of rounds that have K users or none; at least four rounds' worth."""
    share = frame["C (Theorem 1)"] / SELECTED
    return 4 * SELECTED * np.sqrt((share * (1 - share) / (rounds * seeds)).clip(lower=1 / (rounds * seeds) ** 2))


def draw(frame: pd.DataFrame, out: Path) -> Sequence[Path]:
    """C against T, a curve for each p: lines are Theorem 1's, dots are simulated."""
    shades = colormaps["viridis"](np.linspace(0.85, 0.1, len(DROPOUTS)))
    with house_style():
        figure = Figure(figsize=(COLUMN_INCHES, 2.4), layout="constrained")
        axes = figure.add_subplot()
        for (dropout, rows), colour in zip(frame.groupby("p"), shades, strict=True):
            axes.plot(rows["T"], rows["C (Theorem 1)"], color=colour, label=f"p = {dropout:g}")
            axes.errorbar(rows["T"], rows["C simulated"], rows["±"], fmt="o", markersize=3, color=colour)
        axes.set_xlabel("Multi-round privacy T")
        axes.set_ylabel("Average cardinality C")
        axes.set_xticks(PRIVACIES)
        axes.set_ylim(bottom=0)
        axes.grid()
        axes.legend()
        out.mkdir(parents=True, exist_ok=True)
        return save(figure, out / "multiround-fig3")


REPRODUCTIONS = (
    Reproduction("multiround-table1", "The number of sets each scheme can choose", f"{PAPER}, Table 1", run_table1),
    Reproduction("multiround-fig3", "Privacy T against average cardinality C", f"{PAPER}, Figure 3", run_fig3),
)
