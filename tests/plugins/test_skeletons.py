"""``testbed new``: the skeletons run, have tests, and their tests fail if the class does something else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.cli import main
from testbed.errors import ExperimentError
from testbed.experiment import Experiment
from testbed.experiment.inputs import plugin_classes
from testbed.plugins.skeletons import KINDS, check_name, class_name, write
from tests.repository import ROOT
from tests.thoroughness import examples

BROKEN = {
    "selection": [
        ("key=tickets.__getitem__", "key=lambda client: -client"),
        ("max(self.parameters.participants, self.parameters.least_candidates)", "self.parameters.participants"),
    ],
    "aggregation": [
        ("np.minimum(1, self.parameters.clip_norm", "np.minimum(1, 3 * self.parameters.clip_norm"),
        ("if not len(survivors):", "if len(survivors) < 9:"),
    ],
    "workload": [
        ("local -= ", "local += "),
        ("[self.seed, client]", "[client]"),
    ],
}


def pytest_in(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run pytest in a user's folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), "-rf"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_all_that_is_written_passes_its_tests_and_the_linter(tmp_path: Path) -> None:
    for kind in KINDS:
        write(kind, f"my_{kind}", tmp_path)
    done = pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "11 passed" in done.stdout
    rules = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    for command in (["check", *rules], ["format", "--check", *rules]):
        linted = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "."], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert linted.returncode == 0, linted.stdout


def test_the_tests_fail_where_the_class_does_something_else(tmp_path: Path) -> None:
    names = []
    for kind in KINDS:
        for number, (text, instead) in enumerate(BROKEN[kind]):
            names.append(f"{kind}_{number}_broken")
            module, _, _ = write(kind, names[-1], tmp_path)
            assert module.read_text().count(text) == 1
            module.write_text(module.read_text().replace(text, instead))
    done = pytest_in(tmp_path)
    assert [name for name in names if f"FAILED test_{name}.py" not in done.stdout] == [], done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_the_experiment_names_the_class_and_the_command_says_what_to_do_next(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", kind, "two_words", "--out", "mine"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "wrote mine/two_words.py, mine/test_two_words.py and mine/two_words.yaml",
        "  cd mine && python -m pytest test_two_words.py",
        "  cd mine && testbed run two_words.yaml --network in-process --out runs/two_words",
    ]
    named = plugin_classes(Experiment.load("mine/two_words.yaml"))
    assert [name for _, name in named] == ["two_words:TwoWords"]


def test_without_pytest_it_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("testbed.cli.new.first_missing", lambda *modules: modules[0])
    assert main(["new", "workload", "mine", "--out", str(tmp_path)]) == 0
    assert "(pytest is not installed here: python -m pip install pytest)" in capsys.readouterr().out


def test_what_to_do_next_can_be_pasted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "two words"
    assert main(["new", "selection", "mine", "--out", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"  cd '{folder}' && python -m pytest test_mine.py"


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        (
            "selection",
            "ticket",
            "the skeleton uses Ticket for another object; choose another name",
        ),
        ("selection", "experiment", "the skeleton uses Experiment for another object"),
        ("aggregation", "update", "the skeleton uses Update for another object"),
        ("aggregation", "aggregation", "the skeleton uses AggregationParameters for another object"),
        ("workload", "evaluation", "the skeleton uses Evaluation for another object"),
        ("workload", "none", "its class would be None, a keyword of Python"),
    ],
)
def test_a_class_that_would_hide_a_part_of_the_skeleton_is_refused(
    kind: str, name: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", kind, name, "--out", str(tmp_path / "mine")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {name!r}: {says}")
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("there", ["mine.py", "test_mine.py", "mine.yaml"])
def test_nothing_is_overwritten(there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / there).write_text("kept")
    assert main(["new", "workload", "mine", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said == f"error: {tmp_path / there}: exists already; choose another name, or another --out\n"
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "kept"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Mine", "must be a module name"),
        ("my-own", "must be a module name"),
        ("../mine", "must be a module name"),
        ("a" * 61, "must be a module name"),
        ("lambda", "a keyword or a module of Python"),
        ("random", "a keyword or a module of Python"),
        ("numpy", "would be hidden by, or hide, "),
        ("testbed", "would be hidden by, or hide, "),
    ],
)
def test_a_name_that_is_none_is_refused_and_nothing_is_written(
    name: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "selection", name, "--out", str(tmp_path / "mine")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {name!r}: ")
    assert says in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "mine").exists()


def test_a_folder_that_cannot_be_made_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["new", "selection", "mine", "--out", str(tmp_path / "file")]) == 3
    assert capsys.readouterr().err == f"error: {tmp_path / 'file'}: cannot be written: File exists\n"


@settings(max_examples=examples(50))
@given(st.text(max_size=12))
def test_a_name_that_passes_names_a_module_and_a_class(name: str) -> None:
    try:
        check_name(name, Path("/nowhere"))
    except ExperimentError:
        return
    assert name.isidentifier()
    assert class_name(name).isidentifier()
