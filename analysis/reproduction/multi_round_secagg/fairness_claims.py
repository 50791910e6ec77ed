"""Table, claims and remarks on Multi-RoundSecAgg's fairness gap, from the gaps of each rule and seed."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import chi2, ncx2, norm

from analysis.reproduction.contract import Measurements
from analysis.reproduction.multi_round_secagg.published import RANDOM
from analysis.reproduction.verdicts import PaperClaim, above, below, between
from analysis.statistics import Interval, mean_interval
from testbed.arrays import Floats

Mode = Literal["uniform", "fair", "least-total"]
MODES: tuple[Mode, ...] = ("uniform", "fair", "least-total")
PRIVACIES = (6, 4, 3)

NOTHING = 0.01
"""Largest gap that counts as a gap of zero."""

UNBIASED = 0.01
"""Deviation of the batches' probabilities from K/N, relative to K/N (root mean square), that counts as none."""

HALVED = 0.5
"""Factor by which the distance from the optimum must fall in eight times as many rounds; the rate 1/J gives 1/8."""

Gaps = Mapping[tuple[str, int], Floats]
"""Numbers by rule and T, `(seeds, rounds)`; random selection has the key ``("random", 1)``."""


def by_rule(frame: pd.DataFrame, column: str) -> Gaps:
    """Return a column by rule and T, one row per seed and one column per number of rounds.

    Args:
        frame: one row per rule, T, seed and number of rounds.
        column: name of the column.
    """
    return {
        (str(key[0]), int(group["T"].iloc[0])): group.pivot(index="seed", columns="rounds", values=column).to_numpy(
            np.float64
        )
        for key, group in frame.groupby(["rule", "T"], sort=False)
    }


def table(measurements: Measurements) -> pd.DataFrame:
    """Return F for each rule and T as mean and half-width over the seeds, and the limit of F at equal probabilities.

    Args:
        measurements: gaps by rule, T, seed and rounds; batches' participations at equal probabilities.
    """
    frame = measurements.tables["gaps"]
    marks = sorted(frame["rounds"].unique().tolist())
    every, completed = by_rule(frame, "F"), by_rule(frame, "F completed")
    limits = _limits(measurements)
    rows = []
    for (rule, privacy), gaps in completed.items():
        row: dict[str, object] = {"rule": rule, "T": privacy}
        for place, rounds in enumerate(marks):
            interval = mean_interval(gaps[:, place])
            row |= {f"F({rounds}) completed": interval.mean, f"± {rounds}": interval.half_width}
        row |= {f"F({rounds})": float(every[rule, privacy][:, place].mean()) for place, rounds in enumerate(marks)}
        rows.append(row | {"equal p: F at most": limits.get((rule, privacy))})
    return pd.DataFrame.from_records(rows)


# -- equal dropout probabilities ------------------------------------------------------------------------------------


def gap_limit(counts: Floats, rounds: int, confidence: float = 0.95) -> float:
    """Return an upper confidence limit of the largest difference between two batches' probabilities to take part.

    Each probability is within z standard errors of its frequency, all at once (Bonferroni over both ends of all
    batches). Rules that even out participation have smaller errors than the independent rounds that are assumed.

    Args:
        counts: `(m,)` rounds in which each batch took part.
        rounds: number of rounds.
        confidence: of the limit.
    """
    share = float(counts.mean()) / rounds
    error = np.sqrt(share * (1 - share) / rounds)
    reach = float(norm.isf((1 - confidence) / (2 * len(counts)))) * error
    return float(np.ptp(counts) / rounds + 2 * reach)


def p_value(counts: Floats, completed: int) -> float:
    """Return the p-value of the hypothesis that all batches are equally likely to take part.

    Args:
        counts: `(m,)` rounds in which each batch took part.
        completed: number of completed rounds.
    """
    return float(chi2.sf(_statistic(counts, completed), len(counts) - 1))


def bias_limit(counts: Floats, completed: int, confidence: float = 0.975) -> float:
    """Return an upper limit of the batches' deviations from equal probabilities, relative (root mean square).

    The statistic is noncentral chi-square if the probabilities differ; the limit is that of the noncentrality at which
    so small a statistic has probability 1 - `confidence`: a test of equivalence.

    Args:
        counts: `(m,)` rounds in which each batch took part.
        completed: number of completed rounds.
        confidence: of the limit.
    """
    statistic, freedom, alpha = _statistic(counts, completed), len(counts) - 1, 1 - confidence
    if chi2.cdf(statistic, freedom) <= alpha:
        return 0.0
    most = 10 * (statistic + freedom + 10)
    noncentrality = float(brentq(lambda nc: ncx2.cdf(statistic, freedom, nc) - alpha, 0.0, most))
    share = float(counts.mean()) / completed
    return float(np.sqrt(noncentrality * _variance(counts, completed) / len(counts))) / (completed * share)


def _statistic(counts: Floats, completed: int) -> float:
    """Return the squared deviations of the counts over their variance.

    Rounds take k of m batches. If batches are exchangeable and rounds independent, this is chi-square with m - 1
    degrees of freedom.
    """
    return float(((counts - counts.mean()) ** 2).sum() / _variance(counts, completed))


def _variance(counts: Floats, completed: int) -> float:
    share = float(counts.mean()) / completed
    # Counts add up to a constant, so their covariance has one eigenvalue beside 0: m / (m - 1) variances.
    return completed * share * (1 - share) * len(counts) / (len(counts) - 1)


def _pooled(measurements: Measurements) -> dict[tuple[str, int], tuple[Floats, int, int]]:
    """Return by rule and T, all seeds together: each batch's rounds, completed rounds, and all rounds."""
    frame, pooled = measurements.tables["equal"], {}
    for key, group in frame.groupby(["rule", "T"], sort=False):
        counts = group.groupby("batch")["rounds"].sum().to_numpy(np.float64)
        completed = int(group.groupby("seed")["completed"].first().sum())
        rounds = int(measurements.setting.sizes["rounds"]) * group["seed"].nunique()
        pooled[str(key[0]), int(group["T"].iloc[0])] = (counts, completed, rounds)
    return pooled


def _limits(measurements: Measurements) -> dict[tuple[str, int], float]:
    return {key: gap_limit(counts, rounds) for key, (counts, _, rounds) in _pooled(measurements).items()}


def _equal_users(measurements: Measurements, seeds: int) -> PaperClaim:
    limits = _limits(measurements)
    return PaperClaim(
        "F = 0 where all drop out with the same probability (Theorem 1)",
        "95% upper limits of F "
        + ", ".join(f"{rule}, T = {privacy}: {limit:.4f}" for (rule, privacy), limit in limits.items()),
        [below("upper limit of F", limit, NOTHING) for limit in limits.values()],
        seeds=seeds,
        uses_data=False,
    )


def _lemma_1(measurements: Measurements, seeds: int) -> PaperClaim:
    uniform = {privacy: each for (rule, privacy), each in _pooled(measurements).items() if rule == "uniform"}
    limits = {privacy: bias_limit(counts, completed) for privacy, (counts, completed, _) in uniform.items()}
    tests = {privacy: p_value(counts, completed) for privacy, (counts, completed, _) in uniform.items()}
    return PaperClaim(
        "Selection is unbiased: every user takes part in a completed round with probability K/N (Lemma 1, (16); in "
        "(17) the sum must run to N, in (13) the two cases are exchanged)",
        "uniform choice, equal dropouts: batches deviate from K/N by at most "
        + ", ".join(f"{100 * limit:.2f}% at T = {t} (chi-square p = {tests[t]:.2g})" for t, limit in limits.items()),
        [between("relative deviation, 97.5% limit", limit, most=UNBIASED) for limit in limits.values()],
        seeds=seeds,
        uses_data=False,
    )


# -- unequal dropout probabilities ----------------------------------------------------------------------------------


def _remark_10(measurements: Measurements, seeds: int) -> list[PaperClaim]:
    excess = {
        (str(key[0]), int(group["T"].iloc[0])): mean_interval(group["excess"])
        for key, group in measurements.tables["preferences"].groupby(["rule", "T"], sort=False)
    }
    chosen = {key: each for key, each in excess.items() if key[0] != "uniform"}
    control = {key: each for key, each in excess.items() if key[0] == "uniform"}
    distances = by_rule(measurements.tables["gaps"], "suboptimality")
    falls = {t: mean_interval(np.log2(distances["least-total", t][:, -1] / distances["least-total", t][:, -2]))
             for t in PRIVACIES}  # fmt: skip
    marks = sorted(measurements.tables["gaps"]["rounds"].unique().tolist())
    return [
        PaperClaim(
            "Selection by frequency of participation breaks the conditional unbiasedness (Remark 10)",
            "equal dropouts: share of chosen batches with few participations, less their share of all batches: "
            + "; ".join(f"{rule}, T = {t}: {_interval(each)}" for (rule, t), each in chosen.items())
            + "; for comparison, uniform choice: "
            + ", ".join(f"T = {t}: {_interval(each)}" for (_, t), each in control.items()),
            [above("excess of batches with few participations", each) for each in chosen.values()],
            seeds=seeds,
            uses_data=False,
        ),
        PaperClaim(
            "Multi-RoundSecAgg converges with different dropout rates (Remark 10; least sum of participations)",
            f"quadratic losses that depend on the dropout rate: log2 of L - L* after {marks[-1]} rounds over that "
            f"after {marks[-2]}: " + ", ".join(f"T = {t}: {_interval(each)}" for t, each in falls.items()),
            [below("log2 of the quotient", each, float(np.log2(HALVED))) for each in falls.values()],
            seeds=seeds,
            uses_data=False,
        ),
    ]


def claims(measurements: Measurements) -> list[PaperClaim]:
    """Return the claims of Theorem 1, Lemma 1, Remarks 4 and 10, and Figure 4 (b) under the rule of the public code."""
    gaps, seeds = by_rule(measurements.tables["gaps"], "F"), len(measurements.setting.seeds)
    marks = sorted(measurements.tables["gaps"]["rounds"].unique().tolist())
    smaller = [mean_interval((gaps[RANDOM, 1] - gaps["least-total", t])[:, -2]) for t in PRIVACIES]
    less_fair = {t: mean_interval((gaps["uniform", t] - gaps["fair", t])[:, -1]) for t in PRIVACIES}
    return [
        _equal_users(measurements, seeds),
        _lemma_1(measurements, seeds),
        PaperClaim(
            "The second component is needed for fairness (Remark 4): uniform choice has the larger gap",
            f"F({marks[-1]}) uniform less fair: "
            + ", ".join(f"T = {t}: {_interval(gap)}" for t, gap in less_fair.items()),
            [above("F uniform less fair", gap) for gap in less_fair.values()],
            seeds=seeds,
            uses_data=False,
        ),
        _vanishing(
            "With it, the gap goes to zero with unequal probabilities, too (Remark 4; Algorithm 2 as printed)",
            gaps, "fair", marks[-1],
        ),
        _vanishing(
            "The same, by the least sum of participations as in the public code", gaps, "least-total", marks[-1]
        ),
        PaperClaim(
            "Multi-RoundSecAgg has a smaller fairness gap than random selection (Fig. 4b; least sum of participations)",
            f"F({marks[-2]}) of random less theirs: "
            + ", ".join(f"T = {t}: {_interval(gap)}" for t, gap in zip(PRIVACIES, smaller, strict=True)),
            [above(f"F({marks[-2]}) of random less that of batches", gap) for gap in smaller],
            seeds=seeds,
            uses_data=False,
        ),
        *_remark_10(measurements, seeds),
    ]  # fmt: skip


def _vanishing(claim: str, gaps: Gaps, mode: Mode, rounds: int) -> PaperClaim:
    ends = {t: mean_interval(gaps[mode, t][:, -1]) for t in PRIVACIES}
    return PaperClaim(
        claim,
        f"F({rounds}): " + ", ".join(f"T = {t}: {_interval(gap)}" for t, gap in ends.items()),
        [below(f"F({rounds})", gap, NOTHING) for gap in ends.values()],
        seeds=len(gaps[mode, PRIVACIES[0]]),
        uses_data=False,
    )


def _interval(gap: Interval) -> str:
    return f"{gap.mean:.3g} ± {gap.half_width or 0.0:.1g}"


def remarks(measurements: Measurements) -> list[str]:
    """Return the inputs, and the meaning of the limits."""
    sizes = measurements.setting.sizes
    return [
        "Unequal: each user's dropout probability is drawn from {0.1, 0.2, 0.3, 0.4, 0.5} for each seed, as in Figure "
        f"4. Equal: {sizes['equal dropout']:g} for all. N = {sizes['population']:.0f}, K = "
        f"{sizes['participants']:.0f}; selection is the federation's own code, without training. ± are 95% intervals "
        "over the seeds.",
        "F is by all rounds, as in the paper; by completed ones, too, as skipped rounds, which are many at T = 6, make "
        "it smaller. The public code divides by completed rounds.",
        "Theorem 1 is about users of equal dropout probability. F is 0 only in the limit: the table has the 95% upper "
        f"limit of the difference of two users' probabilities, over {sizes['rounds']:.0f} rounds of each seed. A "
        f"limit below {NOTHING:g} counts as 0.",
        "A batch that is whole in fewer than K/N of the completed rounds cannot take part as often as the others under "
        "any rule: six users of probability 0.5 are all there in 1.6% of the rounds.",
    ]
