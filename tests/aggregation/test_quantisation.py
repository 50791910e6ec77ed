"""Quantisation: unbiased, within a step, exact at the ring's edge."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.aggregation import quantisation as levels
from testbed.aggregation.quantisation import Quantisation
from testbed.crypto.masks import mask, word_dtype
from testbed.errors import ExperimentError, Refusal, RoundAborted


def coins(seed: int = 0) -> bytes:
    return seed.to_bytes(32, "big")


UNIT = 2**16
"""A coin's last bit, in levels: to so much of one the exact value is known."""


quantisations = st.builds(
    Quantisation, st.sampled_from([0.01, 0.5, 1.0, 2.75, 100.0]), st.integers(1, 24), st.integers(32, 64)
)
finite = st.floats(-200, 200, width=32)


@given(quantisations, st.lists(finite, max_size=30), st.integers(1, 255), st.integers(0, 100))
def test_each_level_is_one_of_the_two_beside_the_exact_value(
    quantisation: Quantisation, delta: list[float], weight: int, seed: int
) -> None:
    """The oracle computes in fractions: clip, scale, the level below or above; then times the weight."""
    encoded = quantisation.encode(np.array(delta, np.float32), weight, coins(seed))
    assert encoded.dtype == word_dtype(quantisation.bits)
    assert encoded.shape == (len(delta) + 1,)
    assert int(encoded[-1]) == weight
    clip = Fraction(quantisation.clip)
    for value, element in zip(delta, encoded[:-1].tolist(), strict=True):
        exact = (min(max(Fraction(value), -clip), clip) + clip) / (2 * clip) * quantisation.highest
        level, remainder = divmod(element, weight)
        assert remainder == 0
        assert 0 <= level <= quantisation.highest
        assert exact - 1 - Fraction(1, UNIT) < level < exact + 1 + Fraction(1, UNIT)


@given(quantisations, finite, st.integers(0, 100))
def test_a_value_is_rounded_up_as_often_as_it_lies_above_its_level(
    quantisation: Quantisation, value: float, seed: int
) -> None:
    """Over all coins, the mean is exact to half a unit for any value and clip."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "key_stream", every_coin)
        encoded = quantisation.encode(np.full(UNIT, value, np.float32), 1, coins(seed))[:-1]
    clip = Fraction(quantisation.clip)
    inside = min(max(Fraction(float(np.float32(value))), -clip), clip)
    exact = (inside + clip) / (2 * clip) * quantisation.highest
    assert abs(Fraction(int(encoded.sum(dtype=np.uint64)), UNIT) - exact) <= Fraction(1, 2 * UNIT) + exact / 2**50


def every_coin(seed: bytes) -> Any:
    """Instead of a key stream: the 16-bit words from 0 on."""
    words, begin = np.arange(UNIT, dtype="<u2").view(np.uint8), 0

    def next_coins(stream: Any, count: int) -> None:
        nonlocal begin
        stream[:count] = words[begin : begin + count]
        begin += count

    return next_coins


@pytest.mark.parametrize("levels_bits", [1, 4, 10])
def test_rounding_is_right_on_average(levels_bits: int) -> None:
    """400,000 roundings of one value: the mean is within five standard errors, for values near and off the levels."""
    quantisation, count = Quantisation(1.0, levels_bits, 32), 400_000
    step = 2 / quantisation.highest
    for value in (-1.0, -0.999, -0.3, 0.0, 0.123456, 0.9, 1.0, 7.0):
        encoded = quantisation.encode(np.full(count, value, np.float32), 1, coins(1))[:-1]
        mean = float(encoded.mean()) * step - 1
        clipped = min(max(float(np.float32(value)), -1.0), 1.0)
        level = (clipped + 1) / step
        deviation = step * math.sqrt((level % 1) * (1 - level % 1) / count)
        assert abs(mean - clipped) <= 5 * deviation + 1e-12


def test_the_highest_level_is_never_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    def highest_coins(stream: np.ndarray[Any, Any], count: int) -> None:
        stream[:count] = 255

    monkeypatch.setattr(levels, "key_stream", lambda seed: highest_coins)
    for clip in (0.01, 0.3, 1.0, 7.7):
        for levels_bits in (1, 8, 16, 17, 24):
            quantisation = Quantisation(clip, levels_bits, 32)
            encoded = quantisation.encode(np.array([clip, 2 * clip, np.inf], np.float32), 1, coins())
            assert encoded.tolist() == [quantisation.highest] * 3 + [1]


def test_rounding_errors_of_neighbours_and_of_clients_are_independent() -> None:
    quantisation = Quantisation(1.0, 2, 32)
    first, second = (quantisation.encode(np.zeros(100_000, np.float32), 1, coins(seed))[:-1] for seed in (1, 2))
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02


def test_a_chunk_is_rounded_like_the_whole() -> None:
    """The result does not depend on where chunks end: the coins are one stream."""
    quantisation, delta = Quantisation(1.0, 16, 32), np.random.default_rng(0).uniform(-1, 1, 100_001)
    encoded = quantisation.encode(delta.astype(np.float32), 3, coins(4))
    exact = np.rint((delta.astype(np.float32).astype(np.float64) + 1) * (quantisation.highest / 2) * UNIT)
    expected = (exact.astype(np.uint64) + mask(coins(4), 100_001, 16)) // UNIT * 3
    assert np.array_equal(encoded[:-1], expected)
    added = np.arange(100_002, dtype=np.uint32)
    quantisation.quantised(delta.astype(np.float32), 3, coins(4)).add_to(added)
    assert np.array_equal(added, encoded + np.arange(100_002, dtype=np.uint32))


@given(
    quantisations,
    st.integers(1, 12),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(0, 10**6),
)
def test_the_decoded_mean_is_within_a_step_of_the_weighted_mean(
    quantisation: Quantisation, clients: int, dimension: int, heaviest: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    deltas = generator.uniform(-quantisation.clip, quantisation.clip, (clients, dimension)).astype(np.float32)
    weights = generator.integers(1, heaviest + 1, clients)
    total = np.zeros(dimension + 1, word_dtype(quantisation.bits))
    for delta, weight in zip(deltas, weights.tolist(), strict=True):
        total += quantisation.encode(delta, weight, generator.bytes(32))
    mean, weight = quantisation.decode(total, clients)
    assert weight == weights.sum()
    exact = np.average(deltas.clip(-quantisation.clip, quantisation.clip).astype(np.float64), axis=0, weights=weights)
    assert np.abs(mean - exact).max() <= 2 * quantisation.clip / quantisation.highest * (1 + 1e-6)


@given(st.integers(1, 24), st.integers(8, 64), st.integers(1, 5000), st.integers(1, 10**6))
def test_the_overflow_check_is_exact(levels_bits: int, bits: int, participants: int, weight: int) -> None:
    """It passes exactly when the largest sum that can be is an element of the ring."""
    quantisation = Quantisation(1.0, levels_bits, bits)
    if participants * weight * (2**levels_bits - 1) <= 2**bits - 1:
        quantisation.check(participants, weight)
    else:
        with pytest.raises(ExperimentError, match=r"aggregation\.bits"):
            quantisation.check(participants, weight)


@pytest.mark.parametrize(
    ("levels_bits", "bits", "participants", "weight"),
    [
        (8, 8, 1, 1),
        (4, 16, 257, 17),
        (16, 32, 65537, 1),
        (1, 12, 4095, 1),
        (24, 48, 4096, 4096),
        (24, 64, 256, 4294967552),
    ],
)
def test_the_largest_sum_that_passes_is_decoded_and_one_more_client_is_too_many(
    levels_bits: int, bits: int, participants: int, weight: int
) -> None:
    quantisation = Quantisation(1.0, levels_bits, bits)
    quantisation.check(participants, weight)
    with pytest.raises(ExperimentError):
        quantisation.check(participants + 1, weight)
    top = quantisation.encode(np.array([9.0, -9.0], np.float32), weight, coins())
    assert top.tolist() == [weight * quantisation.highest, 0, weight]
    total = top * word_dtype(bits)(participants)
    mean, total_weight = quantisation.decode(total, participants)
    assert mean.tolist() == [1.0, -1.0]
    assert total_weight == participants * weight


def test_products_beyond_53_bits_are_exact() -> None:
    """A double would round 16777215 * 1099511627775."""
    quantisation, weight = Quantisation(1.0, 24, 64), 2**40 - 1
    encoded = quantisation.encode(np.ones(1, np.float32), weight, coins())
    assert int(encoded[0]) == (2**24 - 1) * weight
    assert int(float(2**24 - 1) * weight) != (2**24 - 1) * weight


@pytest.mark.parametrize("weight", [0, -1])
def test_a_weight_below_one_is_refused(weight: int) -> None:
    with pytest.raises(Refusal, match=r"aggregation\.no-weight"):
        Quantisation(1.0, 8, 32).encode(np.zeros(3, np.float32), weight, coins())


@pytest.mark.parametrize("bits", [8, 16, 20, 32, 64])
def test_a_weight_that_alone_exceeds_the_ring_is_refused(bits: int) -> None:
    quantisation = Quantisation(1.0, 4, bits)
    largest = (2**bits - 1) // 15
    assert int(quantisation.encode(np.ones(1, np.float32), largest, coins())[0]) == largest * 15
    with pytest.raises(Refusal, match=r"aggregation\.weight-too-large"):
        quantisation.encode(np.ones(1, np.float32), largest + 1, coins())


@pytest.mark.parametrize(
    "total",
    [[0, 0, 0], [0, 0, 2], [46, 0, 3], [0, 2**20 - 1, 3], [0, 0, 2**20 // 15 + 1], [0, 0, 2**20 - 1]],
)
def test_sums_that_can_be_no_sum_are_not_decoded(total: list[int]) -> None:
    """Of three updates at 4 bits in a ring of 20: weights of 3 or more, nothing above 15 times their sum."""
    with pytest.raises(RoundAborted, match="implausible-sum"):
        Quantisation(1.0, 4, 20).decode(np.array(total, np.uint32), 3)


def test_a_sum_at_the_edge_of_the_plausible_is_decoded() -> None:
    mean, weight = Quantisation(2.0, 4, 20).decode(np.array([45, 0, 3], np.uint32), 3)
    assert (mean.tolist(), weight) == ([2.0, -2.0], 3)
    assert Quantisation(2.0, 4, 20).decode(np.array([2**20 // 15], np.uint32), 3)[1] == 2**20 // 15


@pytest.mark.parametrize(("levels_bits", "bits"), [(16, 32), (8, 20), (12, 64)])
def test_noise_is_no_plausible_sum(levels_bits: int, bits: int) -> None:
    quantisation, generator, passed = Quantisation(1.0, levels_bits, bits), np.random.default_rng(0), 0
    for _ in range(2000):
        noise: Any = generator.integers(0, 2**bits, 30, np.uint64).astype(word_dtype(bits))
        try:
            quantisation.decode(noise, 10)
            passed += 1
        except RoundAborted:
            pass
    assert passed <= 2
