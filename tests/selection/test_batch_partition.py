"""Batch partition against the paper's own algorithms, which enumerate the family of sets."""

import itertools
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from testbed.batches import Batches
from testbed.errors import RoundSkipped
from testbed.selection.batch_partition import (
    BatchPartitionParameters,
    BatchPartitionSelection,
    PartitionParameters,
)
from tests.selection.federations import Selecting

DRAWS = 4000
SUSPICIOUS = 1e-4  # below this p-value the distributions differ (the draws are seeded: no flake)


def family(users: int, selected: int, privacy: int) -> list[frozenset[int]]:
    """Return every union of K/T of the N/T batches of T consecutive users (Algorithm 1)."""
    batches = [range(first, first + privacy) for first in range(0, users, privacy)]
    return [
        frozenset(itertools.chain.from_iterable(union))
        for union in itertools.combinations(batches, selected // privacy)
    ]


MODES = ["uniform", "fair", "least-total"]


def admissible(
    sets: list[frozenset[int]], present: set[int], frequency: np.ndarray, mode: str
) -> dict[frozenset[int], float]:
    """Return the probability of each set, by enumeration (Algorithm 2).

    In fair mode the user of minimum frequency is drawn uniformly among the users in any admissible set.
    """
    rows = [row for row in sets if row <= present]
    if mode == "least-total":
        totals = [sum(frequency[user] for user in row) for row in rows]
        rows = [row for row, total in zip(rows, totals, strict=True) if total == min(totals)]
    if mode != "fair":
        return {row: 1 / len(rows) for row in rows}
    users = sorted(set().union(*rows))
    fewest = [user for user in users if frequency[user] == min(frequency[u] for u in users)]
    chance: dict[frozenset[int], float] = defaultdict(float)
    for user in fewest:
        with_user = [row for row in rows if user in row]
        for row in with_user:
            chance[row] += 1 / len(fewest) / len(with_user)
    return chance


def selection_counts(protocol: BatchPartitionSelection, present: list[int], frequency: np.ndarray) -> Counter:
    """Return how often each set of users was selected."""
    rng = np.random.default_rng(7)
    there = np.array(present, np.int64)
    return Counter(
        frozenset(protocol.batches.members(protocol.choose(there, frequency, rng)).tolist()) for _ in range(DRAWS)
    )


def assert_same_distribution(found: Counter, expected: Counter) -> None:
    assert found.keys() == expected.keys()
    if len(expected) == 1:
        return
    counts = [found[row] for row in expected]
    assert chisquare(counts, [DRAWS * chance for chance in expected.values()]).pvalue > SUSPICIOUS


@pytest.mark.parametrize("away", [(), (3,), (0, 7), (0, 1, 4)])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("frequency", [[0] * 8, [2, 2, 1, 1, 0, 0, 3, 3], [0, 5, 0, 0, 1, 1, 0, 2]])
def test_sets_have_the_distribution_of_the_enumerating_algorithms(
    away: tuple[int, ...], mode: str, frequency: list[int]
) -> None:
    parameters = BatchPartitionParameters(participants=4, privacy=2, mode=mode)
    protocol = BatchPartitionSelection(parameters, 8)
    present = [user for user in range(8) if user not in away]
    expected = admissible(family(8, 4, 2), set(present), np.array(frequency), mode)
    assert len(expected) >= 1
    assert_same_distribution(selection_counts(protocol, present, np.array(frequency)), expected)


def test_random_is_the_case_t_1_and_partition_the_case_t_k() -> None:
    singles = BatchPartitionSelection(BatchPartitionParameters(participants=2, privacy=1, mode="uniform"), 5)
    present = [0, 1, 3, 4]
    expected = Counter({frozenset(pair): 1 / 6 for pair in itertools.combinations(present, 2)})
    assert_same_distribution(selection_counts(singles, present, np.zeros(5, np.int64)), expected)

    whole = BatchPartitionSelection(PartitionParameters(participants=3), 9)
    frequency = np.array([1, 1, 1, 0, 0, 0, 0, 0, 0])
    groups = Counter({frozenset({3, 4, 5}): 0.5, frozenset({6, 7, 8}): 0.5})
    assert_same_distribution(selection_counts(whole, list(range(9)), frequency), groups)


def test_fair_mode_takes_the_batch_of_the_user_with_the_fewest_participations() -> None:
    protocol = BatchPartitionSelection(BatchPartitionParameters(participants=6, privacy=3), 30)
    rng = np.random.default_rng(0)
    for fewest in range(30):
        frequency = np.full(30, 4)
        frequency[fewest] = 3
        assert fewest in protocol.batches.members(protocol.choose(np.arange(30), frequency, rng))
    # This user's batch is not complete: the minimum is over the others.
    frequency = np.arange(30)
    present = np.setdiff1d(np.arange(30), [1])
    assert 3 in protocol.batches.members(protocol.choose(present, frequency, rng))


@pytest.mark.parametrize("mode", MODES)
def test_too_few_whole_batches_skip_the_round(mode: str) -> None:
    protocol = BatchPartitionSelection(BatchPartitionParameters(participants=4, privacy=2, mode=mode), 8)
    with pytest.raises(RoundSkipped) as skipped:
        protocol.choose(np.array([0, 1, 2, 4, 6, 7][:4]), np.zeros(8, np.int64), np.random.default_rng(0))
    assert skipped.value.reason == "too-few-whole-batches"
    assert "1 whole batches, 2 wanted" in skipped.value.detail


@given(population=st.integers(1, 400), size=st.integers(1, 60))
def test_batches_are_consecutive_and_none_is_smaller_than_t(population: int, size: int) -> None:
    batch = Batches.consecutive(population, size).of
    sizes = np.bincount(batch)
    assert len(batch) == population == sizes.sum()
    assert (np.diff(batch) >= 0).all()
    assert len(sizes) == max(1, population // size)
    assert sizes.max() - sizes.min() <= 1
    if population >= size:
        assert sizes.min() >= size
    if population >= size * size:
        assert sizes.max() <= size + 1
    if population % size == 0:
        assert (sizes == size).all()


def test_uneven_sizes_never_exceed_the_announced_maximum() -> None:
    protocol = BatchPartitionSelection(BatchPartitionParameters(participants=4, privacy=2), 11)
    assert protocol.batches.sizes.tolist() == [3, 2, 2, 2, 2]
    rng = np.random.default_rng(3)
    taken = {
        len(protocol.batches.members(protocol.choose(np.arange(11), np.zeros(11, np.int64), rng))) for _ in range(200)
    }
    assert taken == {4, 5}
    assert protocol.maximum_participants == 5


def uneven_family(protocol: BatchPartitionSelection) -> list[frozenset[int]]:
    """Return every union of K/T batches of different sizes (Algorithm 1)."""
    batches = [np.flatnonzero(protocol.batches.of == batch).tolist() for batch in range(len(protocol.batches))]
    return [
        frozenset(itertools.chain.from_iterable(union)) for union in itertools.combinations(batches, protocol.required)
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("population", "selected", "privacy"), [(11, 4, 2), (10, 6, 3), (7, 2, 1), (13, 8, 4)])
@pytest.mark.parametrize("seed", [0, 1])
def test_uneven_batches_have_the_distribution_of_the_enumerating_algorithms(
    mode: str, population: int, selected: int, privacy: int, seed: int
) -> None:
    protocol = BatchPartitionSelection(
        BatchPartitionParameters(participants=selected, privacy=privacy, mode=mode), population
    )
    generator = np.random.default_rng(seed)
    frequency = generator.integers(0, 3, population)
    away = {int(generator.integers(population))} if len(protocol.batches) > protocol.required else set()
    present = [user for user in range(population) if user not in away]
    expected = admissible(uneven_family(protocol), set(present), frequency, mode)
    assert_same_distribution(selection_counts(protocol, present, frequency), expected)


@pytest.mark.parametrize("mode", ["fair", "least-total"])
def test_a_population_of_a_million(mode: str) -> None:
    population = 1_000_000
    protocol = BatchPartitionSelection(BatchPartitionParameters(participants=100, privacy=10, mode=mode), population)
    generator = np.random.default_rng(1)
    present = np.flatnonzero(generator.random(population) < 0.9)
    frequency = generator.integers(0, 5, population)
    chosen = protocol.batches.members(protocol.choose(present, frequency, generator))
    assert len(chosen) == 100
    assert np.isin(chosen, present).all()
    whole = np.add.reduceat(np.isin(np.arange(population), present), np.arange(0, population, 10)) == 10
    if mode == "fair":
        assert frequency[chosen].min() == frequency[np.repeat(whole, 10)].min()
    else:
        assert frequency[chosen].sum() == np.sort(frequency.reshape(-1, 10).sum(axis=1)[whole])[:10].sum()


@pytest.mark.parametrize(
    ("keys", "population", "says"),
    [
        ({"participants": 10, "privacy": 3}, 100, "T = 3 does not divide participants K = 10"),
        ({"participants": 10, "privacy": 3}, 100, "allowed here: 1, 2, 5, 10"),
        ({"participants": 20, "privacy": 5}, 10, "20 of a population of 10"),
    ],
)
def test_unsuitable_parameters_are_refused(keys: dict, population: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        BatchPartitionParameters(**keys).check(population)


def test_a_whole_round_over_the_network() -> None:
    parameters = BatchPartitionParameters(participants=6, privacy=2)
    run = Selecting(
        BatchPartitionSelection(parameters, 20), 20, availability={"model": "bernoulli", "unavailable": 0.2}
    )
    chosen = run.select()
    assert len(chosen.participants) == 6
    assert (chosen.participants % 2 == [0, 1] * 3).all()
    there = run.network.availability.presence(1, "check-in", 0.0, np.arange(20)).reachable
    assert chosen.candidates == run.last.candidates == there.sum() < 20
    assert there[chosen.participants].all()


def test_a_skipped_round_records_the_available_clients() -> None:
    parameters = BatchPartitionParameters(participants=6, privacy=2)
    run = Selecting(
        BatchPartitionSelection(parameters, 20), 20, availability={"model": "bernoulli", "unavailable": 0.6}
    )
    with pytest.raises(RoundSkipped):
        run.select()
    assert 0 < run.last.candidates < 20


@given(st.integers(1, 40), st.integers(1, 12), st.randoms())
def test_mates_are_the_other_members(population: int, size: int, random: Any) -> None:
    of = Batches.consecutive(population, size).of.tolist()
    random.shuffle(of)
    batches = Batches(of)
    for client in range(population):
        assert batches.mates(client).tolist() == [c for c in range(population) if of[c] == of[client] and c != client]
