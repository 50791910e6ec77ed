"""The baselines: selection frequencies, and skipped rounds."""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from testbed.errors import RoundSkipped
from testbed.selection.random_selection import (
    BernoulliParameters,
    BernoulliSelection,
    RandomParameters,
    RandomSelection,
    WeightedRandomParameters,
    WeightedRandomSelection,
)
from tests.messages_named import naming
from tests.selection.federations import Selecting

DRAWS = 3000
SUSPICIOUS = 1e-4


class Coins:
    """Replaces a round where only the generator and the participations are read."""

    def __init__(self, participations: list[int]) -> None:
        self.participations = np.array(participations, np.int64)
        self._generator = np.random.default_rng(11)

    def rng(self, purpose: str) -> np.random.Generator:
        """Return one generator for all draws."""
        return self._generator


def test_random_takes_each_set_of_k_equally_often() -> None:
    protocol = RandomSelection(RandomParameters(participants=2), 5)
    present, round_ = np.array([0, 2, 3, 4]), Coins([0] * 5)
    found = Counter(frozenset(protocol.choose(present, round_).tolist()) for _ in range(DRAWS))
    assert set(found) == {frozenset(pair) for pair in itertools.combinations([0, 2, 3, 4], 2)}
    assert chisquare(list(found.values())).pvalue > SUSPICIOUS


def test_weighted_random_takes_the_smallest_counts_and_breaks_ties_uniformly() -> None:
    protocol = WeightedRandomSelection(WeightedRandomParameters(participants=3), 6)
    present, round_ = np.arange(6), Coins([5, 0, 2, 2, 2, 9])
    found = Counter(frozenset(protocol.choose(present, round_).tolist()) for _ in range(DRAWS))
    assert set(found) == {frozenset({1, *pair}) for pair in itertools.combinations([2, 3, 4], 2)}
    assert chisquare(list(found.values())).pvalue > SUSPICIOUS
    # The smallest counts among those present, not among all.
    assert set(protocol.choose(np.array([0, 4, 5]), round_).tolist()) == {0, 4, 5}


@pytest.mark.parametrize(("assumed", "rate"), [(0.0, 0.2), (0.5, 0.4)])
def test_bernoulli_draws_each_at_the_published_rate(assumed: float, rate: float) -> None:
    protocol = BernoulliSelection(BernoulliParameters(participants=40, assumed_unavailable=assumed), 200)
    round_ = Coins([0] * 200)
    present = np.arange(0, 200, 2)
    draws = [protocol.choose(present, round_) for _ in range(200)]
    assert all(np.isin(drawn, present).all() for drawn in draws)
    total = sum(len(drawn) for drawn in draws)
    assert binomtest(total, 200 * 100, rate).pvalue > SUSPICIOUS
    each = np.bincount(np.concatenate(draws), minlength=200)[present]
    assert chisquare(each).pvalue > SUSPICIOUS  # no client more often than others
    sizes = np.array([len(drawn) for drawn in draws])
    assert abs(sizes.var() / (100 * rate * (1 - rate)) - 1) < 0.4  # independent draws, not a fixed number
    assert protocol.maximum_participants == 200


def test_a_round_without_enough_clients_is_skipped() -> None:
    for protocol in (
        RandomSelection(RandomParameters(participants=4), 10),
        WeightedRandomSelection(WeightedRandomParameters(participants=4), 10),
    ):
        with pytest.raises(RoundSkipped) as skipped:
            protocol.choose(np.arange(3), Coins([0] * 10))
        assert skipped.value.reason == "too-few-available"


def test_bernoulli_refuses_more_participants_than_expected_clients() -> None:
    with pytest.raises(ValueError, match=naming("participants", 60, 50)):
        BernoulliParameters(participants=60, assumed_unavailable=0.5).check(100)


def test_rounds_draw_differently_and_a_seed_reproduces_the_draws() -> None:
    def draws(seed: int) -> list[list[int]]:
        run = Selecting(RandomSelection(RandomParameters(participants=10), 200), 200, seed=seed)
        return [run.select(number).participants.tolist() for number in (1, 2, 3)]

    first = draws(4)
    assert first == draws(4)
    assert first != draws(5)
    assert first[0] != first[1] != first[2]
