"""Partitioners with the interface of flwr-datasets: a stand-in for it, and itself where it is installed."""

import sys
import types
from typing import Any

import numpy as np
import pytest

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from workloads.data.own.arrays import ClientArrays
from workloads.data.own.forms import TabularData


class Columns:
    """As much of `datasets.Dataset` as partitioners here use."""

    def __init__(self, columns: dict[str, list]) -> None:
        self.columns = columns

    @classmethod
    def from_dict(cls, columns: dict[str, list]) -> "Columns":
        return cls(columns)

    def select(self, rows: Any) -> "Columns":
        return Columns({name: [values[row] for row in rows] for name, values in self.columns.items()})

    def __getitem__(self, name: str) -> list:
        return self.columns[name]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


class EveryNth:
    """A partitioner by the documented contract: https://flower.ai/docs/datasets, Partitioner."""

    def __init__(self, num_partitions: int, seed: int = 42, overlap: bool = False) -> None:
        if seed < 0:
            raise ValueError
        self.num_partitions = num_partitions
        self.seed, self.overlap = seed, overlap
        self.dataset: Any = None

    def load_partition(self, partition_id: int) -> Any:
        rows = range(0 if self.overlap else partition_id, len(self.dataset), self.num_partitions)
        return self.dataset.select(rows)


class ByWard:
    """Without a number of its own choosing."""

    dataset: Any = None

    def __init__(self, partition_by: str) -> None:
        self.partition_by = partition_by

    @property
    def num_partitions(self) -> int:
        return len(set(self.dataset[self.partition_by]))

    def load_partition(self, partition_id: int) -> Any:
        name = sorted(set(self.dataset[self.partition_by]))[partition_id]
        return self.dataset.select([row for row, one in enumerate(self.dataset[self.partition_by]) if one == name])


@pytest.fixture
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    hugging_face, mine = types.ModuleType("datasets"), types.ModuleType("my_partitioners")
    vars(hugging_face)["Dataset"] = Columns
    vars(mine).update(EveryNth=EveryNth, ByWard=ByWard)
    monkeypatch.setitem(sys.modules, "datasets", hugging_face)
    monkeypatch.setitem(sys.modules, "my_partitioners", mine)


def spread(scheme: str, population: int = 10, **options: Any) -> ClientArrays:
    numbers = np.arange(100)
    train = TabularData(
        numbers[:, None] * 1.0, numbers % 5, {"ward": np.array([f"w{number % 10}" for number in numbers])}
    )
    section = WorkloadSection(partition={"scheme": scheme, "options": options, "minimum_samples": 0})
    return ClientArrays(train, TabularData(np.zeros((5, 1)), numbers[:5] % 5), section, population, 1)


def held(data: ClientArrays) -> list[list[int]]:
    return [data.shard(client)[0].numpy()[:, 0].astype(int).tolist() for client in range(len(data.sample_counts))]


@pytest.mark.usefixtures("_stand_in")
def test_a_partitioner_assigns_samples_to_clients() -> None:
    assert held(spread("my_partitioners:EveryNth"))[3] == [3, 13, 23, 33, 43, 53, 63, 73, 83, 93]
    assert held(spread("my_partitioners:EveryNth", population=7))[6] == list(range(6, 100, 7))
    assert held(spread("my_partitioners:ByWard", partition_by="ward"))[3] == list(range(3, 100, 10))
    assert len(held(spread("my_partitioners:ByWard", population=5, partition_by="label"))[0]) == 20


@pytest.mark.usefixtures("_stand_in")
@pytest.mark.parametrize(
    ("scheme", "population", "options", "says"),
    [
        ("my_partitioners:ByWard", 7, {"partition_by": "ward"}, "makes 10 parts for 7 clients; set population to 10"),
        (
            "my_partitioners:ByWard",
            7,
            {"partition_by": "bed"},
            "workload.partition.scheme: my_partitioners:ByWard: 'bed'",
        ),
        ("my_partitioners:ByWard", 7, {}, "missing a required argument: 'partition_by'"),
        ("my_partitioners:EveryNth", 7, {"sead": 3}, "options.sead: unknown option; did you mean 'seed'?"),
        ("my_partitioners:EveryNth", 7, {"overlap": True}, "EveryNth gives some samples to several clients"),
        ("my_partitioners:EveryNth", 7, {"seed": -1}, "my_partitioners:EveryNth: ValueError"),
        ("my_partitioners:EveryTenth", 7, {}, "has no class EveryTenth"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(scheme: str, population: int, options: dict, says: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        spread(scheme, population, **options)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_without_it_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ExperimentError, match=r"scheme needs \w+: pip install 'sortition-testbed\[flower-datasets\]'"):
        spread("flwr_datasets.partitioner:IidPartitioner")


@pytest.mark.parametrize(
    ("name", "options", "labels"),
    [
        ("IidPartitioner", {}, 5),
        ("PathologicalPartitioner", {"partition_by": "label", "num_classes_per_partition": 2}, 2),
        ("DirichletPartitioner", {"partition_by": "label", "alpha": 0.3, "min_partition_size": 1}, 5),
        ("NaturalIdPartitioner", {"partition_by": "ward"}, 1),
        ("LinearPartitioner", {}, 5),
    ],
)
def test_those_of_flwr_datasets(name: str, options: dict, labels: int) -> None:
    pytest.importorskip("flwr_datasets")
    first, second = (spread(f"flwr_datasets.partitioner:{name}", **options) for _ in range(2))
    assert held(first) == held(second)
    assert sorted(np.concatenate(held(first)).tolist()) == list(range(100))
    assert (first.label_counts() > 0).sum(axis=1).max() <= labels
