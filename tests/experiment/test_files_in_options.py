"""Files that options of user-defined code name are inputs of a run."""

from pathlib import Path

import pytest

from testbed.errors import ExperimentError
from testbed.experiment.inputs import check_unchanged, digests
from testbed.experiment.schema import validated
from tests.messages_named import naming


def test_a_file_in_options_is_digested_and_may_not_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d.csv").write_text("a,label\n1,0\n")
    given = {"filepath_or_buffer": "d.csv", "sep": ",", "names": ["a" * 5000, "\0"], "nested": {"more": ["e.csv"]}}
    experiment = validated({"workload": {"dataset": "pandas:read_csv", "model": "x.y:Z", "options": given}}, "test")
    recorded = digests(experiment)
    assert list(recorded) == ["d.csv"]
    check_unchanged(recorded, experiment, "run")
    Path("d.csv").write_text("a,label\n1,1\n")
    with pytest.raises(ExperimentError, match=naming("run", "--resume", "d.csv")):
        check_unchanged(recorded, experiment, "run")
