"""`min-separation` and `balls-in-bins`: rounds of every client keep to the pattern, and draws are uniform."""

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from testbed.arrays import Ids
from testbed.errors import RoundSkipped
from testbed.randomness import Randomness
from testbed.selection.balls_in_bins import BallsInBinsParameters, BallsInBinsSelection
from testbed.selection.min_separation import _LAST, MinSeparationParameters, MinSeparationSelection
from tests.messages_named import naming
from tests.selection.federations import Selecting
from tests.thoroughness import examples

SUSPICIOUS = 1e-4


class Round:
    """Replaces a round where only these fields are read."""

    def __init__(self, number: int, population: int, memory: dict[str, Any], participations: Ids) -> None:
        self.number, self.memory, self.participations = number, memory, participations
        self.randomness = Randomness(5)
        self.everyone = np.arange(population)

    def rng(self, purpose: str) -> np.random.Generator:
        """Return one generator for each round."""
        return np.random.default_rng((self.number, 7))


def min_separation(population: int, **keys: Any) -> MinSeparationSelection:
    parameters = MinSeparationParameters(**keys)
    parameters.check(population)
    return MinSeparationSelection(parameters, population)


def chosen_in_rounds(server: MinSeparationSelection, presence: np.ndarray) -> list[Ids]:
    """Return the participants of each round (none if it is skipped), stored as `select` does."""
    n, found = server.population, []
    memory, participations = {_LAST: np.zeros(n, np.int64)}, np.zeros(n, np.int64)
    for number, there in enumerate(presence, 1):
        try:
            chosen = server.choose(np.flatnonzero(there), Round(number, n, memory, participations))
        except RoundSkipped:
            chosen = np.zeros(0, np.int64)
        memory[_LAST][chosen] = number
        participations[chosen] += 1
        found.append(chosen)
    return found


@given(data=st.data())
@settings(max_examples=examples(150))
def test_rounds_of_a_client_are_never_too_close(data: st.DataObject) -> None:
    privacy = data.draw(st.integers(1, 3), "privacy")
    wanted = data.draw(st.integers(1, 3), "batches of a round")
    separation = data.draw(st.integers(1, 5), "separation")
    population = privacy * wanted * separation + data.draw(st.integers(0, 7), "more clients")
    most = data.draw(st.none() | st.integers(1, 4), "max participations")
    keys = {"participants": privacy * wanted, "privacy": privacy, "separation": separation, "max_participations": most}
    server = min_separation(population, **keys)
    share, seed = data.draw(st.floats(0.2, 1.0), "share that is there"), data.draw(st.integers(0, 99), "seed")
    presence = np.random.default_rng(seed).random((25, population)) < share
    rounds = chosen_in_rounds(server, presence)
    for chosen, there in zip(rounds, presence, strict=True):
        assert there[chosen].all()
        assert len(chosen) == 0 or server.minimum_participants <= len(chosen) <= server.maximum_participants
        assert not len(server.groups.broken(chosen))
    pattern = server.parameters.participation_pattern(25)
    for client in range(population):
        own = [number for number, chosen in enumerate(rounds, 1) if client in chosen]
        assert all(later - earlier >= separation for earlier, later in itertools.pairwise(own))
        assert len(own) <= pattern.most_participations(25)


def test_with_full_availability_and_just_enough_clients_no_round_is_skipped() -> None:
    server = min_separation(12, participants=3, separation=4)
    rounds = chosen_in_rounds(server, np.ones((20, 12), np.bool_))
    assert [len(chosen) for chosen in rounds] == [3] * 20
    assert np.bincount(np.concatenate(rounds)).tolist() == [5] * 12  # every cycle has the same order


def test_too_few_rested_clients_skip_the_round() -> None:
    server = min_separation(7, participants=3, separation=2)
    round_ = Round(2, 7, {_LAST: np.array([1, 1, 1, 0, 0, 0, 0])}, np.zeros(7, np.int64))
    with pytest.raises(RoundSkipped) as ended:
        server.choose(np.array([0, 1, 2, 3, 4]), round_)
    assert ended.value.reason == "too-few-rested"
    assert ended.value.detail == "2 of 5 available clients have rested: 2 clients, 3 wanted"
    assert server.choose(np.array([0, 3, 4, 6]), round_).tolist() == [3, 4, 6]


def test_rested_clients_are_drawn_uniformly() -> None:
    server = min_separation(8, participants=2, separation=3)
    found: Counter[frozenset[int]] = Counter()
    for number in range(3000):
        memory = {_LAST: np.array([0, 0, number, number + 8, number + 9, number + 7, 0, 0])}
        round_ = Round(number + 10, 8, memory, np.zeros(8, np.int64))
        found[frozenset(server.choose(np.array([0, 1, 2, 3, 4, 5, 7]), round_).tolist())] += 1
    assert set(found) == {frozenset(pair) for pair in itertools.combinations([0, 1, 2, 5, 7], 2)}
    assert chisquare(list(found.values())).pvalue > SUSPICIOUS


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"participants": 5, "separation": 5}, "separation: 5 rounds of 5 participants need 25 clients"),
        ({"participants": 6, "separation": 2, "privacy": 4}, "privacy: T = 4 does not divide"),
        ({"participants": 8, "separation": 3, "privacy": 4}, "separation: 3 rounds of 8 participants need 24 clients"),
        ({"participants": 30, "separation": 1}, "participants: 30 of a population of 20"),
    ],
)
def test_a_population_too_small_for_the_separation_is_refused(keys: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MinSeparationParameters(**keys).check(20)


def bins_of(population: int, bins: int, coins: str) -> Selecting:
    parameters = BallsInBinsParameters(bins=bins, coins=coins)
    parameters.check(population)
    return Selecting(BallsInBinsSelection(parameters, population), population)


@pytest.mark.parametrize("coins", ["server", "clients"])
def test_every_client_has_one_bin_and_bins_are_equally_likely(coins: str) -> None:
    bins, population = 5, 3000
    running = bins_of(population, bins, coins)
    turns = [running.select(number).participants for number in range(1, 2 * bins + 1)]
    for first, again in zip(turns[:bins], turns[bins:], strict=True):
        assert np.array_equal(first, again)
    assert sorted(np.concatenate(turns[:bins]).tolist()) == list(range(population))
    assert chisquare([len(turn) for turn in turns[:bins]]).pvalue > SUSPICIOUS
    together = sum(len(np.intersect1d(turn, turn + 1)) for turn in turns[:bins])  # neighbours, of n - 1 pairs
    assert binomtest(together, population - 1, 1 / bins).pvalue > SUSPICIOUS


def test_bins_drawn_by_clients_are_independent_of_the_servers() -> None:
    own, server = bins_of(400, 4, "clients"), bins_of(400, 4, "server")
    same = sum(len(np.intersect1d(own.select(n).participants, server.select(n).participants)) for n in range(1, 5))
    assert binomtest(same, 400, 1 / 4).pvalue > SUSPICIOUS


@pytest.mark.parametrize(
    ("keys", "parts"),
    [({"bins": 4, "participants": 5}, ("participants", 5, "bins")), ({"bins": 11}, ("bins", 11, "population", 20, 10))],
)
def test_unsuitable_bins_are_refused(keys: dict[str, int], parts: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=naming(*parts)):
        BallsInBinsParameters(**keys).check(20)


def test_patterns() -> None:
    separated = MinSeparationParameters(participants=2, separation=4, max_participations=3).participation_pattern(100)
    assert (separated.min_separation, separated.max_participations, separated.fixed_cycle) == (4, 3, False)
    assert separated.most_participations(9) == 3
    in_bins = BallsInBinsParameters(bins=4).participation_pattern(9)
    assert (in_bins.min_separation, in_bins.fixed_cycle, in_bins.most_participations(9)) == (4, True, 3)
