"""Partitioners: every sample once, deterministic, and skewed as their papers say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

import workloads
from testbed.errors import ExperimentError
from testbed.workload.partition import Partition
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from workloads.data.clients import partition
from workloads.data.clients.partition import Assignment

SCHEMES = st.sampled_from(["iid", "dirichlet", "label-shards"])


def by_scheme(scheme: str, labels: np.ndarray, population: int, seed: int, **keys: object) -> Assignment:
    section = Partition(scheme=scheme, minimum_samples=0, **keys)
    return partition.assign(labels, population, section, None, np.random.default_rng(seed))


@given(
    scheme=SCHEMES,
    labels=st.lists(st.integers(0, 9), min_size=1, max_size=200),
    population=st.integers(1, 60),
    alpha=st.sampled_from([1e-3, 0.1, 1.0, 1e4]),
    shards=st.integers(1, 4),
    seed=st.integers(0, 2**70),
)
def test_every_sample_goes_to_exactly_one_client(scheme, labels, population, alpha, shards, seed) -> None:
    labels = np.array(labels, dtype=np.int64)
    given_out = by_scheme(scheme, labels, population, seed, alpha=alpha, shards_per_client=shards)
    assert len(given_out.offsets) == population + 1
    assert given_out.counts.sum() == len(labels)
    parts = [given_out.of(client) for client in range(population)]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    # Equal shares: of samples, or of shards with sizes that differ by at most one.
    spread = given_out.counts.max() - given_out.counts.min()
    assert spread <= (shards if scheme == "label-shards" else 1)
    again = by_scheme(scheme, labels, population, seed, alpha=alpha, shards_per_client=shards)
    assert np.array_equal(again.order, given_out.order)
    assert np.array_equal(again.offsets, given_out.offsets)


@given(scheme=SCHEMES, limit=st.integers(1, 12), population=st.integers(1, 20))
def test_cutting_keeps_the_first_samples_of_each_client(scheme, limit, population) -> None:
    labels = np.arange(100) % 10
    whole = by_scheme(scheme, labels, population, 5)
    cut = whole.limited(limit)
    for client in range(population):
        assert np.array_equal(cut.of(client), whole.of(client)[:limit])


def test_label_shards_equal_mcmahans_construction() -> None:
    """The oracle: shards as lists, dealt out one after the other."""
    labels = np.random.default_rng(0).integers(0, 10, 1003)
    assignment = partition.label_shards(labels, 20, 3, np.random.default_rng(1))
    random = np.random.default_rng(1)
    shuffled = random.permutation(1003)
    by_label = sorted(shuffled, key=lambda sample: labels[sample])
    sizes = [17] * (1003 % 60) + [16] * (60 - 1003 % 60)
    shards, start = [], 0
    for size in sizes:
        shards.append(by_label[start : start + size])
        start += size
    dealt = random.permutation(60)
    for client in range(20):
        expected = [sample for shard in dealt[3 * client : 3 * client + 3] for sample in shards[shard]]
        assert assignment.of(client).tolist() == expected


def classes_held(assignment: Assignment, labels: np.ndarray) -> float:
    clients = range(len(assignment.counts))
    return float(np.mean([len(np.unique(labels[assignment.of(client)])) for client in clients]))


def test_label_shards_give_few_classes_and_iid_gives_all() -> None:
    labels = np.repeat(np.arange(10), 600)
    assert classes_held(by_scheme("label-shards", labels, 100, 1, shards_per_client=2), labels) <= 2.0
    assert classes_held(by_scheme("iid", labels, 100, 1), labels) > 9.8


def test_a_small_dirichlet_alpha_is_skewed_and_a_large_one_is_not() -> None:
    labels = np.repeat(np.arange(10), 600)
    held = [classes_held(by_scheme("dirichlet", labels, 100, 1, alpha=alpha), labels) for alpha in (0.05, 1, 1e5)]
    assert held[0] < 3.0
    assert held[0] < held[1] < held[2]
    assert held[2] > 9.8


def test_dirichlet_shares_follow_the_drawn_mix_where_classes_last() -> None:
    """With plenty of every class left, the first client's shares are its Dir(alpha * prior) draw."""
    labels = np.repeat(np.arange(4), [4000, 3000, 2000, 1000])
    assignment = partition.dirichlet(labels, 20, 2.0, np.random.default_rng(7))
    random = np.random.default_rng(7)
    for size in (4000, 3000, 2000, 1000):
        random.permutation(size)
    mix = random.dirichlet(2.0 * np.array([0.4, 0.3, 0.2, 0.1]))
    shares = np.bincount(labels[assignment.of(0)], minlength=4) / 500
    assert np.abs(shares - mix).max() < 4 * np.sqrt(0.25 / 500)


@pytest.mark.parametrize("scheme", ["iid", "dirichlet", "label-shards"])
def test_too_few_samples_say_how_many_clients_and_what_to_do(scheme: str) -> None:
    labels = np.arange(30) % 10
    with pytest.raises(ExperimentError, match=naming("20 of 50 clients", "minimum_samples: 0")) as refused:
        partition.assign(labels, 50, Partition(scheme=scheme, shards_per_client=1), None, np.random.default_rng(0))
    assert "\n" not in str(refused.value)
    allowed = Partition(scheme=scheme, shards_per_client=1, minimum_samples=0)
    assignment = partition.assign(labels, 50, allowed, None, np.random.default_rng(0))
    assert (assignment.counts == 0).sum() == 20


@pytest.mark.parametrize(("samples", "population", "shared"), [(60_000, 120, 0), (50_000, 120, 200)])
def test_one_shard_of_balanced_data_is_one_label(samples: int, population: int, shared: int) -> None:
    """Multi-RoundSecAgg, first version, section 6 and Appendix E: MNIST in 120 shards of 500, CIFAR-10 in shards of 415
    and 200 shared samples."""
    labels = np.random.default_rng(0).permutation(np.arange(samples) % 10)
    keys = {"shards_per_client": 1, "shared_samples": shared}
    assignment = by_scheme("label-shards", labels, population, 3, **keys)
    own = (samples - shared) // population
    assert assignment.own_counts.tolist() == [own] * population
    assert assignment.counts.tolist() == [own + shared] * population
    counts = assignment.own_label_counts(labels, 10)
    assert np.array_equal(np.sort(counts, axis=1)[:, -1], assignment.own_counts)  # all of one label
    assert counts.sum(axis=0).tolist() == [(samples - shared) // 10] * 10
    again = by_scheme("label-shards", labels, population, 3, **keys)
    assert np.array_equal(again.order, assignment.order)
    assert np.array_equal(again.shared, assignment.shared)
    other = by_scheme("label-shards", labels, population, 4, **keys)
    assert not np.array_equal(other.order, assignment.order)


@given(
    scheme=SCHEMES,
    labels=st.lists(st.integers(0, 6), min_size=2, max_size=150),
    share=st.floats(0.01, 0.99),
    population=st.integers(1, 12),
    seed=st.integers(0, 2**70),
)
def test_shared_samples_are_at_every_client_and_the_others_at_one(scheme, labels, share, population, seed) -> None:
    labels = np.array(labels, dtype=np.int64)
    count = max(1, int(share * (len(labels) - 1)))
    assignment = by_scheme(scheme, labels, population, seed, shared_samples=count)
    assert len(np.unique(assignment.shared)) == len(assignment.shared) == count
    parts = [assignment.of(client) for client in range(population)]
    assert [len(part) for part in parts] == assignment.counts.tolist()
    private = [np.setdiff1d(part, assignment.shared) for part in parts]
    assert all(len(part) == len(own) + count for part, own in zip(parts, private, strict=True))
    everything = np.concatenate([*private, assignment.shared])
    assert np.array_equal(np.sort(everything), np.arange(len(labels)))
    for client, part in enumerate(parts):
        assert assignment.label_counts(labels, 7)[client].tolist() == np.bincount(labels[part], minlength=7).tolist()
    # As many of each label as of any other, unless a label has no more.
    shared, there = (np.bincount(labels[part], minlength=7) for part in (assignment.shared, np.arange(len(labels))))
    assert all(some >= shared.max() - 1 or some == whole for some, whole in zip(shared, there, strict=True))


def test_cutting_leaves_the_shared_samples_and_counts_them() -> None:
    labels = np.arange(200) % 10
    section = Partition(scheme="label-shards", shards_per_client=1, shared_samples=20)
    whole = partition.assign(labels, 6, section, None, np.random.default_rng(5))
    cut = partition.assign(labels, 6, section, 25, np.random.default_rng(5))
    assert cut.counts.tolist() == [25] * 6
    for client in range(6):
        assert cut.of(client)[:5].tolist() == whole.of(client)[:5].tolist()
        assert cut.of(client)[5:].tolist() == whole.shared.tolist()


def test_shared_samples_do_not_stand_in_for_a_clients_own() -> None:
    labels = np.arange(30) % 10
    section = Partition(shared_samples=10)
    with pytest.raises(ExperimentError, match=naming("5 of 25 clients", "minimum_samples")):
        partition.assign(labels, 25, section, None, np.random.default_rng(0))
    with pytest.raises(ExperimentError, match=naming("shared_samples", "30 of the 30")):
        partition.assign(labels, 2, Partition(shared_samples=30), None, np.random.default_rng(0))


@given(
    samples=st.integers(1, 60),
    population=st.integers(1, 40),
    size=st.integers(1, 70),
    shared=st.integers(0, 8),
    seed=st.integers(0, 2**70),
)
def test_overlapping_clients_draw_theirs_from_all_samples(samples, population, size, shared, seed) -> None:
    """More samples together than there are; none twice at one client; the shared ones are within the limit."""
    labels = np.arange(samples) % 10
    section = Partition(scheme="overlapping", shared_samples=shared)

    def drawn() -> Assignment:
        return partition.assign(labels, population, section, size, np.random.default_rng(seed))

    if shared >= samples or size > samples or size <= shared:
        if shared < samples:
            with pytest.raises(ExperimentError, match=r"workload\.(samples_per_client|partition)"):
                drawn()
        return
    found = drawn()
    for client in range(population):
        held = found.of(client)
        assert len(held) == len(np.unique(held)) == size == found.counts[client]
        assert set(held.tolist()) <= set(range(samples))
    assert np.array_equal(found.order, drawn().order)


def test_every_sample_is_as_likely_at_an_overlapping_client() -> None:
    found = partition.overlapping(20, 4000, 5, np.random.default_rng(3))
    assert chisquare(np.bincount(found.order, minlength=20)).pvalue > 1e-4
    assert np.corrcoef(*(np.isin(np.arange(20), found.of(client)) for client in (0, 1)))[0, 1] < 1


def test_overlapping_needs_the_number_that_each_client_draws() -> None:
    with pytest.raises(ValueError, match="overlapping needs samples_per_client"):
        WorkloadSection(partition=Partition(scheme="overlapping"))
    many = WorkloadSection(partition=Partition(scheme="overlapping"), samples_per_client=30)
    built = workloads.build(many, 500, 1)
    assert built.sample_counts.tolist() == [30] * 500
