"""The user's own code in a run's provenance: the modules that run are recorded, and changed ones are not resumed."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import run
from testbed.errors import ExperimentError
from testbed.plugins import sources as own_sources
from testbed.records import RunRecords
from tests.messages_named import naming
from tests.observers import StopIn
from tests.repository import ROOT

SELECTION = """
from their_lib.inner import order
from . import beside
from testbed.selection.random_selection import RandomSelection
import numpy, {other}


class Mine(RandomSelection):
    def choose(self, present, round_):
        return order(present)[: self.parameters.participants]
"""
FILES = {
    "their_lib/__init__.py": "",
    "their_lib/selection.py": SELECTION.format(other="their_other"),
    "their_lib/inner.py": "import numpy as np\n\n\ndef order(present):\n    return np.sort(present)\n",
    "their_lib/beside.py": "",
    "their_lib/unrelated.py": "raise SystemExit\n",
    "their_other.py": "",
    "their_devices.py": "class Two:\n    def __init__(self, section): ...\n"
    "    def speed_factors(self, population, generator): return [2.0] * population\n",
}
MODULES = {name for name in FILES if "unrelated" not in name}
EXPERIMENT = {
    "name": "own", "seed": 3, "rounds": 4, "population": 8,
    "workload": {"dataset": "digits", "model": "logistic"},
    "selection": {"protocol": "their_lib.selection:Mine", "participants": 4},
    "aggregation": {"protocol": "plain"},
    "devices": {"model": "their_devices:Two"},
    "time": {"compute": "modelled"},
    "cluster": {"network": "in-process"},
}  # fmt: skip


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0].startswith("their_")]:
        del sys.modules[name]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a folder on the path with user-defined modules; each process has its own memory of imported ones."""
    folder = tmp_path / "library"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(own_sources, "_as_imported", {})
    yield folder
    forget()


@pytest.fixture
def another_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def another_process() -> None:
        forget()
        monkeypatch.setattr(own_sources, "_as_imported", {})

    return another_process


def written(tmp_path: Path, **changes: Any) -> Path:
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT | changes))
    return file


def provenance(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((path / "experiment.yaml").read_text())["provenance"])


def test_the_modules_of_a_class_and_their_local_imports_are_recorded(library: Path) -> None:
    """Nothing is imported to find out."""
    before = set(sys.modules)
    found = own_sources.sources(["their_lib.selection:Mine", "their_devices:Two", "random:Random", "workloads:X"])
    assert found == {name: library / name for name in sorted(MODULES)}
    assert not [name for name in set(sys.modules) - before if name.startswith("their_")]


def test_of_an_installed_package_its_own_modules_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages"
    for name in ("their_one/__init__.py", "their_one/part.py", "their_neighbour.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("import their_neighbour, their_one.part\n")
    monkeypatch.syspath_prepend(folder)
    assert list(own_sources.sources(["their_one:X"])) == ["their_one/__init__.py", "their_one/part.py"]


def test_digests_are_recorded(library: Path, tmp_path: Path) -> None:
    out = run(written(tmp_path), out=tmp_path / "out")
    recorded = provenance(out)
    assert recorded["modules"] == {
        name: hashlib.sha256((library / name).read_bytes()).hexdigest() for name in sorted(MODULES)
    }
    assert str(tmp_path) not in str(recorded["modules"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("their_lib/inner.py", "def order(present):\n    return present[::-1]\n"),
        ("their_lib/inner.py", None),
        ("their_devices.py", FILES["their_devices.py"].replace("2.0", "3.0")),
    ],
)
def test_a_run_with_changed_code_is_not_resumed(
    name: str, text: str | None, library: Path, tmp_path: Path, another_process: Callable[[], None]
) -> None:
    file, out = written(tmp_path), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(file, out=out, observer=StopIn(3))
    another_process()
    if text is None:
        (library / name).unlink()
    else:
        (library / name).write_text(text)
    before = (out / "experiment.yaml").read_bytes()
    with pytest.raises(ExperimentError) as refused:
        run(file, out=out, resume=True)
    assert str(refused.value) == (
        f"{out}: --resume: your own {name} changed since this run began; restore the recorded version, "
        "give another --out, or insist with --accept-changed-code, which the run records"
    )
    assert (out / "experiment.yaml").read_bytes() == before
    (library / name).write_text(FILES[name])
    run(file, out=out, resume=True)
    assert "changed_code" not in provenance(out)


def test_insisting_is_recorded(library: Path, tmp_path: Path, another_process: Callable[[], None]) -> None:
    file, out = written(tmp_path), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(file, out=out, observer=StopIn(3))
    another_process()
    (library / "their_lib/inner.py").write_text("def order(present):\n    return present[::-1][:4][::-1]\n")
    with pytest.raises(KeyboardInterrupt):
        run(file, out=out, resume=True, accept_changed_code=True, observer=StopIn(4))
    another_process()
    run(file, out=out, resume=True)  # nothing has changed since
    recorded = provenance(out)
    (change,) = recorded["changed_code"]
    assert (change["after_round"], change["changed"]) == (2, ["their_lib/inner.py"])
    assert change["modules"] == own_sources.digests(["their_lib.selection:Mine", "their_devices:Two"])
    assert recorded["modules"]["their_lib/inner.py"] != change["modules"]["their_lib/inner.py"]
    records = RunRecords(out)
    events = records.frame("events").query("kind == 'changed-code'")
    assert events["round"].tolist() == [3]
    assert events["detail"].tolist() == ["resumed with changed their_lib/inner.py"]
    took_part = records.frame("participation").groupby("round")["client"].apply(list).tolist()
    assert took_part == [[0, 1, 2, 3]] * 2 + [[4, 5, 6, 7]] * 2


def test_a_file_that_has_changed_since_it_was_imported_is_told(library: Path, tmp_path: Path) -> None:
    """In a notebook: the old code would run, and the digest be the new one's."""
    run(written(tmp_path), out=tmp_path / "one")
    (library / "their_devices.py").write_text(FILES["their_devices.py"].replace("2.0", "3.0"))
    with pytest.raises(ExperimentError, match=naming("their_devices.py")):
        run(written(tmp_path), out=tmp_path / "two")
    assert not (tmp_path / "two").exists()


def test_the_option_goes_with_resume(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "testbed", "run", str(written(tmp_path)), "--accept-changed-code"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: --accept-changed-code: needs --resume; give --resume, too\n"


def test_a_node_with_other_code_is_refused(library: Path) -> None:
    names = ["their_lib.selection:Mine", "their_devices:Two"]
    wanted = own_sources.digests(names)
    own_sources.check_same(wanted, names, "node a")
    (library / "their_lib/inner.py").write_text("")
    (library / "their_devices.py").unlink()
    with pytest.raises(ExperimentError, match=naming("their_devices.py", "missing", "node a")):
        own_sources.check_same(wanted, names, "node a")
    (library / "their_devices.py").write_text(FILES["their_devices.py"])
    with pytest.raises(ExperimentError, match=naming("inner.py", "node a")):
        own_sources.check_same(wanted, names, "node a")


def test_modules_of_the_working_directory_are_recorded_before_anything_is_imported(library: Path) -> None:
    """The `testbed` command does not have the working directory on its path, as ``python -m`` does."""
    (library / "experiment.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    program = "import sys; from testbed.cli import main; sys.exit(main())"
    command = [sys.executable, "-P", "-c", program, "run", "experiment.yaml", "--out", "out", "--quiet"]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = kept | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=library, env=environment, check=True, capture_output=True)
    assert set(RunRecords(library / "out").experiment["provenance"]["modules"]) == MODULES
    (library / "their_other.py").write_text("changed = True\n")
    resumed = subprocess.run([*command, "--resume"], cwd=library, env=environment, capture_output=True, text=True)
    assert resumed.returncode == 2
    assert "--resume: your own their_other.py changed since this run began" in resumed.stderr
