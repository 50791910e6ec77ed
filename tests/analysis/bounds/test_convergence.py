"""Theorem 2: batch-partition really run on losses with known constants stays below the bound."""

import itertools

import numpy as np
import pytest

from analysis.bounds.batch_partition import unavailable_round
from analysis.bounds.convergence import Problem, printed, repaired
from testbed.errors import RoundSkipped
from testbed.selection.batch_partition import BatchPartitionParameters, BatchPartitionSelection

USERS, SELECTED, PRIVACY, STEPS, DROPOUT = 24, 6, 3, 2, 0.15
DIMENSION, NOISE, RHO, MU = 3, 0.5, 2.0, 1.0


class Quadratics:
    """L_i(x) = (x - a_i)^T D (x - a_i) / 2 with D between mu and rho; gradients with noise of norm `NOISE`.

    L* is at the mean of the a_i, L_i* = 0. Steps are shorter than 1 / rho, so iterates stay in a ball about 0 in
    which G^2 bounds the gradients.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.curvature = np.linspace(MU, RHO, DIMENSION)
        self.minima = rng.uniform(-0.3, 0.3, (USERS, DIMENSION))
        self.best = self.minima.mean(axis=0)
        self.start = np.full(DIMENSION, 4.0)
        farthest = float(np.linalg.norm(self.minima, axis=1).max())
        radius = max(float(np.linalg.norm(self.start)), (RHO * farthest + NOISE) / MU)
        self.problem = Problem(
            RHO, MU, NOISE**2, (RHO * (radius + farthest) + NOISE) ** 2, self.loss(self.best),
            float(((self.start - self.best) ** 2).sum()),
        )  # fmt: skip

    def loss(self, x: np.ndarray) -> float:
        return float(((x - self.minima) ** 2 @ self.curvature).mean() / 2)

    def gradients(self, x: np.ndarray, users: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        noise = rng.normal(size=x.shape)
        noise *= NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
        return (x - self.minima[users]) * self.curvature + noise


def gaps(losses: Quadratics, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """`(rounds + 1,)` L(x_J) - L* of one training with batch-partition selection and dropouts."""
    parameters = BatchPartitionParameters(participants=SELECTED, privacy=PRIVACY, mode="uniform")
    selection = BatchPartitionSelection(parameters, USERS)
    x, steps = losses.start, 0
    found = [losses.loss(x)]
    for _ in range(rounds):
        present = np.flatnonzero(rng.random(USERS) >= DROPOUT)
        try:
            users = selection.batches.members(selection.choose(present, np.zeros(USERS, np.int64), rng))
        except RoundSkipped:
            found.append(found[-1])
            continue
        local = np.repeat(x[None], len(users), axis=0)
        for _ in range(STEPS):
            rate = 2 / (MU * (losses.problem.gamma(STEPS) + steps))  # that of the theorem
            local -= rate * losses.gradients(local, users, rng)
            steps += 1
        x = local.mean(axis=0)
        found.append(losses.loss(x))
    return np.array(found) - losses.loss(losses.best)


def test_batch_partition_stays_below_both_bounds_which_say_something() -> None:
    rng = np.random.default_rng(5)
    losses = Quadratics(rng)
    rounds, runs = 1500, 8
    mean = np.mean([gaps(losses, rounds, rng) for _ in range(runs)], axis=0)
    completed = 1 - unavailable_round(USERS, SELECTED, PRIVACY, DROPOUT)
    assert 0.5 < completed < 0.999
    for number in (0, 1, 2, 5, 10, 50, 200, rounds):
        published = printed(losses.problem, USERS, SELECTED, STEPS, completed, number)
        sound = repaired(losses.problem, USERS, SELECTED, PRIVACY, STEPS, completed, number)
        assert mean[number] < published <= sound * (1 + 1e-12)
    assert sound < mean[0]  # so that a training which does not converge would exceed it
    assert mean[rounds] < 0.01 * mean[0]


def test_the_printed_variance_is_exceeded_by_batches_of_eight() -> None:
    """E = 1, gradients of norm G that agree within batches and cancel over all: (20) of the paper fails."""
    users, selected, privacy, norm = 32, 8, 8, 1.0
    updates = np.repeat([1.0, -1.0, 1.0, -1.0], privacy) * norm  # of eta = 1, in one dimension
    chosen = [np.arange(privacy) + privacy * batch for batch in range(users // privacy)]
    variance = np.mean([(updates[batch].mean() - updates.mean()) ** 2 for batch in chosen])
    assert variance == pytest.approx(1.0)
    assert variance > 4 * (users - selected) * norm**2 / (selected * (users - 1))
    assert variance <= 4 * privacy * (users - selected) * norm**2 / (selected * (users - privacy))


def test_the_spread_over_batches_is_bounded_by_that_of_users() -> None:
    """The lemma behind `repaired`, by enumeration: sampling batches, without the 4 that learning rates cost."""
    rng = np.random.default_rng(2)
    updates = rng.normal(size=(12, 2))
    for privacy, wanted in ((1, 3), (2, 2), (3, 2), (4, 1), (4, 2)):
        batches = updates.reshape(-1, privacy, 2).mean(axis=1)
        means = [batches[list(c)].mean(axis=0) for c in itertools.combinations(range(len(batches)), wanted)]
        variance = float(np.mean(((np.array(means) - updates.mean(axis=0)) ** 2).sum(axis=1)))
        selected = privacy * wanted
        bound = privacy * (12 - selected) / (selected * (12 - privacy))
        spread = float(((updates - updates.mean(axis=0)) ** 2).sum(axis=1).mean())
        assert variance <= bound * spread * (1 + 1e-12)
        if privacy == 1:
            assert variance == pytest.approx(bound * spread)


def test_as_in_li_et_al_when_batches_are_users_and_nobody_drops_out() -> None:
    problem = Problem(2.0, 0.5, 1.5, 3.0, 0.25, 7.0)
    gamma, steps, rounds = 32.0, 4, 10
    alpha, beta = 1.5 + 6 * 2 * 0.25 + 8 * 9 * 3, 4 * (30 - 6) * 16 * 3 / (6 * 29)
    by_hand = 2 / (gamma + steps * rounds - 1) * (2 * (alpha + beta) / 0.25 + gamma / 2 * 7)
    assert printed(problem, 30, 6, steps, 1.0, rounds) == pytest.approx(by_hand, rel=1e-14)
    assert repaired(problem, 30, 6, 1, steps, 1.0, rounds) == pytest.approx(by_hand, rel=1e-14)
    assert repaired(problem, 30, 6, 1, steps, 0.5, rounds) > printed(problem, 30, 6, steps, 0.5, rounds)
    assert repaired(problem, 30, 30, 30, steps, 1.0, rounds) < by_hand  # everybody: nothing is sampled


def test_errors_name_the_argument() -> None:
    problem = Problem(2.0, 0.5, 1.5, 3.0, 0.25, 7.0)
    for field, value in (
        ("convexity", 3.0),
        ("convexity", 1e-300),
        ("smoothness", 0.0),
        ("heterogeneity", -1.0),
        ("gradient_bound", np.inf),
    ):
        with pytest.raises(ValueError, match=r"smoothness|convexity|heterogeneity|gradient_bound"):
            Problem(**{**vars(problem), field: value})
    for arguments in ((30, 31, 1, 1, 1.0, 1), (30, 6, 4, 1, 1.0, 1), (30, 6, 1, 0, 1.0, 1), (30, 6, 1, 1, 1.1, 1)):
        with pytest.raises(ValueError, match=r"selected|privacy|local_steps|completed"):
            repaired(problem, *arguments)
