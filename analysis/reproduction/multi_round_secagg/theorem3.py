"""Multi-RoundSecAgg's Theorem 3 and Remark 2: the rounds after which random selection has revealed every update.

So et al., Securing Secure Aggregation, arXiv 2106.03328, appendix H.1: the participation matrix P of N rounds has full
rank with probability 1 - 2 exp(-c'N) for K users chosen uniformly (29), and with the probability (30) for users chosen
independently.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.bounds.batch_partition import (
    independent_bound,
    independent_round,
    rounds_until_full_rank,
    uniform_round,
)
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.multi_round_secagg.published import PAPER, PARTICIPANTS, POPULATION
from analysis.reproduction.verdicts import PaperClaim, between, plus_minus, within
from analysis.statistics import Interval, Proportion, mean_interval
from testbed.arrays import Floats

SIZES = (40, 80, 120, 160, 200, 240)
"""N for the number of rounds; K = N/5, as for Figure 10."""

TRIALS = {"small": 20, "paper": 100}
"""Trials for each N of the number of rounds."""

FAILURE_SIZES = (20, 30, 40, 60)
"""N for the probability that N rounds do not suffice; K = N/5, so that failures are seen."""

FAILURE_TRIALS = {"small": 5000, "paper": 20_000}
EXAMPLE = (POPULATION, PARTICIPANTS, 200)
"""N, K and trials of the experiments' size."""

_STACK = 500
"""Number of matrices in one computation of ranks."""

LINEAR = 0.05
"""Deviation from 1 of the exponent of N that counts as linear."""

SMALL = 0.01
"""Value of the o(1) in (30) that counts as small."""


def measure_theorem3(context: ReproductionContext) -> Measurements:
    """Draw participation matrices until their rank is full."""
    rounds, failures = [], []
    for users in SIZES:
        context.progress(f"N = {users}, K = {users // 5}: {TRIALS[context.scale]} matrices")
        counts = rounds_until_full_rank(
            uniform_round(users, users // 5), users, TRIALS[context.scale], 2 * users, seed=users
        )
        rounds += [{"N": users, "trial": trial, "rounds": int(count)} for trial, count in enumerate(counts, 1)]
    context.progress(
        f"failures: {FAILURE_TRIALS[context.scale]} matrices each of N = {', '.join(map(str, FAILURE_SIZES))}"
    )
    for users, selected in [*((size, size // 5) for size in FAILURE_SIZES), (60, 6)]:
        for kind, draw in (("uniform", uniform_round), ("independent", independent_round)):
            failures.append(_failures(kind, users, selected, draw(users, selected), FAILURE_TRIALS[context.scale]))
    users, selected, trials = EXAMPLE
    failures.append(_failures("uniform", users, selected, uniform_round(users, selected), trials))
    return Measurements(
        Setting("none", sizes={"largest population": max(SIZES)}),
        {"rounds": pd.DataFrame(rounds), "failures": pd.DataFrame(failures)},
    )


def _failures(
    kind: str, users: int, selected: int, draw: Callable[[np.random.Generator], npt.NDArray[np.int64]], trials: int
) -> dict[str, Any]:
    """Count the matrices of N rounds without full rank, in floating point."""
    generator, failures = np.random.default_rng(1), 0
    for first in range(0, trials, _STACK):
        stack = np.array([[draw(generator) for _ in range(users)] for _ in range(min(_STACK, trials - first))])
        failures += int((np.linalg.matrix_rank(stack.astype(np.float64)) < users).sum())
    return {"kind": kind, "N": users, "K": selected, "trials": trials, "failures": failures}


def conclude_theorem3(measurements: Measurements) -> ReproductionResult:
    """Compare the rounds with N, and the failures with (29) and (30)."""
    rounds, failures = measurements.tables["rounds"], measurements.tables["failures"]
    return ReproductionResult(
        table(failures),
        claims=[_linear(rounds), _exponential(failures), _independent(failures)],
        remarks=[
            "The number of rounds is the first after which P has rank N, modulo a prime of 31 bits, which is never "
            "above the rank over the rationals. All users are available.",
            "failures: share of matrices of N rounds without full numerical rank, with 95% intervals (Clopper and "
            "Pearson).",
            f"(30) has an o(1) that the paper does not state; a value of up to {SMALL:g} counts as small.",
        ],
    )


def table(failures: pd.DataFrame) -> pd.DataFrame:
    """Return the share of failures with its interval, beside (30) without o(1).

    Args:
        failures: one row per kind of selection, N and K.
    """
    rows = []
    for _, row in failures.iterrows():
        share = Proportion.of(int(row["failures"]), int(row["trials"]))
        independent = row["kind"] == "independent"
        rows.append(
            {
                "selection": row["kind"],
                "N": str(row["N"]),
                "K": str(row["K"]),
                "failures": share.rate,
                "95% low": share.low,
                "95% high": share.high,
                "by (30) without o(1)": _by_30(int(row["N"]), int(row["K"])) if independent else None,
            }
        )
    return pd.DataFrame(rows)


def _by_30(users: int, selected: int) -> float:
    return 1 - independent_bound(users, selected)


def _linear(rounds: pd.DataFrame) -> PaperClaim:
    """Return the claim of Remark 2, by the exponent of N in a regression of log rounds on log N."""
    by_size = {int(group["N"].iloc[0]): group["rounds"] for _, group in rounds.groupby("N")}
    exponent = slope(np.log(rounds["N"].to_numpy(np.float64)), np.log(rounds["rounds"].to_numpy(np.float64)))
    at_n = int((rounds["rounds"] == rounds["N"]).sum())
    return PaperClaim(
        "Under random selection the models can be reconstructed within a number of rounds that is linear in N "
        "(abstract, Remark 2)",
        f"full rank after exactly N rounds in {at_n} of {len(rounds)} matrices, N = "
        f"{', '.join(map(str, by_size))}; mean rounds over N "
        + ", ".join(f"{counts.mean() / size:.3f}" for size, counts in by_size.items())
        + f" with K = N/5; exponent of N {plus_minus(exponent, '.4f')}",
        [within("exponent of N", exponent, 1.0, LINEAR)],
        uses_data=False,
    )


def slope(x: Floats, y: Floats) -> Interval:
    """Return the slope of a least-squares line, with its 95% interval from the slopes without one trial each.

    Args:
        x, y: `(n,)`.

    Source:
        Efron and Tibshirani, An Introduction to the Bootstrap, chapter 11 (jackknife pseudo-values).
    """
    every, count = float(np.polyfit(x, y, 1)[0]), len(x)
    without = [float(np.polyfit(np.delete(x, place), np.delete(y, place), 1)[0]) for place in range(count)]
    return mean_interval(count * every - (count - 1) * np.array(without))


def _exponential(failures: pd.DataFrame) -> PaperClaim:
    """Return the claim of (29): the c' that the smallest N allows must hold for all larger ones."""
    uniform = failures[failures["kind"] == "uniform"]
    shares = {
        (int(row["N"]), int(row["K"])): Proportion.of(int(row["failures"]), int(row["trials"]))
        for _, row in uniform.iterrows()
    }
    fifths = {users: share for (users, selected), share in shares.items() if users == 5 * selected}
    smallest = min(fifths)
    constant = -float(np.log(fifths[smallest].high / 2)) / smallest
    allowed = {users: 2 * float(np.exp(-constant * users)) for users in fifths}
    users, selected, _ = EXAMPLE
    example = shares[users, selected]
    return PaperClaim(
        "Random selection reveals all models after N rounds with probability 1 - 2 exp(-c'N) (Theorem 3, (29); c' is "
        "not stated)",
        f"K = N/5: N = {smallest} gives c' = {constant:.3f}; failures at "
        + ", ".join(
            f"N = {size}: {share.rate:.4f}, at most {share.high:.4f} (allowed {allowed[size]:.4f})"
            for size, share in fifths.items()
        )
        + f"; N = {users}, K = {selected}: {example.count} of {example.trials}",
        [
            between("failures over 2 exp(-c'N), upper limit", share.high / allowed[size], most=1.0)
            for size, share in fifths.items()
            if size > smallest
        ],
        uses_data=False,
    )


def _independent(failures: pd.DataFrame) -> PaperClaim:
    independent = failures[failures["kind"] == "independent"]
    excess = {
        (int(row["N"]), int(row["K"])): (
            Proportion.of(int(row["failures"]), int(row["trials"])),
            _by_30(int(row["N"]), int(row["K"])),
        )
        for _, row in independent.iterrows()
    }
    return PaperClaim(
        "Independent selection does so with the probability of (30), up to o(1)",
        "failures "
        + ", ".join(
            f"N = {users}, K = {selected}: {share.rate:.4f} ({share.low:.4f} to {share.high:.4f}), by (30) {bound:.4f}"
            for (users, selected), (share, bound) in excess.items()
        ),
        [
            between("failures more than (30) without o(1), upper limit", share.high - bound, most=SMALL)
            for share, bound in excess.values()
        ],
        uses_data=False,
    )


REPRODUCTIONS = (
    Reproduction(
        "multiround-theorem3",
        "Rounds until random selection has revealed every update, against N",
        f"{PAPER}, Theorem 3 (appendix H.1), Remark 2",
        measure=measure_theorem3,
        conclude=conclude_theorem3,
    ),
)
