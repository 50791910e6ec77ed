"""What runs no clients works where neither Ray nor torch is installed; what needs them says so in one line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from tests.repository import ROOT

LEFT_OUT = ("ray", "torch", "torchvision")
LOTTO = ["--population", "700", "--dishonest", "70", "--participants", "70"]
CALLS = """
import json, sys
from testbed.commands import main
sys.stdout = sys.stderr
print(json.dumps([main(call) for call in json.loads(sys.argv[1])]), file=sys.__stdout__)
"""
Without = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Without:
    """Runs Python in an environment with everything that this one has but for `LEFT_OUT`."""
    installed = tmp_path_factory.mktemp("installed")
    gone = {"__pycache__", "torchgen", "functorch"}
    for distribution in distributions():
        if distribution.name in LEFT_OUT:
            gone |= {file.parts[0] for file in distribution.files or ()}
    for folder in dict.fromkeys(path for path in sys.path if path.endswith(("site-packages", "dist-packages"))):
        for entry in Path(folder).iterdir():
            if entry.name not in gone and not (installed / entry.name).exists():
                (installed / entry.name).symlink_to(entry)

    def python(*arguments: str) -> "subprocess.CompletedProcess[str]":
        path = os.pathsep.join([str(ROOT), str(installed)])
        return subprocess.run(
            [sys.executable, "-S", *arguments],  # -S: without the site-packages of this environment
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path, "MPLBACKEND": "agg"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return python


def codes(without: Without, calls: Sequence[Sequence[Any]]) -> tuple[list[int], str]:
    """The exit codes of calls of the command, in one process, and all that they have printed."""
    done = without("-c", CALLS, json.dumps([[str(word) for word in call] for call in calls]))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("package", LEFT_OUT)
def test_the_environment_has_none_of_them(without: Without, package: str) -> None:
    done = without("-c", f"import {package}")
    assert f"ModuleNotFoundError: No module named '{package}'" in done.stderr


def test_the_package_and_its_public_names(without: Without) -> None:
    done = without("-c", "import testbed; from testbed import Experiment, compare, run; print(testbed.__version__)")
    assert (done.returncode, done.stderr) == (0, "")


def test_every_help(without: Without) -> None:
    done = without("-c", "from testbed.commands import app; import typer; print(*typer.main.get_command(app).commands)")
    names = done.stdout.split()
    assert {"run", "bound", "compare", "submit"} <= set(names)
    ended, said = codes(without, [["--help"], ["--version"], *([name, "--help"] for name in names)])
    assert set(ended) == {0}, said


def test_what_runs_no_clients(without: Without, written: Callable[..., Path], call: Any, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert call("run", written(), "--out", runs, "--quiet").code == 0
    calls = [
        ["validate", "examples/quickstart.yaml"],
        ["schema"],
        ["status", runs],
        ["compare", runs],
        ["plot", runs, "--out", tmp_path / "figures"],
        ["dropouts", runs],
        ["metrics", runs],
        ["trace", "record", runs, "--out", tmp_path / "dropouts.parquet"],
        ["trace", "inspect", tmp_path / "dropouts.parquet"],
        ["bound", "batch-partition", "--users", "120", "--selected", "12", "--privacy", "6", "--dropout", "0.1"],
        ["bound", "lotto", *LOTTO, "--threshold", "40"],
        ["plan", "lotto", *LOTTO, "--target", "1e-6"],
        ["reproduce", "--list"],
    ]
    ended, said = codes(without, calls)
    assert [(word, code) for word, code in zip(calls, ended, strict=True) if code] == [], said


def test_what_needs_them_says_so(without: Without, written: Callable[..., Path], tmp_path: Path) -> None:
    calls = [
        ["run", written(), "--out", tmp_path / "runs"],
        ["calibrate"],
        ["bound", "privacy", "examples/privacy-budget.yaml"],
        ["jobs", "list"],
        ["cluster", "check"],
    ]
    ended, said = codes(without, calls)
    assert ended == [3, 3, 3, 3, 3]
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    assert [line.split()[1] for line in lines] == ["torch", "torch", "torch", "ray", "ray"]
    assert all("is not installed here" in line for line in lines)
    assert "Traceback" not in said
    assert not (tmp_path / "runs" / "experiment.yaml").exists()
