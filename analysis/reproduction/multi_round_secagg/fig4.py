"""Multi-RoundSecAgg's Figures 4 and 5 (a): privacy, fairness and cardinality of six schemes over 1,500 rounds.

So et al., Securing Secure Aggregation, arXiv 2106.03328, section 6: N = 120, K = 12. T is the weak privacy of Remark 1,
as in the paper, but with its certificate: the paper does not say how it computed the minimum.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.multi_round import OverRounds, over_rounds
from analysis.multi_round.figures import Line
from analysis.multi_round.figures import draw as draw_lines
from analysis.multi_round.simulation import dropout_probabilities, simulate
from analysis.plot_data import plot_data
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.multi_round_secagg.published import (
    PAPER,
    PARTICIPANTS,
    PARTITION,
    POPULATION,
    RANDOM,
    WEIGHTED,
)
from analysis.reproduction.verdicts import Check, PaperClaim, above, equal, within
from analysis.statistics import mean_interval
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
PRIVACY = {RANDOM: 1, WEIGHTED: 1, PARTITION: 12} | {
    f"batch-partition, T = {privacy}": privacy for privacy in (6, 4, 3)
}
"""T that each scheme guarantees."""

REMARK_DROPOUTS = (
    "The paper draws each user's dropout probability from {0.1, 0.2, 0.3, 0.4, 0.5} and does not say how: here "
    "uniformly, anew for each seed. Selection is the federation's own code, without training."
)


SCALES = {"small": (1500, 5), "paper": (1500, 20)}
"""Number of rounds and seeds."""


def measured(context: ReproductionContext) -> dict[str, list[OverRounds]]:
    """Return the metrics over the rounds of each scheme, one for each seed."""
    rounds, seeds = SCALES[context.scale]
    by_scheme: dict[str, list[OverRounds]] = {name: [] for name in SCHEMES}
    for seed in range(1, seeds + 1):
        context.progress(f"seed {seed} of {seeds}: {rounds} rounds of {len(SCHEMES)} schemes")
        unavailable = dropout_probabilities(POPULATION, seed)
        for name, parameters in SCHEMES.items():
            # All schemes meet the same absences.
            by_scheme[name].append(over_rounds(simulate(parameters, unavailable, rounds, seed), SEED_TIME_S))
    return by_scheme


def last(metrics: list[OverRounds], attribute: str) -> npt.NDArray[np.float64]:
    """Return a metric after the last round, `(seeds,)` float64.

    Args:
        metrics: metrics of each seed.
        attribute: name of the metric.
    """
    return np.array([getattr(repetition, attribute)[-1] for repetition in metrics], np.float64)


DROP = 0.1
"""Share of N by which "about N rounds" may differ from N."""

ALMOST = 0.02
"""Share of random selection's cardinality by which "almost the same" may differ."""


def first_round_with_one(metrics: OverRounds) -> float:
    """Return the round (from 1) after which T is 1; NaN without such a round."""
    single = np.flatnonzero(metrics.weak == 1)
    return float(single[0] + 1) if len(single) else float("nan")


def over_seeds(values: npt.NDArray[np.float64], digits: int = 3) -> str:
    """Return the mean over the seeds with its 95% interval, as text.

    Args:
        values: `(seeds,)` numbers.
        digits: significant figures of the mean.
    """
    interval = mean_interval(values)
    if interval.mean is None:
        return "–"
    half = "" if not interval.half_width else f" ± {interval.half_width:.{max(1, digits - 1)}g}"
    return f"{interval.mean:.{digits}g}{half}"


Metrics = Mapping[str, list[OverRounds]]
_REMARK_FAIRNESS = (
    "Batches are chosen by Algorithm 2 as printed. multiround-fairness has the other rules, F = 0 of Theorem 1, and F "
    "by completed rounds."
)
_PRIVATE_SCHEMES = [name for name in SCHEMES if PRIVACY[name] > 1]


def run_fig4(context: ReproductionContext) -> ReproductionResult:
    """Simulate, measure every round, and compare with the paper's observations."""
    by_scheme = measured(context)
    lines = [Line(name, _protocol(name), metrics) for name, metrics in by_scheme.items()]
    return ReproductionResult(
        table(by_scheme),
        figures=draw_lines(lines, context.out, "multiround-fig4"),
        claims=claims(by_scheme),
        remarks=[REMARK_DROPOUTS, _REMARK_FAIRNESS, *remarks(by_scheme)],
    )


def table(by_scheme: Metrics) -> pd.DataFrame:
    """Return the metrics after the last round, mean over the seeds ± 95% half-width; the paper states only T."""
    rows = []
    for name, metrics in by_scheme.items():
        rows.append(
            {
                "scheme": name,
                "T (paper)": PRIVACY[name],
                "T weak": over_seeds(last(metrics, "weak")),
                "T strong": over_seeds(last(metrics, "strong")),
                "T = 1 after round": over_seeds(
                    np.array([first_round_with_one(repetition) for repetition in metrics]), 4
                ),
                "F": over_seeds(last(metrics, "fairness")),
                "F completed": over_seeds(last(metrics, "fairness_completed")),
                "C": over_seeds(last(metrics, "cardinality"), 4),
                "rounds certified": f"{100 * np.mean([repetition.certified.mean() for repetition in metrics]):.2f}%",
            }
        )
    return pd.DataFrame.from_records(rows)


def claims(by_scheme: Metrics) -> list[PaperClaim]:
    """Return the claims of section 6 on Figure 4, and of Remark 11."""
    seeds = len(by_scheme[RANDOM])
    drops = {name: np.array([_drop(repetition) for repetition in by_scheme[name]]) for name in (RANDOM, WEIGHTED)}
    proved = {
        name: min(int(repetition.lower_bound.min()) for repetition in by_scheme[name]) for name in _PRIVATE_SCHEMES
    }
    cardinality = {name: last(metrics, "cardinality") for name, metrics in by_scheme.items()}
    fairness = {name: last(metrics, "fairness") for name, metrics in by_scheme.items()}
    batches = [name for name in SCHEMES if 1 < PRIVACY[name] < PARTICIPANTS]
    strong = {name: int(last(by_scheme[name], "strong").min()) for name in _PRIVATE_SCHEMES}
    return [
        PaperClaim(
            "T of random and weighted random drops to 1 at about N = 120 rounds (Remark 11)",
            "; ".join(f"{name}: round {over_seeds(rounds, 4)}" for name, rounds in drops.items()),
            [within("round", mean_interval(rounds), POPULATION, DROP * POPULATION) for rounds in drops.values()],
            seeds=seeds,
        ),
        PaperClaim(
            "partition and batch partition keep T = 12, 6, 4, 3",
            f"least T weak that is proved in any round {', '.join(map(str, proved.values()))}, T strong "
            f"{', '.join(map(str, strong.values()))}",
            [equal(f"least T of {name}", float(proved[name]), PRIVACY[name]) for name in _PRIVATE_SCHEMES]
            + [equal(f"T strong of {name}", float(strong[name]), PRIVACY[name]) for name in _PRIVATE_SCHEMES],
            seeds=seeds,
        ),
        PaperClaim(
            "partition has the worst cardinality",
            _each(cardinality, 4),
            [
                above("users more than partition", mean_interval(cardinality[name] - cardinality[PARTITION]))
                for name in SCHEMES
                if name != PARTITION
            ],
            seeds=seeds,
        ),
        PaperClaim(
            "T = 3 and T = 4 have almost the cardinality of random selection",
            ", ".join(f"{name}: {over_seeds(share, 5)} of it" for name, share in _shares(cardinality).items()),
            _almost(cardinality),
            seeds=seeds,
        ),
        PaperClaim(
            "Multi-RoundSecAgg has a smaller fairness gap than random selection (batches by Algorithm 2 as printed)",
            _each(fairness, 2),
            [above("F of random less that of batches", mean_interval(fairness[RANDOM] - fairness[b])) for b in batches],
            seeds=seeds,
        ),
    ]


def _drop(metrics: OverRounds) -> float:
    """Return the round of the drop to T = 1; one more than the number of rounds if T does not drop."""
    first = first_round_with_one(metrics)
    return float(len(metrics) + 1) if np.isnan(first) else first


_ALMOST = tuple(f"batch-partition, T = {privacy}" for privacy in (3, 4))


def _shares(cardinality: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the cardinality of T = 3 and of T = 4 over random's, `(seeds,)` each."""
    return {name: cardinality[name] / cardinality[RANDOM] for name in _ALMOST}


def _almost(cardinality: Mapping[str, Floats]) -> list[Check]:
    return [within("share of it", mean_interval(share), 1.0, ALMOST) for share in _shares(cardinality).values()]


def _each(values: Mapping[str, Floats], digits: int) -> str:
    return ", ".join(f"{name}: {over_seeds(of_scheme, digits)}" for name, of_scheme in values.items())


def remarks(by_scheme: Metrics) -> list[str]:
    """Return the rounds in which T is not certified, and the width of the gap."""
    lines = []
    for name, metrics in by_scheme.items():
        open_rounds = [np.flatnonzero(~repetition.certified) + 1 for repetition in metrics]
        if any(map(len, open_rounds)):
            numbers = np.concatenate(open_rounds)
            gaps = np.concatenate(
                [(repetition.weak - repetition.lower_bound)[~repetition.certified] for repetition in metrics]
            )
            lines.append(
                f"{name}: T is not certified in {np.mean([len(rounds) for rounds in open_rounds]):.0f} rounds of a "
                f"seed (between rounds {numbers.min()} and {numbers.max()}): the smallest known value exceeds the "
                f"lower bound by {gaps.min()} to {gaps.max()}, {gaps.mean():.1f} on average."
            )
    return lines


def run_fig5a(context: ReproductionContext) -> ReproductionResult:
    """Draw Figure 5 (a): T against C of the six schemes."""
    by_scheme = measured(context)
    frame = table(by_scheme)[["scheme", "T (paper)", "T weak", "C"]]
    cardinality = {name: last(metrics, "cardinality") for name, metrics in by_scheme.items()}
    privacy = {name: last(metrics, "weak") for name, metrics in by_scheme.items()}
    more = [
        above("T more than that of random and weighted random", mean_interval(privacy[name] - privacy[other]))
        for name in _ALMOST
        for other in (RANDOM, WEIGHTED)
    ]
    texts = [f"{name}: T = {privacy[name].mean():g}, C = {over_seeds(cardinality[name], 4)}" for name in SCHEMES]
    claim = PaperClaim(
        "T = 3 and T = 4 are more private than random and weighted random, with almost the same cardinality",
        ", ".join(texts),
        [*more, *_almost(cardinality)],
        seeds=len(privacy[RANDOM]),
        counted_in="multiround-fig4",
    )
    return ReproductionResult(
        frame,
        figures=draw_trade_off(privacy, cardinality, context.out),
        claims=[claim],
        remarks=[REMARK_DROPOUTS, "The runs are those of multiround-fig4, repeated: the claim counts there."],
    )


def draw_trade_off(privacy: Mapping[str, Floats], cardinality: Mapping[str, Floats], out: Path) -> list[Path]:
    """Draw a point for each scheme: T after the last round against C, mean over the seeds with their range.

    Args:
        privacy: `(seeds,)` T by scheme.
        cardinality: `(seeds,)` C by scheme.
        out: existing directory.
    """
    colours = protocol_colours([_protocol(name) for name in SCHEMES])
    with one_panel(2.4) as (figure, axes):
        for name, marker in zip(SCHEMES, "osD^vP", strict=True):
            values = cardinality[name]
            reach = [[values.mean() - values.min()], [values.max() - values.mean()]]
            axes.errorbar(
                privacy[name].mean(),
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
        run_fig4,
    ),
    Reproduction(
        "multiround-fig5a", "Privacy T against cardinality C of six schemes", f"{PAPER}, Figure 5 (a)", run_fig5a
    ),
)
