"""Reproductions in this process, each experiment run once; and a size of Lotto's tables that takes a second."""

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.experiments import TIME, WORKLOAD
from analysis.reproduction.lotto.overhead import SCALES, OverheadScale
from testbed.experiment.reading import apply_override
from testbed.experiment.schema import Experiment, validated
from testbed.records import RunRecords
from testbed.running import run_all
from tests.finished_runs import FinishedRuns

TINY = OverheadScale(
    ("FEMNIST",),
    {12: 5},
    {"FEMNIST": 2},
    workload={"dataset": "digits", "model": "logistic", "samples_per_client": 20},
)


def is_pinned(experiment: Experiment) -> bool:
    """Whether an experiment itself sets all training and time values that reproductions set."""
    sections = experiment.workload.model_fields_set, experiment.time.model_fields_set
    return sections[0] >= WORKLOAD.keys() and sections[1] >= TIME.keys()


@pytest.fixture(scope="session")
def in_process(finished_runs: FinishedRuns) -> Callable[[Experiment, Path], list[RunRecords]]:
    """`ReproductionContext.run_experiment` without Ray; tests with an experiment in common get copies of its run."""

    def run(swept: Experiment, directory: Path) -> list[RunRecords]:
        assert is_pinned(swept)
        data = swept.model_dump(mode="json", exclude_unset=True)
        apply_override(data, "cluster.network=in-process")
        local = validated(data, swept.name)

        def run_to(path: Path) -> list[Path]:
            return run_all(local, path, where=swept.name, resume=True)

        if not directory.exists():
            finished_runs.copy(local.model_dump_json(), directory, run_to)
        return [RunRecords(path) for path in run_to(directory)]

    return run


@pytest.fixture
def context(tmp_path: Path, in_process: Callable[[Experiment, Path], list[RunRecords]]) -> ReproductionContext:
    """Runs without Ray."""
    return ReproductionContext("small", tmp_path, in_process, lambda line: None)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> OverheadScale:
    """The scale small is tiny."""
    monkeypatch.setitem(SCALES, "small", TINY)
    return TINY
