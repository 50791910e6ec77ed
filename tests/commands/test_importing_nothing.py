"""Commands that read say what they did not import, and import it when they are told to.

That none runs anything is in test_reading_runs_nothing.py.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.usefixtures("quick_fonts")
SECTIONS = {
    "selection.protocol": {"selection": {"protocol": "evil:Anything", "participants": 4}},
    "workload.dataset": {"workload": {"dataset": "evil:Anything"}},
}
NOISE = {"protocol": "plain", "weights": "equal", "noise": {"noise_multiplier": 2.0}}
Call = Callable[..., Any]


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is there once `evil` has been imported; it could be, from the path and from the working directory."""
    mark = tmp_path / "imported"
    (tmp_path / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()\n\nclass Anything:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    return mark


@pytest.fixture
def run(call: Call, written: Callable[..., Path], tmp_path: Path) -> Path:
    """A run with everything that the commands read."""
    changes = {"rounds": 3, "aggregation": NOISE, "records": {"aggregates": "all"}}
    assert call("run", written(**changes), "--out", tmp_path / "run", "--quiet").code == 0
    return tmp_path / "run"


def test_privacy_says_what_was_spent_without_them(call: Call, run: Path, mark: Path) -> None:
    before = call("privacy", run).out.splitlines()
    file = run / "experiment.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | SECTIONS["selection.protocol"]))
    ended = call("privacy", run)
    assert ended.code == 0
    assert ended.err.startswith("note: small: user-defined classes, which are not imported")
    assert ended.out.splitlines()[1:6] == before[1:6]
    assert "guarantee" not in ended.out
    rows = json.loads(call("privacy", run, "--format", "json").out)
    assert rows[0]["guarantees"] is None
    assert not mark.exists()


def test_with_the_flag_they_are_imported(call: Call, run: Path, mark: Path) -> None:
    file = run / "experiment.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | SECTIONS["workload.dataset"]))
    ended = call("attack", "reconstruct", run, "--from", 1, "--to", 2)
    assert ended.code == 2
    assert ended.err == (
        "error: workload.dataset: evil:Anything: a user-defined class, whose module is not imported here unless "
        "you trust it and give --import-classes (in Python: importing_classes(True))\n"
    )
    assert not mark.exists()
    call("attack", "reconstruct", run, "--from", 1, "--to", 2, "--import-classes")
    assert mark.exists()
