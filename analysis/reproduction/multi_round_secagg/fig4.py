"""Multi-RoundSecAgg's Figures 4 and 5 (a): privacy, fairness and cardinality of six schemes over 1,500 rounds.

So et al., Securing Secure Aggregation, arXiv 2106.03328, section 6: N = 120, K = 12. T is the weak privacy of Remark 1,
as in the paper, but with its certificate. The public code takes the lightest row of the reduced row echelon form.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.multi_round import OverRounds, over_rounds
from analysis.multi_round.figures import Line
from analysis.multi_round.figures import draw as draw_lines
from analysis.multi_round.simulation import dropout_probabilities, simulate
from analysis.plot_data import plot_data
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.multi_round_secagg.fig4_claims import (
    BY_NUMBER,
    EARLY,
    claims,
    remarks,
    table,
    trade_off_claim,
    trade_off_table,
)
from analysis.reproduction.multi_round_secagg.published import (
    PAPER,
    PARTICIPANTS,
    PARTITION,
    POPULATION,
    RANDOM,
    WEIGHTED,
)
from analysis.style import one_panel, protocol_colours, save
from testbed.arrays import Floats
from testbed.selection.batch_partition import BatchPartitionParameters, PartitionParameters
from testbed.selection.contract import SelectionParameters
from testbed.selection.random_selection import RandomParameters, WeightedRandomParameters

SEED_TIME_S = 20.0
"""Seconds for the searches for T of one scheme and seed; afterwards, unsettled values have bounds."""

SCHEMES: Mapping[str, SelectionParameters] = {
    RANDOM: RandomParameters(participants=PARTICIPANTS),
    WEIGHTED: WeightedRandomParameters(participants=PARTICIPANTS),
    PARTITION: PartitionParameters(participants=PARTICIPANTS),
    **{
        f"batch-partition, T = {privacy}": BatchPartitionParameters(participants=PARTICIPANTS, privacy=privacy)
        for privacy in (6, 4, 3)
    },
}

SCALES = {"small": (1500, 5), "paper": (1500, 20)}
"""Number of rounds and seeds."""


def measured(context: ReproductionContext) -> dict[str, list[OverRounds]]:
    """Return the metrics over the rounds of each scheme, one for each seed."""
    rounds, seeds = SCALES[context.scale]
    by_scheme: dict[str, list[OverRounds]] = {name: [] for name in [*SCHEMES, BY_NUMBER]}
    for seed in range(1, seeds + 1):
        context.progress(f"seed {seed} of {seeds}: {rounds} rounds of {len(by_scheme)} schemes")
        unavailable = dropout_probabilities(POPULATION, seed)
        for name, parameters in SCHEMES.items():
            # All schemes meet the same absences.
            by_scheme[name].append(over_rounds(simulate(parameters, unavailable, rounds, seed), SEED_TIME_S))
        by_scheme[BY_NUMBER].append(over_rounds(fewest_by_number(unavailable, rounds, seed), SEED_TIME_S))
    return by_scheme


def fewest_by_number(unavailable: Floats, rounds: int, seed: int) -> npt.NDArray[np.uint8]:
    """Simulate weighted random selection with ties that go to the user with the smaller number.

    The public code sorts the counts of participation (`argsort`), so that equal counts are not in a random order.

    Args:
        unavailable: `(n,)` probability of each user to be away in a round.
        rounds: number of rounds.
        seed: seed of the absences.

    Returns:
        `(rounds, n)`: 1 where a user was selected.
    """
    generator, population = np.random.default_rng(seed), len(unavailable)
    counts, matrix = np.zeros(population), np.zeros((rounds, population), np.uint8)
    for row in matrix:
        away = generator.random(population) < unavailable
        row[np.argsort(np.where(away, np.inf, counts), kind="stable")[:PARTICIPANTS]] = 1
        counts += row
    return matrix


def metrics_by_seed(by_scheme: Mapping[str, list[OverRounds]]) -> pd.DataFrame:
    """Return one row for each scheme and seed.

    Columns are metrics after the last round; the first round after which T is 1 (empty without one); T weak after
    round `EARLY`; and the rounds in which T is not certified, with the distance of their values from the lower bound.
    """
    rows = [
        {"scheme": name, "seed": seed, **_row(metrics)}
        for name, repetitions in by_scheme.items()
        for seed, metrics in enumerate(repetitions, 1)
    ]
    return pd.DataFrame(rows)


def _row(metrics: OverRounds) -> dict[str, Any]:
    single = np.flatnonzero(metrics.weak == 1)
    not_certified = np.flatnonzero(~metrics.certified)
    gaps = (metrics.weak - metrics.lower_bound)[not_certified]
    some = len(not_certified) > 0
    return {
        "weak": int(metrics.weak[-1]),
        "strong": int(metrics.strong[-1]),
        "least proved": int(metrics.lower_bound.min()),
        "T = 1 after round": float(single[0] + 1) if len(single) else None,
        "weak early": int(metrics.weak[min(EARLY, len(metrics)) - 1]),
        "F": float(metrics.fairness[-1]),
        "F completed": float(metrics.fairness_completed[-1]),
        "C": float(metrics.cardinality[-1]),
        "rounds": len(metrics),
        "not certified": len(not_certified),
        "first not certified": float(not_certified[0] + 1) if some else None,
        "last not certified": float(not_certified[-1] + 1) if some else None,
        "least gap": float(gaps.min()) if some else None,
        "largest gap": float(gaps.max()) if some else None,
        "mean gap": float(gaps.mean()) if some else None,
    }


def _measurements(by_scheme: Mapping[str, list[OverRounds]], figures: list[Path]) -> Measurements:
    frame = metrics_by_seed(by_scheme)
    setting = Setting(
        "none",
        seeds=sorted(frame["seed"].unique().tolist()),
        sizes={"population": POPULATION, "participants": PARTICIPANTS, "rounds": int(frame["rounds"].max())},
        differs=["F of batches by Algorithm 2 as printed; the public code has another rule (multiround-fairness)"],
    )
    return Measurements(setting, {"seeds": frame}, figures)


def measure_fig4(context: ReproductionContext) -> Measurements:
    """Simulate all schemes, measure every round, and draw the metrics."""
    by_scheme = measured(context)
    lines = [Line(name, _protocol(name), by_scheme[name]) for name in SCHEMES]
    return _measurements(by_scheme, draw_lines(lines, context.out, "multiround-fig4"))


def conclude_fig4(measurements: Measurements) -> ReproductionResult:
    """Compare the metrics with the paper's observations."""
    frame = measurements.tables["seeds"]
    return ReproductionResult(table(frame), claims=claims(frame), remarks=remarks(frame))


def measure_fig5a(context: ReproductionContext) -> Measurements:
    """Simulate as for Figure 4, and draw T against C."""
    by_scheme = measured(context)
    return _measurements(by_scheme, draw_trade_off(metrics_by_seed(by_scheme), context.out))


def conclude_fig5a(measurements: Measurements) -> ReproductionResult:
    """Compare T and C with the paper's statement."""
    frame = measurements.tables["seeds"]
    return ReproductionResult(
        trade_off_table(frame),
        claims=[trade_off_claim(frame)],
        remarks=[remarks(frame)[0], "The runs are those of multiround-fig4, repeated: the claim counts there."],
    )


def draw_trade_off(frame: pd.DataFrame, out: Path) -> list[Path]:
    """Draw a point for each scheme: T after the last round against C, mean over the seeds with their range.

    Args:
        frame: as `metrics_by_seed` makes it.
        out: existing directory.
    """
    colours = protocol_colours([_protocol(name) for name in SCHEMES])
    with one_panel(2.4) as (figure, axes):
        for name, marker in zip(SCHEMES, "osD^vP", strict=True):
            rows = frame[frame["scheme"] == name]
            values = rows["C"]
            reach = [[values.mean() - values.min()], [values.max() - values.mean()]]
            axes.errorbar(
                rows["weak"].mean(),
                values.mean(),
                reach,
                fmt=marker,
                markersize=5,
                color=colours[_protocol(name)],
                markerfacecolor="none" if name == WEIGHTED else None,
                label=name,
            )
        axes.set(xlabel="Multi-round privacy T (weak)", ylabel="Average cardinality C")
        axes.set_xticks([1, 3, 4, 6, 12])
        axes.set_ylim(bottom=0)
        axes.grid()
        axes.legend()
        return save(figure, out / "multiround-fig5a", plot_data(figure))


def _protocol(name: str) -> str:
    return name.partition(",")[0]


REPRODUCTIONS = (
    Reproduction(
        "multiround-fig4",
        "Privacy T, fairness F and cardinality C of six schemes over 1,500 rounds",
        f"{PAPER}, Figure 4",
        measure=measure_fig4,
        conclude=conclude_fig4,
    ),
    Reproduction(
        "multiround-fig5a",
        "Privacy T against cardinality C of six schemes",
        f"{PAPER}, Figure 5 (a)",
        measure=measure_fig5a,
        conclude=conclude_fig5a,
    ),
)
