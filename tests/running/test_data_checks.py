"""Checks of runs with their data: in this process, or in the process of a run's coordinator, with the same result."""

from pathlib import Path
from typing import Any

import pytest

import workloads
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment, points
from testbed.running.data_checks import check_with_data, checked_on_ray
from testbed.running.execution import run_all
from testbed.running.preparation import planned
from tests.observers import Warnings
from tests.running.sweeps import small_sweep

ON_RAY = {"network": "ray", "parallel_runs": 2, "hosts": 1}
TOO_MANY = {"workload": {"dataset": "digits", "model": "logistic", "partition": {"minimum_samples": 1000}}}


class Unused:
    """An object that no code may call."""

    def __call__(self, *arguments: Any) -> Any:
        raise AssertionError("the data were built in this process")


@pytest.mark.ray
@pytest.mark.usefixtures("ray_here")
def test_on_ray_the_data_are_not_built_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "build", Unused())
    paths = run_all(small_sweep(cluster=ON_RAY, rounds=1), tmp_path / "out", where="sweep.yaml")
    assert all((path / "summary.json").is_file() for path in paths)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_here")
def test_on_ray_an_error_is_the_same_as_here(tmp_path: Path) -> None:
    lines = []
    for network in (ON_RAY, {"network": "in-process"}):
        with pytest.raises(ExperimentError) as error:
            run_all(small_sweep(cluster=network, **TOO_MANY), tmp_path / "out", where="sweep.yaml")
        lines.append(str(error.value))
        assert not (tmp_path / "out").exists()
    assert lines[0] == lines[1]
    assert lines[0].startswith("sweep.yaml: sweep point ")


def test_code_of_the_user_is_checked_here(tmp_path: Path) -> None:
    def on_ray(experiment: Experiment) -> bool:
        return checked_on_ray(planned(list(points(experiment, "sweep.yaml")), tmp_path / "out", resume=False))

    assert on_ray(small_sweep(cluster=ON_RAY))
    assert not on_ray(small_sweep(cluster=ON_RAY, workload={"dataset": "benchmarks.breaking:Means"}))
    assert not on_ray(small_sweep(cluster={"network": "in-process"}))
    assert not on_ray(small_sweep(sweep={"cluster.hosts": [1, 2]}, cluster={"network": "ray"}))


def test_runs_of_one_workload_are_checked_in_a_row(tmp_path: Path) -> None:
    """And warned of in the order of the sweep."""

    class Seeded:
        def __init__(self, seed: int) -> None:
            self.seed = seed

    sweep = small_sweep(sweep={"selection.protocol": ["random", "batch-partition"], "seed": [1, 2]})
    runs = planned(list(points(sweep, "sweep.yaml")), tmp_path / "out", resume=False)
    plans: list[Any] = [Seeded(run.point.experiment.seed or 0) for run in runs]
    order: list[str] = []
    watching = Warnings()

    def check(run: Any, plan: Any, name: str) -> list[str]:
        order.append(run.label)
        return [run.label]

    check_with_data(runs, plans, "sweep.yaml", watching, check)
    labels = [run.label for run in runs]
    assert order == [labels[0], labels[2], labels[1], labels[3]]
    assert watching.lines == labels
