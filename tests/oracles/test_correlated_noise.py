"""Correlated noise against JAX-Privacy (Google DeepMind), by the authors of the papers; in float64."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from testbed.arrays import Floats
from testbed.privacy.matrix import toeplitz as ours
from testbed.privacy.matrix.strategy import BandedStrategy, BufferedStrategy, Name, Strategy, strategy
from tests.privacy.matrix import oracles
from tests.thoroughness import each_value

pytest.importorskip("jax_privacy", reason="needs jax-privacy: make oracles")
import jax
import jax.numpy as jnp
from jax_privacy.matrix_factorization import buffered_toeplitz, dense, sensitivity, toeplitz

jax.config.update("jax_enable_x64", True)

ROUNDING = 1e-12
# rounds, separation, participations
SHAPES = [(1, 1, 1), (2, 1, 2), (16, 4, 4), (16, 4, 9), (37, 5, 3), (64, 1, 64), (100, 100, 1), (500, 100, 5),
          (3000, 60, 10)]  # fmt: skip
STRATEGIES: list[tuple[Name, int | None]] = [
    ("blt", 1), ("blt", 2), ("blt", 4), ("band", None), ("identity", None), ("prefix-sum", None),
]  # fmt: skip


@cache
def made(name: Name, size: int | None, rounds: int, separation: int, participations: int, error: str) -> Strategy:
    size = min(20, separation, rounds) if name == "band" and rounds > 1000 else size
    return strategy(name, size, rounds, separation, participations, error)


def loss(coefficients: Floats, shape: tuple[int, int, int], error: str) -> float:
    """Return the error for noise that is as large as the sensitivity asks."""
    return ours.expected_error(coefficients, error) * ours.sensitivity(coefficients, *shape[1:])


@pytest.mark.parametrize("shape", SHAPES)
def test_errors_and_sensitivities(shape: tuple[int, int, int]) -> None:
    rounds, separation, participations = shape
    for name, size in STRATEGIES:
        column = made(name, size, *shape, "mean").coefficients
        squares = np.asarray(toeplitz.per_query_error(strategy_coef=jnp.array(column)))
        assert ours.expected_error(column, "mean") == pytest.approx(float(squares.mean() ** 0.5), rel=ROUNDING)
        assert ours.expected_error(column, "max") == pytest.approx(float(squares.max() ** 0.5), rel=ROUNDING)
        if ours.does_not_increase(column):
            squared = float(toeplitz.minsep_sensitivity_squared(jnp.array(column), separation, participations))
            assert ours.sensitivity(column, separation, participations) == pytest.approx(squared**0.5, rel=ROUNDING)
        if rounds <= 100:
            matrix = toeplitz.materialize_lower_triangular(jnp.array(column))
            bound = sensitivity.get_min_sep_sensitivity_upper_bound(matrix, separation, participations)
            assert ours.sensitivity(column, separation, participations) <= bound * (1 + ROUNDING)
            if name == "band":  # no more bands than the separation: the bound is exact
                assert ours.sensitivity(column, separation, participations) == pytest.approx(bound, rel=ROUNDING)


def test_the_errors_of_500_rounds_100_apart() -> None:
    """One and two buffers, and 100 bands, as computed by JAX-Privacy 2.0.0 from these coefficients."""
    shape = (500, 100, 5)
    of_each = [loss(made(name, size, *shape, "mean").coefficients, shape, "mean")
               for name, size in (("blt", 1), ("blt", 2), ("band", None))]  # fmt: skip
    assert of_each == pytest.approx([7.3363, 7.1618, 6.8658], abs=5e-5)


@pytest.mark.parametrize(
    ("shape", "buffers", "error"), each_value([(500, 100, 5), (64, 8, 4), (100, 100, 1)], [2, 1, 3], ["mean", "max"])
)
def test_optimised_blts_are_as_good(shape: tuple[int, int, int], buffers: int, error: str) -> None:
    """Both search locally; theirs by penalised L-BFGS over pairs of decays. Ours is within a millionth of theirs."""
    theirs = buffered_toeplitz.optimize(
        n=shape[0], min_sep=shape[1], max_participations=shape[2], error=error, min_buffers=buffers, max_buffers=buffers
    )
    best = loss(np.asarray(theirs.toeplitz_coefs(shape[0])), shape, error)
    assert loss(made("blt", buffers, *shape, error).coefficients, shape, error) <= best * (1 + 1e-6)


@pytest.mark.parametrize(("error", "reduction"), [("mean", jnp.mean), ("max", jnp.max)])
@pytest.mark.parametrize(("rounds", "bands"), [(16, 1), (64, 8), (500, 20)])
def test_optimised_bands_are_as_good(rounds: int, bands: int, error: str, reduction: Any) -> None:
    band = toeplitz.optimize_banded_toeplitz(rounds, bands, reduction_fn=reduction)
    theirs, shape = np.asarray(toeplitz.pad_coefs_to_n(band, rounds)), (rounds, bands, 1)
    column = made("band", None, *shape, error).coefficients
    assert loss(column, shape, error) <= loss(theirs, shape, error) * (1 + 1e-9)


def test_the_inverse_and_closed_forms_of_a_blt() -> None:
    """Lemma 5.2 of arXiv 2404.16706, and its closed forms of the squared sensitivity and of the largest error."""
    for rounds, buffers in ((10, 1), (100, 3), (3000, 4)):
        of_it = made("blt", buffers, rounds, rounds, 1, "max")
        assert isinstance(of_it, BufferedStrategy)
        theirs = buffered_toeplitz.BufferedToeplitz.build(of_it.buffers.decays, of_it.buffers.scales)
        column = np.asarray(theirs.toeplitz_coefs(rounds))
        assert of_it.coefficients == pytest.approx(column, rel=1e-9, abs=1e-15)
        back = theirs.inverse()
        assert ours.inverse(column) == pytest.approx(np.asarray(back.toeplitz_coefs(rounds)), abs=1e-11)
        squared = float(buffered_toeplitz.sensitivity_squared(theirs, rounds))
        assert ours.sensitivity(column, rounds, 1) == pytest.approx(squared**0.5, rel=1e-8)
        largest = float(buffered_toeplitz.max_error(back, rounds))
        assert ours.expected_error(column, "max") == pytest.approx(largest**0.5, rel=1e-7)


@pytest.mark.parametrize(("name", "size"), STRATEGIES)
def test_correlated_noise_of_a_run(name: Name, size: int | None) -> None:
    """The same independent noise gives the same correlated noise, a round at a time."""
    shape = (60, 12, 5)
    of_it, noise = made(name, size, *shape, "mean"), np.random.default_rng(1).normal(size=(60, 7))
    memory, rows = of_it.beginning(7), []
    for step, row in enumerate(noise):
        rows.append(row.copy())
        of_it.correlate(rows[-1], memory, step)
    if isinstance(of_it, BandedStrategy):
        theirs = toeplitz.inverse_as_streaming_matrix(jnp.array(of_it.band))
    elif of_it.vectors:
        assert isinstance(of_it, BufferedStrategy)
        blt = buffered_toeplitz.BufferedToeplitz.build(of_it.buffers.decays, of_it.buffers.scales)
        theirs = blt.inverse_as_streaming_matrix()
    else:
        theirs = toeplitz.inverse_as_streaming_matrix(jnp.array([1.0]))
    assert np.array(rows) == pytest.approx(np.asarray(theirs @ jnp.array(noise)), abs=1e-11)


def test_a_client_with_a_round_in_each_of_k_epochs() -> None:
    """JAX-Privacy tries every place in an epoch; the first is the costliest for coefficients that do not increase."""
    for name, size in STRATEGIES:
        column = made(name, size, 48, 12, 4, "mean").coefficients
        matrix = toeplitz.materialize_lower_triangular(jnp.array(column))
        theirs = float(sensitivity.fixed_epoch_sensitivity(matrix, 4))
        assert ours.sensitivity(column, 12, 4) == pytest.approx(theirs, rel=ROUNDING)


def test_no_strategy_is_better_than_the_best_matrix() -> None:
    """The optimal C of any shape, for one round of each client: ours of a few vectors are within 5 % of it."""
    best = np.asarray(dense.optimize(64))
    theirs = float(np.mean(dense.per_query_error(strategy_matrix=jnp.array(best)))) ** 0.5
    theirs *= float(np.linalg.norm(best, axis=0).max())
    shape = (64, 64, 1)
    for name, size in (("blt", 3), ("band", None)):
        assert theirs <= loss(made(name, size, *shape, "mean").coefficients, shape, "mean") <= 1.05 * theirs
    by_fixed_point = oracles.error(oracles.best_of_one_round(64), "mean")  # columns of norm 1
    assert theirs == pytest.approx(by_fixed_point, rel=1e-5)
