"""Errors of strategies, and the best matrix of all, against a slower way to it."""

import numpy as np
import pytest

from analysis.bounds.correlated_noise import best_of_one_round, noise_multiplier, squared_errors, strategy_errors
from analysis.cli.bound.correlated import bound_correlated
from tests.privacy.matrix import oracles


def test_the_best_matrix_is_that_of_general_square_roots() -> None:
    found, expected = best_of_one_round(24), oracles.best_of_one_round(24)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.sqrt(squared_errors(found).mean()) == pytest.approx(oracles.error(expected, "mean"), rel=1e-8)


def test_no_column_or_entry_changed_makes_it_better() -> None:
    best = best_of_one_round(12)
    least = squared_errors(best).mean()
    generator = np.random.default_rng(2)
    for _ in range(200):
        other = best + np.tril(generator.normal(0, 0.02, best.shape))
        other /= np.linalg.norm(other, axis=0)
        assert squared_errors(other).mean() > least


def test_rows_stand_in_order_and_the_best_is_best() -> None:
    rows = {row.strategy: row for row in strategy_errors(64, 64, 1)}
    assert (next(iter(rows)), list(rows)[-1]) == ("identity", "best matrix (mean)")
    assert min(rows.values(), key=lambda row: row.mean_error).strategy == "best matrix (mean)"
    assert rows["identity"].mean_error == pytest.approx(np.sqrt(np.arange(1, 65).mean()))
    assert (rows["identity"].max_error, rows["prefix-sum"].max_error) == pytest.approx((8.0, 8.0))
    assert rows["blt, 1 buffer"].vectors == 1
    assert rows["band"].vectors == 63
    text = bound_correlated.text(bound_correlated(64, 64, epsilon=2.0))
    assert "mean error [clipping norms]" in text
    assert len(text.splitlines()) == len(rows) + 4


def test_with_several_rounds_a_client_no_best_matrix_is_claimed() -> None:
    assert [row.strategy for row in strategy_errors(40, 10, 4)][-1] == "band"


def test_the_noise_multiplier_is_that_of_one_gaussian_mechanism() -> None:
    from dp_accounting import get_sigma_gaussian

    assert noise_multiplier(50, 5, 2.0, 1e-5) == pytest.approx(get_sigma_gaussian(2.0, 1e-5), rel=1e-5)


def test_the_published_order_of_strategies_holds() -> None:
    """McMahan, Xu, Zhang, arXiv 2408.08868: with few buffers a BLT is next to a band of all lengths."""
    rows = {row.strategy: row.mean_error for row in strategy_errors(500, 100, 5)}
    assert rows["band"] < rows["blt, 4 buffers"] < 1.06 * rows["band"]
    assert rows["blt, 4 buffers"] < 0.9 * rows["square root of A"] < 0.25 * rows["identity"]
