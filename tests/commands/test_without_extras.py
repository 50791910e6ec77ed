"""The plain package, without extras: its functions work, and others name the missing extra in one line."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from testbed.cli.invocation import BAD_INPUT
from testbed.extras import PROJECT, install_command
from tests.repository import ROOT

LEFT_OUT = ("ray", "psutil", "aiohttp", "torch", "torchvision", "sklearn")
LOTTO = ["--population", "700", "--dishonest", "70", "--participants", "70"]
CALLS = """
import json, sys
from testbed.cli import main
sys.stdout = sys.stderr
print(json.dumps([main(call) for call in json.loads(sys.argv[1])]), file=sys.__stdout__)
"""
Without = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Without:
    """Runs Python in an environment with the plain package and its dependencies alone, as this environment has them."""
    installed = tmp_path_factory.mktemp("installed")
    kept = {file.parts[0] for name in (*plain_distributions(), PROJECT) for file in distribution(name).files or ()}
    for folder in dict.fromkeys(path for path in sys.path if path.endswith(("site-packages", "dist-packages"))):
        for entry in Path(folder).iterdir():
            if entry.name in kept - {"__pycache__"} and not (installed / entry.name).exists():
                (installed / entry.name).symlink_to(entry)

    def python(*arguments: str, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
        path = os.pathsep.join([str(ROOT), str(installed)])
        return subprocess.run(
            [sys.executable, "-S", *arguments],  # -S: without the site-packages of this environment
            cwd=cwd,
            env=os.environ | {"PYTHONPATH": path, "MPLBACKEND": "agg"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return python


def plain_distributions() -> set[str]:
    """The distributions that installing the package without extras brings, those that they need in turn among them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names: set[str] = set()
    wanted = [Requirement(line) for line in project["dependencies"]]
    while wanted:
        name = canonicalize_name(wanted.pop().name)
        if name in names:
            continue
        names.add(name)
        needed = [Requirement(line) for line in distribution(name).requires or ()]
        wanted += [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return names


def codes(without: Without, calls: Sequence[Sequence[Any]], cwd: Path = ROOT) -> tuple[list[int], str]:
    """The exit codes of calls of the command, in one process, and all that they have printed."""
    done = without("-c", CALLS, json.dumps([[str(word) for word in call] for call in calls]), cwd=cwd)
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
    done = without("-c", "from testbed.cli import app; import typer; print(*typer.main.get_command(app).commands)")
    names = done.stdout.split()
    assert {"run", "bound", "compare", "submit"} <= set(names)
    ended, said = codes(without, [["--help"], ["--version"], *([name, "--help"] for name in names)])
    assert set(ended) == {0}, said


@pytest.fixture(scope="module")
def sensors(without: Without, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example of the how-to, whose clients learn with numpy, and its run in runs/sensors."""
    folder = tmp_path_factory.mktemp("sensors")
    page = (ROOT / "docs/how-to/own-workload.md").read_text()
    for name, content in re.findall(r"```\w+\n# file: (\S+)\n(.*?)```", page, re.DOTALL):
        (folder / name).write_text(content)
    run = ["run", "sensors.yaml", "--network", "in-process", "--out", "runs/sensors", "--quiet"]
    ended, said = codes(without, [["validate", "sensors.yaml", "--import-classes"], run, [*run, "--resume"]], folder)
    assert ended == [0, 0, 0], said
    return folder


def test_what_needs_no_extra(without: Without, sensors: Path) -> None:
    calls = [
        ["validate", ROOT / "examples/quickstart.yaml"],
        ["schema"],
        ["status", "runs"],
        ["compare", "runs"],
        ["plot", "runs", "--out", "figures"],
        ["report", "runs", "--out", "report.html"],
        ["dropouts", "runs"],
        ["metrics", "runs"],
        ["timeline", "runs/sensors"],
        ["trace", "record", "runs", "--out", "dropouts.parquet"],
        ["trace", "inspect", "dropouts.parquet"],
        ["bound", "batch-partition", "--users", "120", "--selected", "12", "--privacy", "6", "--dropout", "0.1"],
        ["bound", "lotto", *LOTTO, "--threshold", "40"],
        ["plan", "lotto", *LOTTO, "--target", "1e-6"],
        ["list", "datasets"],
        ["new", "workload", "mine"],
        ["reproduce", "--list"],
    ]
    ended, said = codes(without, calls, sensors)
    assert [(word, code) for word, code in zip(calls, ended, strict=True) if code] == [], said


def test_what_needs_an_extra_says_which_in_one_line(without: Without, sensors: Path, tmp_path: Path) -> None:
    quickstart = ROOT / "examples/quickstart.yaml"
    learning = [
        ["run", quickstart, "--network", "in-process", "--out", tmp_path / "runs"],
        ["tune", quickstart, "--network", "in-process", "--grid", "workload.learning_rate=0.1"],
        ["calibrate", "--quiet"],
        ["bound", "privacy", "examples/privacy-budget.yaml"],
        ["attack", "membership", sensors / "runs/sensors"],
        ["attack", "property", sensors / "runs/sensors"],
        ["reproduce", "lotto-table2", "--network", "in-process", "--out", tmp_path / "table2", "--quiet"],
    ]
    distributed = [
        ["run", quickstart, "--set", "workload={dataset: benchmarks.breaking:Means}", "--out", tmp_path / "runs"],
        ["submit", quickstart],
        ["jobs", "list"],
        ["jobs", "logs", "job"],
        ["cluster", "check"],
    ]
    for extra, calls in (("torch", learning), ("ray", distributed)):
        ended, said = codes(without, calls)
        lines = [line for line in said.splitlines() if line.startswith("error: ")]
        assert ended == [BAD_INPUT] * len(calls), said
        assert len(lines) == len(calls), said
        assert all(f" needs {extra}: {install_command(extra)}" in line for line in lines), said
        assert "Traceback" not in said
    assert not (tmp_path / "runs").exists()


def test_both_extras_are_one_line(without: Without, tmp_path: Path) -> None:
    ended, said = codes(without, [["run", ROOT / "examples/quickstart.yaml", "--out", tmp_path / "runs"]])
    assert ended == [BAD_INPUT]
    (line,) = said.splitlines()
    assert install_command("all") in line


def test_validate_says_what_this_machine_lacks(without: Without) -> None:
    ended, said = codes(without, [["validate", "examples/quickstart.yaml"]])
    assert ended == [0]
    (line,) = [line for line in said.splitlines() if line.startswith("warning: ")]
    assert install_command("all") in line


def test_python_gets_a_typed_error(without: Without, tmp_path: Path) -> None:
    program = f"""
import testbed
from testbed.errors import ExperimentError
from testbed.extras import MissingExtraError
try:
    testbed.run("examples/quickstart.yaml", out={str(tmp_path / "runs")!r}, network="in-process")
except MissingExtraError as error:
    assert isinstance(error, ExperimentError)
    print(error)
"""
    done = without("-c", program)
    assert install_command("torch") in done.stdout, done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_class_of_the_user_that_imports_torch(without: Without, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import torch\n\n\nclass Mine:\n    pass\n")
    text = "name: mine\nrounds: 1\npopulation: 5\nworkload: {dataset: 'mine:Mine'}\nselection: {participants: 5}\n"
    (tmp_path / "mine.yaml").write_text(text)
    ended, said = codes(without, [["run", "mine.yaml", "--network", "in-process", "--out", "runs"]], tmp_path)
    assert ended == [BAD_INPUT]
    assert install_command("torch") in said
    assert "Traceback" not in said
