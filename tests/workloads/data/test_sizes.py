"""Clients of unequal sizes: every sample once, skewed as asked, seeded; equal sizes as in earlier versions."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import workloads
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.workload.partition import Partition
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from workloads.data.clients import partition
from workloads.data.clients.partition import Assignment

LABELS = np.random.default_rng(0).integers(0, 10, 20_000)
UNEQUAL = st.sampled_from(["dirichlet", "log-normal"])


def assigned(labels: np.ndarray, population: int, seed: int = 1, **keys: object) -> Assignment:
    return partition.assign(labels, population, Partition(**keys), None, np.random.default_rng(seed))


def sizes(population: int = 200, seed: int = 1, **keys: object) -> np.ndarray:
    return assigned(LABELS, population, seed, **keys).counts


@given(
    scheme=st.sampled_from(["iid", "dirichlet"]),
    distribution=UNEQUAL,
    labels=st.lists(st.integers(0, 9), min_size=1, max_size=200),
    population=st.integers(1, 60),
    minimum=st.integers(0, 4),
    beta=st.sampled_from([1e-3, 0.1, 1.0, 1e6]),
    sigma=st.sampled_from([1e-3, 1.0, 10.0]),
    seed=st.integers(0, 2**70),
)
def test_every_sample_is_with_one_client(scheme, distribution, labels, population, minimum, beta, sigma, seed) -> None:
    labels = np.array(labels, dtype=np.int64)
    keys = {"scheme": scheme, "sizes": distribution, "size_beta": beta, "size_sigma": sigma, "minimum_samples": minimum}
    if len(labels) < population * minimum:
        with pytest.raises(ExperimentError, match="minimum_samples"):
            assigned(labels, population, seed, **keys)
        return
    spread = assigned(labels, population, seed, **keys)
    parts = [spread.of(client) for client in range(population)]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert spread.counts.min() >= minimum
    again = assigned(labels, population, seed, **keys)
    assert np.array_equal(again.order, spread.order)
    assert np.array_equal(again.offsets, spread.offsets)


def test_dirichlet_sizes_have_the_variance_of_their_beta() -> None:
    """A share of Dir(beta, ..., beta) among n has the mean 1/n and the variance (n - 1) / (n^2 (n beta + 1))."""
    n = 200
    for beta in (0.5, 5.0):
        drawn = np.array([sizes(n, seed, sizes="dirichlet", size_beta=beta, minimum_samples=0) for seed in range(40)])
        expected = (n - 1) / (n**2 * (n * beta + 1))
        assert np.var(drawn / len(LABELS)) == pytest.approx(expected, rel=0.1)


def test_the_logarithms_of_log_normal_sizes_spread_by_sigma() -> None:
    for sigma in (0.3, 0.8):
        drawn = [sizes(40, seed, sizes="log-normal", size_sigma=sigma, minimum_samples=0) for seed in range(40)]
        assert np.std([np.log(one) - np.log(one).mean() for one in drawn]) == pytest.approx(sigma, rel=0.08)


@pytest.mark.parametrize(
    "keys", [{"sizes": "dirichlet", "size_beta": 1e6}, {"sizes": "log-normal", "size_sigma": 1e-4}]
)
def test_sizes_without_spread_are_equal(keys: dict[str, object]) -> None:
    assert np.abs(sizes(**keys) - 100).max() <= 1


def test_the_class_mix_is_skewed_with_the_sizes() -> None:
    """Clients of `dirichlet` keep their few classes, for any size."""
    keys = {"scheme": "dirichlet", "sizes": "dirichlet", "size_beta": 1.0, "minimum_samples": 20}
    skewed = assigned(LABELS, 100, alpha=0.05, **keys)
    mixed = assigned(LABELS, 100, alpha=1e5, **keys)
    held = [(one.label_counts(LABELS, 10) > 0).sum(axis=1).mean() for one in (skewed, mixed)]
    assert held[0] < 4 < 8 < held[1]
    assert np.std(skewed.counts) > 50


@pytest.mark.parametrize(
    ("scheme", "digest"),
    [("iid", "6b160f325e0c861e"), ("dirichlet", "2cf0862ecce80308")],
)
def test_equal_sizes_are_those_of_earlier_versions(scheme: str, digest: str) -> None:
    spread = assigned(LABELS, 30, 5, scheme=scheme)
    written = spread.order.astype("<i8").tobytes() + spread.offsets.astype("<i8").tobytes()
    assert hashlib.sha256(written).hexdigest().startswith(digest)


def test_an_experiment_with_equal_sizes_is_written_as_in_earlier_versions() -> None:
    assert not {"sizes", "size_beta", "size_sigma"} & set(Experiment().plain()["workload"]["partition"])
    unequal = Experiment.model_validate({"workload": {"partition": {"sizes": "dirichlet"}}})
    assert unequal.plain()["workload"]["partition"]["size_beta"] == 0.5  # said, should the default change
    assert Experiment.model_validate(unequal.plain()) == unequal


@pytest.mark.parametrize("scheme", ["label-shards", "overlapping", "package.module:Own"])
def test_other_schemes_refuse_sizes(scheme: str) -> None:
    with pytest.raises(ValidationError, match=r"sizes: dirichlet .* iid and dirichlet"):
        Partition(scheme=scheme, sizes="dirichlet")


def test_data_with_owners_refuse_sizes() -> None:
    with pytest.raises(ValidationError, match=naming("partition", "synthetic-femnist")):
        WorkloadSection(dataset="synthetic-femnist", partition=Partition(sizes="dirichlet"))


def test_a_workload_has_clients_of_unequal_sizes() -> None:
    section = WorkloadSection(partition=Partition(sizes="dirichlet"))
    counts = np.asarray(workloads.build(section, 20, 3).sample_counts)
    equal = np.asarray(workloads.build(WorkloadSection(), 20, 3).sample_counts)
    assert counts.sum() == equal.sum()
    assert counts.max() > 2 * equal.max()
    assert counts.min() >= 1
