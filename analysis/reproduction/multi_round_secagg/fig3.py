"""Multi-RoundSecAgg's Figure 3: multi-round privacy against cardinality, by formula and by simulation.

So et al., Securing Secure Aggregation, arXiv 2106.03328, section 5, Theorem 1; N = 120, K = 12.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import colormaps

from analysis.bounds.batch_partition import average_cardinality
from analysis.multi_round import aggregation_cardinality
from analysis.multi_round.simulation import simulate
from analysis.plot_data import plot_data
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.multi_round_secagg.published import PAPER, PARTICIPANTS, POPULATION
from analysis.reproduction.verdicts import PaperClaim, between
from analysis.statistics import Interval, mean_interval
from analysis.style import one_panel, save
from testbed.selection.batch_partition import BatchPartitionParameters

PRIVACIES = (1, 2, 3, 4, 6, 12)
DROPOUTS = (0.1, 0.2, 0.3, 0.4, 0.5)
ROUNDS = 1500
SCALES = {"small": 5, "paper": 20}
"""Number of rounds and, by scale, of seeds of the simulation."""

FURTHEST = 4.0
"""Standard errors that the furthest of thirty means may be off: a right formula fails in one of 500 repetitions."""

CLOSE = 0.5
"""Users by which the simulated mean, with its interval, may differ from Theorem 1: a twenty-fourth of K."""


def measure_fig3(context: ReproductionContext) -> Measurements:
    """Compute C of Theorem 1, and simulate the selection code, for several T and p."""
    seeds = range(1, SCALES[context.scale] + 1)
    formula, simulated = [], []
    for dropout in DROPOUTS:
        context.progress(f"p = {dropout:g}: {ROUNDS} rounds, {len(seeds)} seeds, T = {', '.join(map(str, PRIVACIES))}")
        for privacy in PRIVACIES:
            parameters = BatchPartitionParameters(participants=PARTICIPANTS, privacy=privacy, mode="uniform")
            point = {"p": dropout, "T": privacy}
            formula.append(point | {"C (Theorem 1)": average_cardinality(POPULATION, PARTICIPANTS, privacy, dropout)})
            simulated += [
                point
                | {
                    "seed": seed,
                    "C": aggregation_cardinality(simulate(parameters, np.full(POPULATION, dropout), ROUNDS, seed)),
                }
                for seed in seeds
            ]
    tables = {"formula": pd.DataFrame(formula), "simulated": pd.DataFrame(simulated)}
    sizes = {"population": POPULATION, "participants": PARTICIPANTS, "rounds": ROUNDS}
    return Measurements(
        Setting("none", seeds=list(seeds), sizes=sizes),
        tables,
        draw(trade_off(tables["formula"], tables["simulated"]), context.out),
    )


def conclude_fig3(measurements: Measurements) -> ReproductionResult:
    """Compare the simulated means with Theorem 1."""
    frame = trade_off(measurements.tables["formula"], measurements.tables["simulated"])
    rounds, seeds = int(measurements.setting.sizes["rounds"]), len(measurements.setting.seeds)
    return ReproductionResult(
        frame,
        claims=claims(frame, rounds, seeds),
        remarks=[
            "Figure 3 shows one curve and does not state its dropout probability: here there is a curve for each of "
            "0.1 to 0.5, the range of section 6.",
            f"Simulated: {rounds} rounds with each of {seeds} seeds, uniform mode, all users with the same p.",
        ],
    )


def trade_off(formula: pd.DataFrame, simulated: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each p and T: C by Theorem 1, and the simulated mean with its 95% half-width over the seeds.

    Args:
        formula: one row per p and T.
        simulated: one row per p, T and seed.
    """
    intervals = [mean_interval(group["C"]) for _, group in simulated.groupby(["p", "T"], sort=False)]
    frame = formula.copy()
    frame["C simulated"] = [each.mean for each in intervals]
    frame["±"] = [each.half_width for each in intervals]
    return frame


def claims(frame: pd.DataFrame, rounds: int, seeds: int) -> list[PaperClaim]:
    """Compare the simulated means with Theorem 1.

    Args:
        frame: as `trade_off` makes it.
        rounds: number of rounds of each simulation.
        seeds: number of seeds of each simulated mean.
    """
    differences = frame["C simulated"] - frame["C (Theorem 1)"]
    off = differences / _standard_error(frame, rounds, seeds)
    furthest = max(off.tolist(), key=abs)
    rises = {str(p): float(np.diff(values).max()) for p, values in frame.groupby("p")["C (Theorem 1)"]}
    intervals = [Interval(float(mean), float(half)) for mean, half in zip(differences, frame["±"], strict=True)]
    return [
        PaperClaim(
            "C decreases as T grows (Remark 5)",
            f"largest rise of C from one T to the next, at p = {', '.join(rises)}: {max(rises.values()):.3g} users",
            [between("largest rise of C", rise, most=0.0) for rise in rises.values()],
            uses_data=False,
        ),
        PaperClaim(
            "Theorem 1 gives the average cardinality of the scheme",
            f"of {len(frame)} simulated means the furthest is {furthest:+.2f} standard errors off, "
            f"{int((off.abs() <= 2).sum())} are within two; with their intervals they differ by up to "
            f"{(differences.abs() + frame['±']).max():.2f} users",
            [
                between("standard errors", furthest, -FURTHEST, FURTHEST),
                *(between("users more than Theorem 1", interval, -CLOSE, CLOSE) for interval in intervals),
            ],
            seeds=seeds,
            uses_data=False,
        ),
    ]


def _standard_error(frame: pd.DataFrame, rounds: int, seeds: int) -> "pd.Series[float]":
    """Return the standard error of the mean of rounds with K users or none; at least that of one round."""
    share = frame["C (Theorem 1)"] / PARTICIPANTS
    # At shares of almost 0 or 1 the formula's variance is 0, and any difference would be infinitely far off.
    variance = (share * (1 - share) / (rounds * seeds)).clip(lower=1 / (rounds * seeds) ** 2)
    error: pd.Series[float] = PARTICIPANTS * np.sqrt(variance)
    return error


def draw(frame: pd.DataFrame, out: Path) -> Sequence[Path]:
    """Draw C against T, with a curve for each p: lines by Theorem 1, dots by simulation.

    Args:
        frame: as `trade_off` makes it.
        out: existing directory.
    """
    shades = colormaps["viridis"](np.linspace(0.85, 0.1, len(DROPOUTS)))
    with one_panel(2.4) as (figure, axes):
        for (dropout, rows), colour in zip(frame.groupby("p"), shades, strict=True):
            axes.plot(rows["T"], rows["C (Theorem 1)"], color=colour, label=f"p = {dropout:g}")
            axes.errorbar(rows["T"], rows["C simulated"], rows["±"], fmt="o", markersize=3, color=colour)
        axes.set(xlabel="Multi-round privacy T", ylabel="Average cardinality C")
        axes.set_xticks(PRIVACIES)
        axes.set_ylim(bottom=0)
        axes.grid()
        axes.legend()
        return save(figure, out / "multiround-fig3", plot_data(figure))


REPRODUCTIONS = (
    Reproduction(
        "multiround-fig3",
        "Privacy T against average cardinality C",
        f"{PAPER}, Figure 3",
        measure=measure_fig3,
        conclude=conclude_fig3,
    ),
)
