"""Multi-RoundSecAgg's fairness gap under three rules for choosing among the available sets of batches.

So et al., Securing Secure Aggregation, arXiv 2106.03328, Theorem 1 (F = 0), Lemma 1 (unbiased selection), Remark 4 (the
second component is necessary for F = 0), Remark 10 (different dropout rates) and Figure 4 (b). The rules choose
uniformly; or the set with the user of fewest participations, as in Algorithm 2 as printed; or the set with the least
sum of participations, as in the public code (DGIST-Distributed-AI-Lab/multi-round-secagg).
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.multi_round.participation import checked, fairness_gaps
from analysis.multi_round.simulation import DROPOUT_PROBABILITIES, dropout_probabilities, simulate
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.multi_round_secagg.fairness_claims import MODES, PRIVACIES, claims, remarks, table
from analysis.reproduction.multi_round_secagg.published import PAPER, PARTICIPANTS, POPULATION, RANDOM
from testbed.arrays import Floats
from testbed.batches import Batches
from testbed.selection.batch_partition import BatchPartitionParameters
from testbed.selection.contract import SelectionParameters
from testbed.selection.random_selection import RandomParameters

ROUNDS = (200, 1500, 12_000)
"""Rounds after which F and the distance from the optimum are measured."""

EQUAL_DROPOUT = 0.3
"""Dropout probability of all users where Theorem 1 applies; the mean of section 6's five."""

SCALES = {"small": 10, "paper": 20}
"""Number of seeds."""

COORDINATES = 32
"""Coordinates of the quadratic losses, beside one for each dropout probability."""


def measure_fairness(context: ReproductionContext) -> Measurements:
    """Simulate the rules at unequal and at equal dropout probabilities."""
    seeds = range(1, SCALES[context.scale] + 1)
    gaps, preferences, counts = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for seed in seeds:
        context.progress(f"seed {seed} of {len(seeds)}: {ROUNDS[-1]} rounds of {len(_schemes())} rules, twice")
        unequal = dropout_probabilities(POPULATION, seed)
        equal = np.full(POPULATION, EQUAL_DROPOUT)
        for (rule, privacy), parameters in _schemes().items():
            key = {"rule": rule, "T": privacy, "seed": seed}
            matrix = checked(simulate(parameters, unequal, ROUNDS[-1], seed))
            gaps += [key | row for row in _over_rounds(matrix, _minima(unequal, seed))]
            if privacy == 1:
                continue
            # Theorem 1 and Lemma 1 are not about the least sum, so fewer rounds of it will do.
            rounds = ROUNDS[-2] if rule == "least-total" else ROUNDS[-1]
            matrix = checked(simulate(parameters, equal, rounds, seed))
            preferences.append(key | {"excess": preference(matrix, privacy)})
            of_batches = _of_batches(matrix, privacy).sum(axis=0).tolist()
            completed = int(matrix.any(axis=1).sum())
            if rounds == ROUNDS[-1]:
                counts += [
                    key | {"batch": batch, "rounds": count, "completed": completed}
                    for batch, count in enumerate(of_batches)
                ]
    return Measurements(
        Setting(
            "none",
            seeds=list(seeds),
            sizes={
                "population": POPULATION,
                "participants": PARTICIPANTS,
                "rounds": ROUNDS[-1],
                "equal dropout": EQUAL_DROPOUT,
            },
        ),
        {"gaps": pd.DataFrame(gaps), "preferences": pd.DataFrame(preferences), "equal": pd.DataFrame(counts)},
    )


def conclude_fairness(measurements: Measurements) -> ReproductionResult:
    """Compare the gaps with Theorem 1, Lemma 1, Remarks 4 and 10, and Figure 4 (b)."""
    return ReproductionResult(table(measurements), claims=claims(measurements), remarks=remarks(measurements))


def _schemes() -> dict[tuple[str, int], SelectionParameters]:
    schemes: dict[tuple[str, int], SelectionParameters] = {(RANDOM, 1): RandomParameters(participants=PARTICIPANTS)}
    for privacy in PRIVACIES:
        for mode in MODES:
            schemes[mode, privacy] = BatchPartitionParameters(participants=PARTICIPANTS, privacy=privacy, mode=mode)
    return schemes


def _over_rounds(matrix: npt.NDArray[np.bool_], minima: Floats) -> list[dict[str, float]]:
    """Return F by all and by completed rounds, and the distance from the optimum, after each of `ROUNDS`."""
    every, completed = fairness_gaps(matrix), fairness_gaps(matrix, completed_only=True)
    distances = suboptimality(matrix, minima)
    return [
        {
            "rounds": rounds,
            "F": float(every[rounds - 1]),
            "F completed": float(completed[rounds - 1]),
            "suboptimality": float(distances[rounds]),
        }
        for rounds in ROUNDS
    ]


def _minima(unavailable: Floats, seed: int) -> Floats:
    """Return the minimisers of the users' losses, `(n, d)`: the dropout class of a user, and noise."""
    # Data that depend on the dropout probability make unequal participation a bias, as in the first version's
    # section 6, where it depends on the label.
    classes = unavailable[:, None] == np.array(DROPOUT_PROBABILITIES)
    noise = np.random.default_rng(seed).normal(size=(len(unavailable), COORDINATES)) / np.sqrt(COORDINATES)
    return np.concatenate((classes.astype(np.float64), noise), axis=1)


def suboptimality(matrix: npt.NDArray[np.bool_], minima: Floats) -> Floats:
    """Return L(x_J) - L* over that of the first model, after each round, for quadratic losses.

    User i's loss is ||x - a_i||^2 / 2, so rho = mu = 1. A participant takes one full gradient step with Theorem 2's
    rate 2 / (gamma + j), gamma = 8, in the j-th completed round.

    Args:
        matrix: `(rounds, n)` participation.
        minima: `(n, d)` a_i.

    Returns:
        `(rounds + 1,)`.
    """
    best = minima.mean(axis=0)
    x = best + 2 / np.sqrt(minima.shape[1])
    start, step, distances = float(((x - best) ** 2).sum()), 0, [1.0]
    sizes = matrix.sum(axis=1)
    targets = (matrix @ minima) / np.maximum(sizes, 1)[:, None]
    for size, target in zip(sizes, targets, strict=True):
        if size:
            x = x - 2 / (8 + step) * (x - target)
            step += 1
        distances.append(float(((x - best) ** 2).sum()) / start)
    return np.array(distances)


def preference(matrix: npt.NDArray[np.bool_], privacy: int) -> float:
    """Return how much more often a rule takes batches with few participations than an unbiased choice takes them.

    Args:
        matrix: `(rounds, n)` participation.
        privacy: T.

    Returns:
        Mean over completed rounds of the share of the chosen batches that had fewer participations than the mean,
        less the share of all batches that had. 0 for a choice that does not depend on earlier rounds, if all users have
        the same dropout probability.
    """
    chosen = _of_batches(matrix, privacy)
    before = np.cumsum(chosen, axis=0) - chosen
    few = before < before.mean(axis=1, keepdims=True)
    taken = chosen.sum(axis=1)
    completed = taken > 0
    share = (chosen & few).sum(axis=1)[completed] / taken[completed]
    return float((share - few.mean(axis=1)[completed]).mean())


def _of_batches(matrix: npt.NDArray[np.bool_], privacy: int) -> npt.NDArray[np.int64]:
    """Return the participation of whole batches, `(rounds, batches)`."""
    batches = Batches.consecutive(matrix.shape[1], privacy)
    return matrix[:, np.searchsorted(batches.of, np.arange(len(batches)))].astype(np.int64)


REPRODUCTIONS = (
    Reproduction(
        "multiround-fairness",
        "The fairness gap of three rules of choosing batches, equal and unequal dropouts",
        f"{PAPER}, Theorem 1, Lemma 1, Remarks 4 and 10, and Figure 4 (b)",
        measure=measure_fairness,
        conclude=conclude_fairness,
    ),
)
