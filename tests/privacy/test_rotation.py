"""The rotation against scipy's matrices, and its defining properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg

from testbed.privacy.encoding import flip_signs, hadamard, padded, rotation_seed


@pytest.mark.parametrize("bits", range(13))
def test_it_is_the_matrix_product(bits):
    vector = np.random.default_rng(bits).integers(-1000, 1000, 1 << bits).astype(np.float64)
    before = vector.copy()
    assert np.array_equal(hadamard(vector), linalg.hadamard(1 << bits) @ vector)
    assert np.array_equal(vector, before)


@settings(deadline=None)
@given(st.integers(0, 17), st.integers(0, 2**32))
def test_on_integers_twice_is_exactly_d_times(bits, seed):
    vector = np.random.default_rng(seed).integers(-(2**17), 2**17, 1 << bits).astype(np.float64)
    once = hadamard(vector)
    assert np.array_equal(hadamard(once), vector * (1 << bits))
    assert once @ once == pytest.approx(vector @ vector * (1 << bits))  # orthogonal up to the factor: lengths stay


def test_it_spreads_one_coordinate_over_all():
    vector = np.zeros(1 << 15)
    vector[12_345] = 3.0
    flip_signs(vector, rotation_seed(b"an experiment", 1))
    assert set(np.abs(hadamard(vector)).tolist()) == {3.0}


@pytest.mark.parametrize("length", [1, 2, 64, 100, 5000, 1 << 22])
def test_signs_are_an_involution_of_the_seed(length):
    vector = np.ones(length)
    flip_signs(vector, bytes(32))
    signs = vector.copy()
    assert set(signs.tolist()) <= {1.0, -1.0}
    if length >= 5000:
        assert abs(signs.mean()) < 5 / length**0.5
    flip_signs(vector, bytes(32))
    assert np.array_equal(vector, np.ones(length))
    flip_signs(vector, b"\x01" * 32)
    if length >= 64:
        assert not np.array_equal(vector, signs)


def test_rounds_and_experiments_have_signs_of_their_own():
    seeds = {rotation_seed(experiment, number) for experiment in (b"one", b"two") for number in range(20)}
    assert len(seeds) == 40
    assert {len(seed) for seed in seeds} == {32}


@pytest.mark.parametrize(("dimension", "length"), [(1, 1), (2, 2), (3, 4), (1024, 1024), (1025, 2048)])
def test_padding(dimension, length):
    assert padded(dimension) == length


@pytest.mark.parametrize("length", [0, 3, 100])
def test_other_lengths_are_refused(length):
    with pytest.raises(ValueError, match="power of two"):
        hadamard(np.ones(length))
