"""Multi-RoundSecAgg's fairness gap under three rules for choosing among the available sets of batches.

So et al., Securing Secure Aggregation, arXiv 2106.03328, Theorem 1 (F = 0), Remark 4 (the second component is necessary
for it) and Figure 4 (b). The rules choose uniformly; or the set with the user of fewest participations, as in Algorithm
2 as printed; or the set with the least sum of participations, as in the public code
(DGIST-Distributed-AI-Lab/multi-round-secagg).
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import chi2

from analysis.multi_round.participation import checked, fairness_gaps
from analysis.multi_round.simulation import dropout_probabilities, simulate
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.multi_round_secagg.published import PAPER, PARTICIPANTS, POPULATION, RANDOM
from analysis.reproduction.verdicts import Check, PaperClaim, above, below, between
from analysis.statistics import Interval, mean_interval
from testbed.arrays import Floats
from testbed.batches import Batches
from testbed.selection.batch_partition import BatchPartitionParameters
from testbed.selection.contract import SelectionParameters
from testbed.selection.random_selection import RandomParameters

Mode = Literal["uniform", "fair", "least-total"]
MODES: tuple[Mode, ...] = ("uniform", "fair", "least-total")
PRIVACIES = (6, 4, 3)
ROUNDS = (200, 1500, 12_000)
"""Rounds after which F is measured."""

EQUAL_DROPOUT = 0.3
"""Dropout probability of all users where Theorem 1 applies; the mean of section 6's five."""

SCALES = {"small": 10, "paper": 20}
"""Number of seeds."""

CHANCE = 0.001
"""p-value below which users count as unequal; equal users fall below it in one of a thousand tests."""

NOTHING = 0.01
"""Largest gap after 12,000 rounds that counts as a gap that goes to zero."""

Gaps = Mapping[tuple[str, int], Floats]
"""F by rule and T, `(seeds, len(ROUNDS))`; random selection has the key ``("random", 1)``."""


def run_fairness(context: ReproductionContext) -> ReproductionResult:
    """Simulate the rules at unequal and at equal dropout probabilities."""
    seeds = SCALES[context.scale]
    unequal: dict[tuple[str, int], list[npt.NDArray[np.float64]]] = {}
    every: dict[tuple[str, int], list[npt.NDArray[np.float64]]] = {}
    for seed in range(1, seeds + 1):
        context.progress(f"seed {seed} of {seeds}: {ROUNDS[-1]} rounds of {len(_schemes())} rules")
        away = dropout_probabilities(POPULATION, seed)
        for key, parameters in _schemes().items():
            matrix = checked(simulate(parameters, away, ROUNDS[-1], seed))
            places = [rounds - 1 for rounds in ROUNDS]
            unequal.setdefault(key, []).append(fairness_gaps(matrix, completed_only=True)[places])
            every.setdefault(key, []).append(fairness_gaps(matrix)[places])
    completed = {key: np.array(gaps) for key, gaps in unequal.items()}
    context.progress(f"equal dropout probabilities, {EQUAL_DROPOUT:g}")
    p_values = {
        key: p_value(_pooled(parameters, seeds), key[1]) for key, parameters in _schemes().items() if key[1] > 1
    }
    gaps = {key: np.array(of_key) for key, of_key in every.items()}
    return ReproductionResult(
        table(completed, gaps, p_values),
        claims=claims(gaps, p_values, seeds),
        remarks=[
            f"Unequal: each user's dropout probability is drawn from {0.1, 0.2, 0.3, 0.4, 0.5} for each seed, as in "
            f"Figure 4. Equal: {EQUAL_DROPOUT:g} for all. N = 120, K = 12; selection is the federation's own code, "
            "without training. ± are 95% intervals over the seeds.",
            "F is by all rounds, as in the paper; by completed ones, too, as skipped rounds, which are many at T = 6, "
            "make it smaller.",
            "Theorem 1 is about users of equal dropout probability; that batches are then chosen equally often is "
            "tested by chi-square over the batches' participations in all seeds together.",
            "A batch that is whole in fewer than K/N of the completed rounds cannot take part as often as the others "
            "under any rule: six users of probability 0.5 are all there in 1.6% of the rounds.",
        ],
    )


def _schemes() -> dict[tuple[str, int], SelectionParameters]:
    schemes: dict[tuple[str, int], SelectionParameters] = {(RANDOM, 1): RandomParameters(participants=PARTICIPANTS)}
    for privacy in PRIVACIES:
        for mode in MODES:
            schemes[mode, privacy] = BatchPartitionParameters(participants=PARTICIPANTS, privacy=privacy, mode=mode)
    return schemes


def _pooled(parameters: SelectionParameters, seeds: int) -> npt.NDArray[np.int64]:
    """Return participations with equal dropout probabilities, `(n + 1,)`: each user's, then the completed rounds."""
    matrices = [
        simulate(parameters, np.full(POPULATION, EQUAL_DROPOUT), ROUNDS[1], seed) for seed in range(1, seeds + 1)
    ]
    matrix = np.concatenate(matrices)
    return np.append(matrix.sum(axis=0, dtype=np.int64), matrix.any(axis=1).sum())


def p_value(participations: npt.NDArray[np.int64], privacy: int) -> float:
    """Return the p-value of the hypothesis that all batches are equally likely to take part.

    Rounds take k of m batches. If batches were exchangeable and rounds independent, the squared deviations of the
    batches' counts, over their variance, would be chi-square with m - 1 degrees of freedom; rules that even out have
    smaller deviations.

    Args:
        participations: `(n + 1,)` of each user, and last the number of completed rounds.
        privacy: T.
    """
    batches = Batches.consecutive(len(participations) - 1, privacy)
    counts = participations[np.searchsorted(batches.of, np.arange(len(batches)))]
    rounds, share = participations[-1], (PARTICIPANTS // privacy) / len(batches)
    spread = ((counts - rounds * share) ** 2).sum()
    # Counts add up to a constant, so their covariance has one eigenvalue beside 0: m / (m - 1) variances.
    variance = rounds * share * (1 - share) * len(batches) / (len(batches) - 1)
    return float(chi2.sf(spread / variance, len(batches) - 1))


def table(completed: Gaps, every: Gaps, p_values: Mapping[tuple[str, int], float]) -> pd.DataFrame:
    """Return F for each rule and T as mean and half-width over the seeds, and the p-value at equal probabilities.

    Args:
        completed: F over completed rounds.
        every: F over all rounds.
        p_values: p-values by rule and T.
    """
    rows = []
    for (mode, privacy), gaps in completed.items():
        row: dict[str, object] = {"rule": mode, "T": privacy}
        for place, rounds in enumerate(ROUNDS):
            interval = mean_interval(gaps[:, place])
            row |= {f"F({rounds}) completed": interval.mean, f"± {rounds}": interval.half_width}
        row |= {f"F({rounds})": float(every[mode, privacy][:, place].mean()) for place, rounds in enumerate(ROUNDS)}
        rows.append(row | {"equal p: p-value": p_values.get((mode, privacy))})
    return pd.DataFrame.from_records(rows)


def claims(gaps: Gaps, p_values: Mapping[tuple[str, int], float], seeds: int) -> list[PaperClaim]:
    """Return the claims of Theorem 1 where it applies, Remark 4, and Figure 4 (b) under the rule of the public code.

    Args:
        gaps: F over all rounds.
        p_values: p-values by rule and T.
        seeds: number of seeds.
    """
    smaller = [mean_interval((gaps[RANDOM, 1] - gaps["least-total", t])[:, 1]) for t in PRIVACIES]
    return [
        _equal_users(p_values, seeds),
        PaperClaim(
            "The second component is needed for fairness (Remark 4): uniform choice has the larger gap",
            _format_differences("F({0}) uniform less fair", gaps, "uniform", "fair"),
            [above("F uniform less fair", gap) for gap in _less(gaps, "uniform", "fair")],
            seeds=seeds,
        ),
        PaperClaim(
            "With it, the gap goes to zero with unequal probabilities, too (Remark 4; Algorithm 2 as printed)",
            _ends(gaps, "fair"),
            _vanishing(gaps, "fair"),
            seeds=seeds,
        ),
        PaperClaim(
            "The same, by the least sum of participations as in the public code",
            _ends(gaps, "least-total"),
            _vanishing(gaps, "least-total"),
            seeds=seeds,
        ),
        PaperClaim(
            "Multi-RoundSecAgg has a smaller fairness gap than random selection (Fig. 4b; least sum of participations)",
            f"F({ROUNDS[1]}) of random less theirs: "
            + ", ".join(f"T = {t}: {_interval(gap)}" for t, gap in zip(PRIVACIES, smaller, strict=True)),
            [above(f"F({ROUNDS[1]}) of random less that of batches", gap) for gap in smaller],
            seeds=seeds,
        ),
    ]


def _equal_users(p_values: Mapping[tuple[str, int], float], seeds: int) -> PaperClaim:
    least = {key: value for key, value in p_values.items() if key[0] != "least-total"}
    return PaperClaim(
        "F = 0 where all drop out with the same probability (Theorem 1)",
        "p-values of equal participation "
        + ", ".join(f"{mode}, T = {privacy}: {value:.2g}" for (mode, privacy), value in least.items()),
        [between("p-value that batches are chosen equally often", value, least=CHANCE) for value in least.values()],
        seeds=seeds,
    )


def claims_of(table: pd.DataFrame, seeds: int) -> list[PaperClaim | None]:
    """Return the claim about equal users; the others need the gaps of each seed, and the table has means.

    Args:
        table: as `table` makes it.
        seeds: number of seeds of each mean.
    """
    tested = table[table["T"] > 1]
    p_values = {(str(row["rule"]), int(row["T"])): float(row["equal p: p-value"]) for _, row in tested.iterrows()}
    return [_equal_users(p_values, seeds), None, None, None, None]


def _less(gaps: Gaps, rule: Mode, other: Mode) -> list[Interval]:
    """Return the difference of two rules after the last round, seed by seed, for each T."""
    return [mean_interval((gaps[rule, t] - gaps[other, t])[:, -1]) for t in PRIVACIES]


def _format_differences(heading: str, gaps: Gaps, rule: Mode, other: Mode) -> str:
    gaps_by_privacy = zip(PRIVACIES, _less(gaps, rule, other), strict=True)
    return f"{heading.format(ROUNDS[-1])}: " + ", ".join(f"T = {t}: {_interval(gap)}" for t, gap in gaps_by_privacy)


def _ends(gaps: Gaps, mode: Mode) -> str:
    gaps_by_privacy = [(t, mean_interval(gaps[mode, t][:, -1])) for t in PRIVACIES]
    return f"F({ROUNDS[-1]}): " + ", ".join(f"T = {t}: {_interval(gap)}" for t, gap in gaps_by_privacy)


def _vanishing(gaps: Gaps, mode: Mode) -> list[Check]:
    return [below(f"F({ROUNDS[-1]})", mean_interval(gaps[mode, t][:, -1]), NOTHING) for t in PRIVACIES]


def _interval(gap: Interval) -> str:
    return f"{gap.mean:.3g} ± {gap.half_width or 0.0:.1g}"


REPRODUCTIONS = (
    Reproduction(
        "multiround-fairness",
        "The fairness gap of three rules of choosing batches, equal and unequal dropouts",
        f"{PAPER}, Theorem 1, Remark 4 and Figure 4 (b)",
        run_fairness,
        claims_of=claims_of,
    ),
)
