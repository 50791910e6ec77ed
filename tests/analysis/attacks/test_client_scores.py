"""Contributions of clients to statistics of sums: exact if constant, means for clients always together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from analysis.attacks.client_scores import client_scores, ridge
from tests.thoroughness import examples


def participation(rounds: int, clients: int, seed: int = 3) -> np.ndarray:
    matrix: np.ndarray = np.random.default_rng(seed).random((rounds, clients)) < 0.5
    matrix[:, 0] |= ~matrix.any(axis=1)
    return matrix


def test_constant_numbers_are_found_whatever_clients_weigh() -> None:
    matrix, rng = participation(40, 9), np.random.default_rng(1)
    matrix[:, 4] = False
    weights, each = rng.integers(1, 30, 9).astype(float), rng.normal(size=(9, 5))
    found = client_scores(matrix, weights, matrix @ (weights[:, None] * each))
    assert np.isnan(found[4]).all()
    there = np.arange(9) != 4
    assert found[there] == pytest.approx(each[there], abs=1e-3)


def test_clients_always_together_get_their_weighted_mean() -> None:
    matrix, rng = participation(30, 4).repeat(2, axis=1), np.random.default_rng(2)
    weights, each = rng.integers(1, 9, 8).astype(float), rng.normal(size=(8, 3))
    found = client_scores(matrix, weights, matrix @ (weights[:, None] * each))
    for first in range(0, 8, 2):
        mean = weights[first : first + 2] @ each[first : first + 2] / weights[first : first + 2].sum()
        assert found[first] == pytest.approx(mean, abs=1e-3)
        assert found[first] == pytest.approx(found[first + 1])


def test_one_round_tells_the_mean_of_its_participants() -> None:
    found = client_scores(np.array([[True, True, False]]), np.array([1.0, 3.0, 1.0]), np.array([[8.0]]))
    assert found[:2] == pytest.approx(2.0)
    assert np.isnan(found[2]).all()


def test_changes_between_rounds_are_shrunk_and_not_amplified() -> None:
    """P is square and ill-conditioned: least squares would be off by its condition."""
    matrix, rng = participation(12, 12, seed=8), np.random.default_rng(4)
    each, noise = rng.normal(size=(12, 200)), 3 * rng.normal(size=(12, 200))
    values = matrix @ each + noise
    exact = np.linalg.lstsq(matrix.astype(float), values, rcond=None)[0]
    found = client_scores(matrix, np.ones(12), values)
    assert np.square(found - each).mean() < 0.2 * np.square(exact - each).mean()


@settings(max_examples=examples(25))
@given(st.integers(0, 10_000), st.integers(2, 12), st.integers(1, 20))
def test_ridge_is_that_of_scikit_learn_with_the_weight_that_generalised_cross_validation_takes(
    seed: int, rows: int, columns: int
) -> None:
    rng = np.random.default_rng(seed)
    matrix, values = rng.normal(size=(rows, columns)), rng.normal(size=(rows, 2))
    gram = matrix @ matrix.T
    largest = np.linalg.eigvalsh(gram)[-1]
    penalties = np.logspace(-6, 3, 73) * largest

    def error(penalty: float) -> float:
        hat = gram @ np.linalg.inv(gram + penalty * np.eye(rows))
        return float(np.square(values - hat @ values).sum() / (rows - np.trace(hat)) ** 2)

    errors = np.array([error(penalty) for penalty in penalties])
    found = matrix.T @ ridge(gram, values)
    fits = [
        Ridge(alpha=penalty, fit_intercept=False).fit(matrix, values).coef_.T
        for penalty in penalties[errors <= errors.min() * (1 + 1e-6)]
    ]
    assert min(np.abs(found - fit).max() for fit in fits) < 1e-4 * max(1.0, np.abs(found).max())


def test_nothing_to_regress_on_gives_nothing() -> None:
    assert not ridge(np.zeros((3, 3)), np.ones((3, 2))).any()
