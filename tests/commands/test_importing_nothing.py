"""Reading records runs no code that they name: a module that leaves a mark when it is imported, and no mark."""

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
    "aggregation.protocol": {"aggregation": {"protocol": "evil:Anything"}},
    "workload.dataset": {"workload": {"dataset": "evil:Anything"}},
    "availability.model": {"availability": {"model": "evil:Anything"}},
    "devices.model": {"devices": {"model": "evil:Anything"}},
    "links.model": {"links": {"model": "evil:Anything"}},
    "adversary.server": {"adversary": {"dishonest": 1, "server": ["evil:Anything"]}},
}
COMMANDS = [
    ["compare"], ["timeline"], ["status"], ["status", "--format", "json"], ["metrics"], ["plot"], ["dropouts"],
    ["privacy"],
    ["attack", "summary"], ["attack", "reconstruct", "--from", "1", "--to", "2"],
    ["attack", "invert", "--round", "1", "--client", "1"],
]  # fmt: skip
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


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_that_reads_records_imports_what_they_name(
    call: Call, run: Path, mark: Path, command: list[str]
) -> None:
    file = run / "experiment.yaml"
    experiment = yaml.safe_load(file.read_text())
    for key, changed in SECTIONS.items():
        file.write_text(yaml.safe_dump(experiment | changed))
        ended = call(*command, run)
        assert not mark.exists(), (key, ended.err)
        assert ended.code in (0, 2), ended.err
        if ended.code == 2:
            (line,) = ended.err.splitlines()
            assert "--import-classes" in line or command[1] in ("invert", "summary", "reconstruct"), line
        elif command == ["privacy"] and "--import-classes" in ended.err:
            assert len(ended.err.splitlines()) == 1


def test_privacy_says_what_was_spent_without_them(call: Call, run: Path, mark: Path) -> None:
    before = call("privacy", run).out.splitlines()
    file = run / "experiment.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | SECTIONS["selection.protocol"]))
    ended = call("privacy", run)
    assert ended.code == 0
    assert ended.err.startswith("note: small: name user-defined classes, whose modules are not imported")
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
        "you trust it and give --import-classes\n"
    )
    assert not mark.exists()
    call("attack", "reconstruct", run, "--from", 1, "--to", 2, "--import-classes")
    assert mark.exists()
