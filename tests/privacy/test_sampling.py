"""Noise against its exact distribution: tables in rational and 80-digit arithmetic, draws by chi-square."""

import hashlib
from bisect import bisect_right
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import accumulate
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from testbed.crypto import InvalidKey
from testbed.privacy.sampling import CHUNK, add_noise, noise, table_of, word_beside, words

MECHANISMS = ("skellam", "discrete-gaussian")
SEED = bytes(range(32))


def exact_masses(mechanism, variance, last):
    """P(|X| = k) for k up to `last`, to 70 digits: Poissons' convolution, and the definition of the other."""
    with localcontext(Context(prec=80)):
        v = Decimal(variance)
        if mechanism == "skellam":
            chances = []
            for k in range(last + 1):
                term = (-v).exp() * (v / 2) ** k
                for divisor in range(2, k + 1):
                    term /= divisor
                total, j = Decimal(0), 0
                while term > Decimal("1e-75"):
                    total, j = total + term, j + 1
                    term *= (v / 2) ** 2 / (j * (j + k))
                chances.append(total)
        else:
            weights = [(-Decimal(k * k) / (2 * v)).exp() for k in range(last + 200)]
            whole = weights[0] + 2 * sum(weights[1:])
            chances = [weight / whole for weight in weights[: last + 1]]
        return [Fraction(chances[0]), *(2 * Fraction(chance) for chance in chances[1:])]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("variance", [0.05, 0.3, 1.0, 20.0])
def test_a_table_is_the_exact_distribution_to_its_last_bits(mechanism, variance):
    masses = table_of(mechanism, variance).masses
    exact = exact_masses(mechanism, variance, len(masses) - 1)
    assert sum(masses) == 1
    assert max(abs(mass - one) for mass, one in zip(masses, exact, strict=True)) < Fraction(1, 2**120)
    assert 1 - sum(exact) < Fraction(1, 2**130)  # beyond the table


@pytest.mark.parametrize("variance", [1e3, 1e6])
def test_tables_of_large_variance_match_scipy(variance):
    masses = np.array([float(mass) for mass in table_of("skellam", variance).masses])
    k = np.arange(len(masses))
    assert masses == pytest.approx(np.where(k > 0, 2, 1) * special.ive(k, variance), rel=1e-9, abs=1e-30)
    masses = np.array([float(mass) for mass in table_of("discrete-gaussian", variance).masses])
    assert masses == pytest.approx(np.where(k > 0, 2, 1) * stats.norm.pdf(k, 0, sqrt(variance)), rel=1e-9, abs=1e-30)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("variance", [0.1, 1.0, 12.25, 1e4, 1e7])
def test_a_million_draws_have_the_exact_distribution(mechanism, variance):
    count = 1_000_000
    drawn = noise(mechanism, variance, SEED, count)
    chances = np.array([float(mass) for mass in table_of(mechanism, variance).masses])
    signed = np.concatenate([chances[:0:-1] / 2, chances[:1], chances[1:] / 2])
    below = np.cumsum(signed)
    cells = np.unique(np.searchsorted(below, np.linspace(0, 1, 201)[1:-1]))  # some 200 about equally likely ranges
    cells = cells[(below[cells] * count > 20) & ((1 - below[cells]) * count > 20)]
    expected = np.diff(np.concatenate([[0.0], below[cells], [1.0]])) * count
    place = np.searchsorted(cells, drawn + len(chances) - 1)
    found = np.bincount(place, minlength=len(expected))
    assert stats.chisquare(found, expected).pvalue > 1e-4
    second = float(signed @ (np.arange(len(signed)) - len(chances) + 1.0) ** 2)
    assert drawn.mean() == pytest.approx(0, abs=4 * sqrt(second / count))
    assert drawn.var() == pytest.approx(second, rel=0.05 if variance < 1 else 0.01)


@pytest.mark.parametrize("variance", [0.5, 30.0, 1e6])
def test_skellam_variance_is_the_variance(variance):
    masses = table_of("skellam", variance).masses
    assert float(sum(k * k * mass for k, mass in enumerate(masses))) == pytest.approx(variance, rel=1e-12)


def test_shares_of_skellam_noise_add_up_to_skellam_noise():
    total = np.zeros(200_000, np.int64)
    for client in range(5):
        add_noise(total, "skellam", 8.0 / 5, bytes([client]) * 32)
    values, found = np.unique(np.clip(total, -8, 8), return_counts=True)
    expected = stats.skellam.pmf(values, 4, 4)
    expected[0] += stats.skellam.cdf(-9, 4, 4)
    expected[-1] += stats.skellam.sf(8, 4, 4)
    assert stats.chisquare(found, expected * len(total)).pvalue > 1e-4


def test_the_tail_is_there():
    drawn = np.abs(noise("skellam", 100.0, SEED, 4_000_000))
    beyond = 2 * stats.skellam.sf(44, 50, 50) * len(drawn)  # some 45 of four million
    assert (drawn > 44).sum() == pytest.approx(beyond, abs=4 * sqrt(beyond))


# -- inversion ----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.sampled_from(MECHANISMS), st.sampled_from([0.01, 3.0, 500.0]), st.data())
def test_the_guide_agrees_with_all_127_bits(mechanism, variance, data):
    table = table_of(mechanism, variance)
    entries = list(accumulate(int(mass * 2**127) for mass in table.masses))
    near = st.sampled_from(entries[:-1]).flatmap(lambda entry: st.integers(max(0, entry - 3), entry + 3))
    draws = data.draw(st.lists(near | st.integers(0, 2**127 - 1), min_size=1, max_size=20))
    draws = [min(draw, 2**127 - 1) for draw in draws]
    upper = np.array([draw >> 64 for draw in draws], np.uint64)
    found = table.magnitudes(upper, lambda position: draws[position] & (2**64 - 1))
    assert found.tolist() == [bisect_right(entries, draw) for draw in draws]


def test_noise_is_made_of_the_words_of_its_seed():
    count = CHUNK + 7
    table = table_of("skellam", 9.0)
    entries = list(accumulate(int(mass * 2**127) for mass in table.masses))
    drawn = noise("skellam", 9.0, SEED, count)
    flat = np.concatenate([part.copy() for part in words(SEED, count)])
    for position in (0, 1, CHUNK - 1, CHUNK, count - 1):
        word = int(flat[position])
        magnitude = bisect_right(entries, word >> 1 << 64 | word_beside(SEED, position))
        assert drawn[position] == (-magnitude if word & 1 else magnitude)


# -- the interface ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mechanism", "variance", "digest"),
    [
        ("skellam", 2.0, "27598b86b7d0f10a6887711f07168481"),
        ("skellam", 671088.64, "ca9cbd459a072fea3f2b610f3ea14de5"),
        ("discrete-gaussian", 2.0, "0bd0c4a9a9dd67b27a26cd71548ce11c"),
        ("discrete-gaussian", 671088.64, "50edc6e5436a85b804cfbbf04b1f584b"),
    ],
)
def test_a_seed_gives_the_same_noise_on_every_machine(mechanism, variance, digest):
    drawn = noise(mechanism, variance, SEED, 100_000).astype("<i8").tobytes()
    assert hashlib.sha256(drawn).hexdigest()[:32] == digest


@pytest.mark.parametrize("lane", [np.uint16, np.uint32, np.uint64, np.int64])
def test_added_noise_can_be_removed(lane):
    vector = np.arange(CHUNK + 100).astype(lane)
    before = vector.copy()
    add_noise(vector, "discrete-gaussian", 50.0, SEED)
    difference = (vector - before).astype(np.int64 if lane == np.int64 else lane)
    assert np.array_equal(difference, noise("discrete-gaussian", 50.0, SEED, len(vector)).astype(lane))
    add_noise(vector, "discrete-gaussian", 50.0, SEED, -1)
    assert np.array_equal(vector, before)


def test_other_seeds_and_mechanisms_give_other_noise():
    one = noise("skellam", 5.0, SEED, 1000)
    assert np.array_equal(one, noise("skellam", 5.0, SEED, 2000)[:1000])
    for other in (noise("skellam", 5.0, bytes(32), 1000), noise("discrete-gaussian", 50.0, SEED, 1000)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.999
    assert abs(np.corrcoef(one, noise("skellam", 5.0, bytes(32), 1000))[0, 1]) < 0.15


@pytest.mark.parametrize("variance", [0.0, -1.0, float("nan"), float("inf"), 2.0**33])
def test_a_variance_out_of_range_is_refused(variance):
    with pytest.raises(ValueError, match="noise variance"):
        noise("skellam", variance, SEED, 4)


def test_a_short_seed_is_refused():
    with pytest.raises(InvalidKey, match="32 bytes long, got 31"):
        noise("skellam", 1.0, bytes(31), 4)
