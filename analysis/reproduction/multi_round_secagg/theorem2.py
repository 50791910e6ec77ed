"""Multi-RoundSecAgg's Theorem 2 on losses with known constants: the bound, and the rate against the cardinality C.

So et al., Securing Secure Aggregation, arXiv 2106.03328, Theorem 2, Remark 8 and contribution 4 of the introduction.
User i's loss is ||x - a_i||^2 / 2, so that rho = mu = 1 and gradients have no noise. Participants take one step (E = 1)
with the theorem's rate. The selection is the federation's own code, uniform mode, N = 120, K = 12, and equal dropouts.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.bounds.batch_partition import average_cardinality
from analysis.bounds.convergence import Problem, printed, repaired
from analysis.multi_round.participation import checked
from analysis.multi_round.simulation import simulate
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.multi_round_secagg.fairness import suboptimality
from analysis.reproduction.multi_round_secagg.published import PAPER, PARTICIPANTS, POPULATION
from analysis.reproduction.verdicts import PaperClaim, above, between, plus_minus, within
from analysis.statistics import Interval, mean_interval
from testbed.arrays import Floats
from testbed.batches import Batches
from testbed.selection.batch_partition import BatchPartitionParameters

PRIVACIES = (1, 3, 4, 6, 12)
DROPOUT = 0.3
ROUNDS = 1500
MARKS = (10, 100, 500, 1500)
"""Rounds J at which the bound is compared with the losses."""

SEEDS = {"small": 20, "paper": 40}
COORDINATES = 256
"""Coordinates of the losses: with more of them the losses of a seed fluctuate less."""

START = 2.0
"""Distance of the first model from the optimum."""

TARGET = 2e-4
"""L - L*, relative to the first model's, to which the schemes' rounds are counted."""

SAME = 0.15
"""Relative difference up to which two numbers of rounds count as equal."""

OWN, SHARED = "own data", "equal in a batch"
"""Whether the minimisers a_i are independent, or equal for the members of a batch."""


def measure_theorem2(context: ReproductionContext) -> Measurements:
    """Train with each T, kind of data and seed, and evaluate both bounds."""
    seeds = range(1, SEEDS[context.scale] + 1)
    losses, reached, bounds = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for privacy in PRIVACIES:
        context.progress(f"T = {privacy}: {ROUNDS} rounds, {len(seeds)} seeds")
        parameters = BatchPartitionParameters(participants=PARTICIPANTS, privacy=privacy, mode="uniform")
        for seed in seeds:
            matrix = checked(simulate(parameters, np.full(POPULATION, DROPOUT), ROUNDS, seed))
            for data, minima in minimisers(privacy, seed).items():
                distances = suboptimality(matrix, minima)
                key = {"data": data, "T": privacy, "seed": seed}
                below = np.flatnonzero(distances <= TARGET)
                reached.append(key | {"rounds to target": float(below[0]) if len(below) else None})
                losses += [key | {"round": mark, "loss": START**2 / 2 * float(distances[mark])} for mark in MARKS]
                bounds += [key | row for row in _bounds(privacy, minima)]
    return Measurements(
        Setting(
            "none",
            seeds=list(seeds),
            sizes={
                "population": POPULATION,
                "participants": PARTICIPANTS,
                "rounds": ROUNDS,
                "dropout": DROPOUT,
                "coordinates": COORDINATES,
            },
        ),
        {
            "losses": pd.DataFrame(losses).merge(pd.DataFrame(bounds), on=["data", "T", "seed", "round"]),
            "rounds": pd.DataFrame(reached),
            "cardinality": pd.DataFrame(
                [{"T": t, "C": average_cardinality(POPULATION, PARTICIPANTS, t, DROPOUT)} for t in PRIVACIES]
            ),
        },
    )


def minimisers(privacy: int, seed: int) -> dict[str, Floats]:
    """Return the minimisers a_i of the users' losses by kind of data, `(n, d)` each.

    Args:
        privacy: T.
        seed: seed of the data.
    """
    generator = np.random.default_rng(seed)
    own = generator.normal(size=(POPULATION, COORDINATES)) / np.sqrt(COORDINATES)
    return {OWN: own, SHARED: own[Batches.consecutive(POPULATION, privacy).of]}


def _bounds(privacy: int, minima: Floats) -> list[dict[str, Any]]:
    best = minima.mean(axis=0)
    farthest = float(np.linalg.norm(minima - best, axis=1).max())
    # Models are convex combinations of the first model and of means of minimisers, so they stay in this ball.
    problem = Problem(
        smoothness=1.0,
        convexity=1.0,
        gradient_variance=0.0,
        gradient_bound=(max(START, farthest) + farthest) ** 2,
        heterogeneity=float(((minima - best) ** 2).sum(axis=1).mean()) / 2,
        initial_distance=START**2,
    )
    completed = average_cardinality(POPULATION, PARTICIPANTS, privacy, DROPOUT) / PARTICIPANTS
    return [
        {
            "round": mark,
            "bound": printed(problem, POPULATION, PARTICIPANTS, 1, completed, mark),
            "bound for batches": repaired(problem, POPULATION, PARTICIPANTS, privacy, 1, completed, mark),
        }
        for mark in MARKS
    ]


def conclude_theorem2(measurements: Measurements) -> ReproductionResult:
    """Compare losses with the bound, and rounds with C."""
    frame, seeds = measurements.tables["losses"], len(measurements.setting.seeds)
    cardinality = dict(zip(*(measurements.tables["cardinality"][name] for name in ("T", "C")), strict=True))
    rounds = _rounds(measurements.tables["rounds"])
    return ReproductionResult(
        table(frame, rounds, cardinality),
        claims=[
            _bound_claim(frame, seeds),
            _more_rounds(rounds, cardinality, seeds),
            _controlled(rounds, cardinality, seeds),
            _as_random(rounds, seeds),
        ],
        remarks=[
            "Losses are quadratic, rho = mu = 1, with full gradients; all users have a dropout probability of "
            f"{measurements.setting.sizes['dropout']:g}; ± are 95% intervals over the seeds.",
            f'"{OWN}": the users\' minimisers are independent. "{SHARED}": members of a batch have the same one.',
            f"Rounds to target: the first round in which L - L* is {TARGET:g} of the first model's.",
            "The bound has the constants of these losses, with G^2 over the ball in which the models stay, and Gamma "
            "with the mean of L_i*. (Printed: the sum; here all L_i* are 0, so both are the same.)",
        ],
    )


Rounds = Mapping[tuple[str, int], Floats]
"""Rounds to the target by kind of data and T, `(seeds,)`; NaN where the target was not reached."""


def _rounds(frame: pd.DataFrame) -> Rounds:
    return {
        (str(key[0]), int(group["T"].iloc[0])): group["rounds to target"].to_numpy(np.float64, na_value=np.nan)
        for key, group in frame.groupby(["data", "T"], sort=False)
    }


def table(frame: pd.DataFrame, rounds: Rounds, cardinality: Mapping[int, float]) -> pd.DataFrame:
    """Return C, rounds to the target, and the largest share of the bound, by kind of data and T.

    Args:
        frame: one row per kind of data, T, seed and round.
        rounds: rounds to the target.
        cardinality: C by T.
    """
    rows = []
    for (data, privacy), reached in rounds.items():
        of_rows = frame[(frame["data"] == data) & (frame["T"] == privacy)]
        means = of_rows.groupby("round")[["loss", "bound", "bound for batches"]].mean()
        censored = bool(np.isnan(reached).any())
        rows.append(
            {
                "data": data,
                "T": str(privacy),
                "C": cardinality[privacy],
                "rounds to target": None if censored else float(reached.mean()),
                "± rounds": None if censored else mean_interval(reached).half_width,
                "loss over the bound": float((means["loss"] / means["bound"]).max()),
                "over the bound for batches": float((means["loss"] / means["bound for batches"]).max()),
            }
        )
    return pd.DataFrame(rows)


def _bound_claim(frame: pd.DataFrame, seeds: int) -> PaperClaim:
    quotients = {
        (str(key[0]), int(group["T"].iloc[0]), int(group["round"].iloc[0])): mean_interval(
            group["loss"] / group["bound"]
        )
        for key, group in frame.groupby(["data", "T", "round"], sort=False)
    }
    worst = max(quotients, key=lambda key: quotients[key].mean or 0.0)
    return PaperClaim(
        "Theorem 2 bounds E[L(x_J)] - L* (8)",
        f"largest share of the bound: {plus_minus(quotients[worst], '.3f')} ({worst[0]}, T = {worst[1]}, J = "
        f"{worst[2]}), of {len(quotients)} points with T = {', '.join(map(str, PRIVACIES))}",
        [between("share of the bound", quotient, most=1.0) for quotient in quotients.values()],
        seeds=seeds,
        uses_data=False,
    )


def _growth(rounds: Rounds, data: str, privacy: int, other: int) -> Interval:
    """Return the interval of the mean of log(rounds at T / rounds at the other T), by seed."""
    quotients = rounds[data, privacy] / rounds[data, other]
    return mean_interval(np.log(np.where(np.isnan(quotients).any(), np.nan, quotients)))


def _more_rounds(rounds: Rounds, cardinality: Mapping[int, float], seeds: int) -> PaperClaim:
    pairs = [(6, 1), (12, 6)]
    growths = {pair: _growth(rounds, OWN, *pair) for pair in pairs}
    return PaperClaim(
        "A smaller C needs more rounds to the same accuracy (Remark 8; contribution 4)",
        f"{OWN}: "
        + "; ".join(
            f"T = {t} (C = {cardinality[t]:.2f}) over T = {other} (C = {cardinality[other]:.2f}): {_times(each)}"
            for (t, other), each in growths.items()
        ),
        [
            above(f"log of the rounds at T = {t} over those at T = {other}", each)
            for (t, other), each in growths.items()
        ],
        seeds=seeds,
        not_run="censored" if any(each.mean is None for each in growths.values()) else "",
        uses_data=False,
    )


def _controlled(rounds: Rounds, cardinality: Mapping[int, float], seeds: int) -> PaperClaim:
    excess = {}
    for data in (OWN, SHARED):
        for privacy in PRIVACIES[1:-1] if data == SHARED else PRIVACIES[1:]:
            growth = _growth(rounds, data, privacy, 1)
            expected = float(np.log(cardinality[1] / cardinality[privacy]))
            excess[data, privacy] = Interval(None if growth.mean is None else growth.mean - expected, growth.half_width)
    return PaperClaim(
        "C controls the rate: (8) depends on the batches through C J / K alone (contribution 4)",
        "rounds over those of random selection, divided by K / C: "
        + "; ".join(f"{data}, T = {t}: {_times(each)}" for (data, t), each in excess.items()),
        [within(f"log of it, {data}", each, 0.0, float(np.log1p(SAME))) for (data, _), each in excess.items()],
        seeds=seeds,
        not_run="censored" if any(each.mean is None for each in excess.values()) else "",
        uses_data=False,
    )


def _as_random(rounds: Rounds, seeds: int) -> PaperClaim:
    growths = {data: _growth(rounds, data, 3, 1) for data in (OWN, SHARED)}
    return PaperClaim(
        "With C = K the rate is that of random selection (Remark 8)",
        "rounds at T = 3 over random's: " + "; ".join(f"{data}: {_times(each)}" for data, each in growths.items()),
        [within(f"log of it, {data}", each, 0.0, float(np.log1p(SAME))) for data, each in growths.items()],
        seeds=seeds,
        uses_data=False,
    )


def _times(interval: Interval) -> str:
    if interval.mean is None:
        return "not reached"
    half = interval.half_width or 0.0
    return f"{np.exp(interval.mean):.2f} ({np.exp(interval.mean - half):.2f} to {np.exp(interval.mean + half):.2f})"


REPRODUCTIONS = (
    Reproduction(
        "multiround-theorem2",
        "Theorem 2's bound and the rate against C, on losses with known constants",
        f"{PAPER}, Theorem 2, Remark 8 and contribution 4",
        measure=measure_theorem2,
        conclude=conclude_theorem2,
    ),
)
