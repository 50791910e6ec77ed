"""Batches of like reliability: more updates in a round at the same multi-round privacy T, and the price.

Multi-RoundSecAgg (So et al., arXiv 2106.03328) does not say which users form a batch. Its Theorem 1 has equal dropout
probabilities; with unequal ones, C depends on the partition. The setting is that of section 6: N = 120, K = 12,
dropout probabilities from 0.1, 0.2, 0.3, 0.4 and 0.5, 1,500 rounds. Three partitions are compared: by client number, by
the true probabilities, and by a record of 100 other rounds. The price is fairness (F) and, where the data of reliable
and unreliable users differ, accuracy (Remark 10).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from analysis.reproduction.batches.like_reliability_runs import (
    ACCURACY_PRIVACIES,
    BY_INDEX,
    BY_PROBABILITY,
    BY_RECORD,
    MODES,
    PARTICIPANTS,
    POPULATION,
    PRIVACIES,
    RECORDED,
    SETTINGS,
    measure_like_reliability,
)
from analysis.reproduction.contract import Measurements, Reproduction, ReproductionResult
from analysis.reproduction.verdicts import PaperClaim, above, below, between, equal, plus_minus
from analysis.statistics import Interval, mean_interval

LEAST_EXPECTED = 5
"""Expected number of skipped rounds, over all seeds, from which it is compared with the simulated number."""

FULL = 0.98
"""Share of K from which C has no room to rise."""


def conclude_like_reliability(measurements: Measurements) -> ReproductionResult:
    """Compare the partitions seed by seed."""
    rows, accuracy = measurements.tables["simulated"], measurements.tables["accuracy"]
    rounds = int(measurements.setting.sizes["rounds"])
    return ReproductionResult(
        table=table(rows, accuracy),
        claims=[*cardinality_claims(rows), exactness_claim(rows), privacy_claim(rows), *price_claims(rows, accuracy)],
        remarks=[
            f"{rounds} rounds without training for each seed, by the federation's own selection; dropout probabilities "
            f"are drawn for each seed. F is by completed rounds. The record is of {RECORDED} other rounds.",
            "C is exact: the number of complete batches is a sum of independent coins, one for each batch.",
            f"Accuracy: UCI digits over {POPULATION} users, {int(measurements.setting.sizes['rounds of training'])} "
            "rounds, fair mode, skipped rounds included. In the second setting each user has one label, and users "
            "with a high label are away more often, so that batches of like reliability have one or two labels.",
        ],
    )


def table(rows: pd.DataFrame, accuracy: pd.DataFrame) -> pd.DataFrame:
    """Return means over the seeds for each batch size, partition and mode.

    Args:
        rows: one row for each simulation.
        accuracy: one row for each training run.
    """
    trained = accuracy.groupby(["setting", "T", "partition"])["accuracy"].mean()
    shown = []
    for key, group in rows.groupby(["T", "partition", "mode"], sort=False):
        privacy, partition, mode = int(group["T"].iloc[0]), str(key[1]), str(key[2])
        row: dict[str, Any] = {
            "T": privacy,
            "batches by": partition,
            "mode": mode,
            "C exact": float(group["C exact"].mean()),
            "C": float(group["C"].mean()),
            "skipped": f"{100 * group['skipped'].mean():.1f}%",
            "F completed": float(group["F"].mean()),
            "users never selected": float(group["never selected"].mean()),
            "T strong": int(group["T strong"].min()),
            "T weak": int(group["T weak"].min()),
        }
        for number, setting in enumerate(SETTINGS):
            value = trained.get((setting, privacy, partition)) if mode == "fair" else None
            row["accuracy [%], IID" if not number else "accuracy [%], by label"] = value
        shown.append(row)
    return pd.DataFrame(shown)


def _paired(rows: pd.DataFrame, column: str, privacy: int, mode: str, partition: str = BY_RECORD) -> Interval:
    """Return the mean difference of a partition from that by client number, seed by seed."""
    of_size = rows[(rows["T"] == privacy) & (rows["mode"] == mode)].pivot(
        index="seed", columns="partition", values=column
    )
    return mean_interval(of_size[partition] - of_size[BY_INDEX])


def _means(rows: pd.DataFrame, column: str, privacy: int, mode: str) -> str:
    of_size = rows[(rows["T"] == privacy) & (rows["mode"] == mode)]
    means = of_size.groupby("partition", sort=False)[column].mean()
    return ", ".join(f"{partition} {mean:.3g}" for partition, mean in means.items())


def cardinality_claims(rows: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims on C."""
    seeds = rows["seed"].nunique()
    low, high = (12, 6), (4, 3)
    by_index = rows[(rows["partition"] == BY_INDEX) & (rows["mode"] == "fair")]
    return [
        PaperClaim(
            "Batches of like reliability raise C at T = 12 and T = 6",
            "; ".join(f"T = {privacy}: {_means(rows, 'C exact', privacy, 'fair')}" for privacy in low),
            [
                above("exact C less that by client number", _paired(rows, "C exact", privacy, "fair", partition))
                for privacy in low
                for partition in (BY_PROBABILITY, BY_RECORD)
            ],
            seeds=seeds,
        ),
        PaperClaim(
            "At T = 4 and T = 3 C has no room to rise in this setting",
            "; ".join(f"T = {privacy}: {_means(rows, 'C exact', privacy, 'fair')}" for privacy in high),
            [
                between(
                    "share of K by client number",
                    mean_interval(by_index.loc[by_index["T"] == privacy, "C exact"] / PARTICIPANTS),
                    FULL,
                    1.0,
                )
                for privacy in high
            ],
            seeds=seeds,
        ),
    ]


def exactness_claim(rows: pd.DataFrame) -> PaperClaim:
    """Return the claim that the exact probability of a skipped round is that of the selection."""
    checks = []
    # Both modes skip the same rounds: availability alone decides.
    for _, group in rows[rows["mode"] == "fair"].groupby(["T", "partition"], sort=False):
        rounds = group["rounds"]
        expected = float((rounds * group["skipped exact"]).sum())
        if expected < LEAST_EXPECTED:
            continue
        variance = float((rounds * group["skipped exact"] * (1 - group["skipped exact"])).sum())
        excess = (float((rounds * group["skipped"]).sum()) - expected) / np.sqrt(variance)
        checks.append(between("skipped rounds less the expected number, in standard errors", float(excess), -4.0, 4.0))
    furthest = max((abs(check.value or 0.0) for check in checks), default=0.0)
    return PaperClaim(
        "Theorem 1 with a probability for each batch gives the skipped rounds of the selection",
        f"the furthest of {len(checks)} batch sizes and partitions with {LEAST_EXPECTED} skipped rounds or more is "
        f"{furthest:.1f} standard errors off",
        checks,
        seeds=rows["seed"].nunique(),
    )


def privacy_claim(rows: pd.DataFrame) -> PaperClaim:
    """Return the claim that T does not depend on the partition."""
    certified = rows[rows["T weak certified"].astype(bool)]
    return PaperClaim(
        "T does not depend on who forms a batch",
        f"T strong is T in {int((rows['T strong'] == rows['T']).sum())} of {len(rows)} simulations, T weak in "
        f"{int((certified['T weak'] == certified['T']).sum())}, with a certificate",
        [
            equal("simulations with another T strong", float((rows["T strong"] != rows["T"]).sum()), 0.0),
            equal("simulations without a certified T weak of T", float(len(rows) - _certified(rows)), 0.0),
        ],
        seeds=rows["seed"].nunique(),
    )


def _certified(rows: pd.DataFrame) -> int:
    return int(((rows["T weak"] == rows["T"]) & rows["T weak certified"].astype(bool)).sum())


def price_claims(rows: pd.DataFrame, accuracy: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims on fairness and accuracy.

    Args:
        rows: one row for each simulation.
        accuracy: one row for each training run.
    """
    seeds = rows["seed"].nunique()
    gaps = {mode: {size: _paired(rows, "F", size, mode) for size in PRIVACIES} for mode in MODES}
    claims = [
        PaperClaim(
            f"Batches of like reliability have the larger fairness gap ({mode})",
            "F less that by client number: "
            + "; ".join(f"T = {size}: {plus_minus(gap, '+.3f')}" for size, gap in of_mode.items()),
            [above(f"F less that by client number, T = {size}", gap) for size, gap in of_mode.items()],
            seeds=seeds,
        )
        for mode, of_mode in gaps.items()
    ]
    statements: tuple[tuple[str, Callable[..., Any]], ...] = (
        ("With IID data the additional rounds raise the accuracy", above),
        ("Where unreliable users have other data, accuracy falls (Remark 10)", below),
    )
    for setting, (statement, check) in zip(SETTINGS, statements, strict=True):
        of_setting = accuracy[accuracy["setting"] == setting]
        differences = {}
        for privacy in ACCURACY_PRIVACIES:
            pivot = of_setting[of_setting["T"] == privacy].pivot(index="seed", columns="partition", values="accuracy")
            differences[privacy] = mean_interval(pivot[BY_RECORD] - pivot[BY_INDEX])
        claims.append(
            PaperClaim(
                f"{statement} ({setting})",
                "points over batches by client number: "
                + "; ".join(f"T = {size}: {plus_minus(gap, '+.1f')}" for size, gap in differences.items()),
                [check(f"points, T = {size}", gap, 0.0) for size, gap in differences.items()],
                seeds=of_setting["seed"].nunique(),
            )
        )
    return claims


REPRODUCTIONS = (
    Reproduction(
        "batches-like-reliability",
        "Batches of like reliability: cardinality, fairness, privacy and accuracy",
        "Beyond So et al., Multi-RoundSecAgg, arXiv 2106.03328: Theorem 1 and section 6 with another partition",
        measure=measure_like_reliability,
        conclude=conclude_like_reliability,
        built_in_data="stand-in",
    ),
)
