"""Where reproductions run in this process, and a size of Lotto's tables that takes a second."""

from pathlib import Path

import pytest

from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.lotto.overhead import SCALES, OverheadScale
from testbed.experiment.reading import apply_override
from testbed.experiment.schema import Experiment, validated
from testbed.records import RunRecords
from testbed.running import run_all

TINY = OverheadScale(
    ("FEMNIST",),
    {8: 4, 12: 5},
    {"FEMNIST": 2},
    workload={"dataset": "digits", "model": "logistic", "samples_per_client": 20},
)


@pytest.fixture
def context(tmp_path: Path) -> ReproductionContext:
    """Runs without Ray."""

    def run(swept: Experiment, directory: Path) -> list[RunRecords]:
        data = swept.model_dump(mode="json", exclude_unset=True)
        apply_override(data, "cluster.network=in-process")
        local = validated(data, swept.name)
        return [RunRecords(path) for path in run_all(local, directory, where=swept.name, resume=True)]

    return ReproductionContext("small", tmp_path, run, lambda line: None)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> OverheadScale:
    """The scale small is tiny."""
    monkeypatch.setitem(SCALES, "small", TINY)
    return TINY
