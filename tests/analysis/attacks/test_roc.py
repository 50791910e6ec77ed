"""Areas, rates and their intervals, against slow oracles and scikit-learn."""

from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import roc_auc_score, roc_curve

from analysis.attacks.roc import discrimination, most_found
from analysis.statistics import Proportion
from tests.messages_named import naming
from tests.thoroughness import examples

SCORES = st.lists(st.integers(-6, 6), min_size=2, max_size=40)


@settings(max_examples=examples(60))
@given(SCORES, SCORES, st.sampled_from([0.0, 0.01, 0.1, 0.5]))
def test_area_and_rate_are_those_of_scikit_learn(members: list[int], others: list[int], level: float) -> None:
    there, rest = np.array(members, np.float64), np.array(others, np.float64)
    found = discrimination(there, rest, level)
    truth = np.concatenate((np.ones(len(there)), np.zeros(len(rest))))
    scores = np.concatenate((there, rest))
    assert found.auc == pytest.approx(roc_auc_score(truth, scores))
    rates, hits, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert found.true_positives.rate == pytest.approx(hits[rates <= level + 1e-12].max())
    assert found.false_positives <= level * len(rest)
    given = Proportion.of(found.true_positives.count, len(there))
    assert 0 <= found.true_positives.low <= given.low <= given.rate <= given.high <= found.true_positives.high <= 1


@settings(max_examples=examples(30))
@given(SCORES, SCORES)
def test_interval_is_delongs(members: list[int], others: list[int]) -> None:
    """Structural components by their definition: every pair compared."""
    kernel = np.array([[(m > o) + 0.5 * (m == o) for o in others] for m in members])
    variance = kernel.mean(axis=1).var(ddof=1) / len(members) + kernel.mean(axis=0).var(ddof=1) / len(others)
    found = discrimination(np.array(members, np.float64), np.array(others, np.float64))
    if variance == 0:
        assert len(np.unique(kernel)) == 1
        return
    half = 1.959964 * np.sqrt(variance)
    assert found.auc_low == pytest.approx(max(0.0, kernel.mean() - half), abs=1e-6)
    assert found.auc_high == pytest.approx(min(1.0, kernel.mean() + half), abs=1e-6)


def test_interval_has_the_area_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    true = 0.7601  # of two normal laws whose means are one deviation apart: Phi(1 / sqrt 2) = 0.76025
    drawn = [discrimination(rng.normal(1, 1, 80), rng.normal(0, 1, 80)) for _ in range(400)]
    covered = sum(one.auc_low <= true <= one.auc_high for one in drawn)
    assert 0.92 <= covered / 400 <= 0.98


@pytest.mark.parametrize(("count", "ends"), [(2, 0.1581), (3, 0.2924), (50, 0.9289)])
def test_complete_separation_is_no_certainty(count: int, ends: float) -> None:
    """With k independent pairs, all in order, the k-th power of the bound on the area is the tail's chance."""
    ones, zeros = np.ones(count), np.zeros(count)
    apart, reversed_ = discrimination(ones, zeros), discrimination(zeros, ones)
    assert (apart.auc_low, apart.auc_high) == (pytest.approx(0.025 ** (1 / count)), 1)
    assert apart.auc_low == pytest.approx(ends, abs=1e-4)
    assert (reversed_.auc_low, reversed_.auc_high) == (0, pytest.approx(1 - apart.auc_low))
    tied = discrimination(ones, ones)
    assert (tied.auc_low, tied.auc_high) == (pytest.approx(apart.auc_low / 2), pytest.approx(1 - apart.auc_low / 2))
    single = discrimination(ones, np.array([0.5]))
    assert (single.auc_low, single.auc_high) == (0, 1)


@pytest.mark.parametrize("distance", [0.0, 0.86, 1.5])
def test_interval_of_the_rate_counts_the_threshold(distance: float) -> None:
    """The members' law is the others' moved: Clopper and Pearson's interval alone would hold 56 to 76 % of these."""
    rng = np.random.default_rng(6)
    true = norm.sf(norm.isf(0.01) - distance)
    drawn = [discrimination(rng.normal(distance, 1, 288), rng.normal(0, 1, 288)).true_positives for _ in range(200)]
    assert np.mean([one.low <= true <= one.high for one in drawn]) >= 0.92


def test_few_others_leave_the_threshold_open() -> None:
    few = discrimination(np.linspace(1, 2, 60), np.linspace(0, 1.5, 60))
    assert few.true_positives.low == 0 < few.true_positives.rate
    enough = discrimination(np.linspace(1, 2, 300), np.linspace(0, 1.5, 300))
    assert 0 < enough.true_positives.low < enough.true_positives.rate < enough.true_positives.high


def test_share_of_others_is_not_rounded_down() -> None:
    assert int(0.29 * 100) == 28
    assert discrimination(np.arange(100.0), np.arange(100.0), 0.29).false_positives == 29


@pytest.mark.parametrize(
    ("members", "others"), [([], [1.0]), ([1.0], []), ([np.nan], [0.0]), ([np.inf], [0.0])]
)  # fmt: skip
def test_scores_must_be_numbers(members: list[float], others: list[float]) -> None:
    with pytest.raises(ValueError, match=naming("finite", "both")):
        discrimination(np.array(members), np.array(others))


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0])
def test_bound_is_attained_by_answers_that_are_half_and_half_without_the_unit(epsilon: float) -> None:
    """The unit says whether its sample is in, and lies with e^-epsilon / 2; for one that is absent a coin is tossed."""
    lie = exp(-epsilon) / 2
    assert max(0.5 / lie, (1 - lie) / 0.5) == pytest.approx(exp(epsilon))  # epsilon-private
    assert most_found(epsilon, 0.0, lie) == pytest.approx(1 - lie)


def test_bound_at_its_ends() -> None:
    assert most_found(0.0, 0.0, 0.01) == pytest.approx(0.01)
    assert most_found(0.0, 0.001, 0.01) == pytest.approx(0.012)
    assert most_found(1e6, 0.0, 0.01) == 1.0
    assert most_found(1.0, 1.0, 0.0) == 1.0
    values = [most_found(epsilon, 1e-5, 0.01) for epsilon in np.linspace(0, 8, 50)]
    assert values == sorted(values)
    assert values[-1] < 1
