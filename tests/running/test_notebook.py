"""Runs in a real kernel: progress, the table of a directory, errors in one line, tracebacks on request."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from nbclient import NotebookClient

from testbed.errors import ExperimentError
from testbed.running import Observer, run
from testbed.running.notebook import NotebookProgress, RunsPath, in_notebook

SMALL: dict[str, Any] = {
    "name": "<b>small",
    "seed": 3,
    "rounds": 2,
    "population": 8,
    "workload": {"dataset": "digits", "model": "logistic"},
    "selection": {"participants": 4},
    "aggregation": {"protocol": "plain"},
    "cluster": {"network": "in-process"},
    "sweep": {"seed": [1, 2]},
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    return path


def outputs(folder: Path, *cells: str) -> list[list[Any]]:
    """Return the output of the cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=200, allow_errors=True, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell.outputs for cell in notebook.cells]


def test_a_notebook_shows_progress_the_table_and_errors_in_one_line(small: Path, tmp_path: Path) -> None:
    progress, table, again, debugged, own = outputs(
        tmp_path,
        "from testbed import run\nruns = run('small.yaml', out='runs')",
        "runs",
        "run('small.yaml', out='runs')",
        "run('small.yaml', out='runs', debug=True)",
        "from testbed.running import Observer\nother = run('small.yaml', out='other', observer=Observer())",
    )
    (shown,) = progress
    assert "<progress value='2' max='2'" in shown.data["text/html"]
    assert "seed=2" in shown.data["text/html"]
    (shown,) = table
    assert shown.data["text/html"].count("2 completed") == 2
    (error,) = again
    (line,) = error.traceback
    assert line.startswith("error: ")
    assert "already holds a run" in line
    (error,) = debugged
    assert any("Traceback" in line for line in error.traceback)
    assert own == []


def test_the_directory_is_a_path_like_any_other(small: Path, tmp_path: Path) -> None:
    directory = run(small, out=tmp_path / "runs")
    assert isinstance(directory, RunsPath)
    assert directory == tmp_path / "runs"
    assert str(directory / "seed=1") == str(tmp_path / "runs" / "seed=1")
    assert "summary.json" in str(next(directory.rglob("summary.json")))
    assert RunsPath(small)._repr_html_() is None
    assert "<b>" not in str(directory._repr_html_())


@pytest.mark.parametrize("told", ["", "[1]", "3", '{"final_accuracy": "x"}', '{"mean_round_s": []}'])
def test_a_damaged_summary_is_left_out(tmp_path: Path, told: str) -> None:
    for name, text in (("damaged", told), ("whole", '{"label": "whole", "final_accuracy": 0.5}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(text)
    shown = RunsPath(tmp_path)._repr_html_()
    assert shown is not None
    assert "<td>50.0 %</td>" in shown
    assert shown.count("<tr>") == 2  # its head, and the run that can be read


def test_names_are_text_in_progress(small: Path, tmp_path: Path) -> None:
    small.write_text(yaml.safe_dump(SMALL | {"sweep": {}}))
    shown: list[str] = []

    class Keeps(NotebookProgress):
        def _show(self) -> None:
            shown.append(self.html())

    run(small, out=tmp_path / "one", observer=Keeps())
    assert "<b>" not in "".join(shown)
    assert "&lt;b&gt;small" in shown[-1]
    assert "2/2" in shown[-1]
    assert "accuracy" in shown[-1]


def test_elsewhere_there_is_no_notebook() -> None:
    assert not in_notebook()
    assert isinstance(NotebookProgress(), Observer)


def test_display_of_an_error_in_ipython(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ExperimentError("a: \x1b[31m is wrong\nb: too")
    assert error._render_traceback_() == ["error: a: \\x1b[31m is wrong", "error: b: too"]
    monkeypatch.setenv("TESTBED_DEBUG", "1")
    assert error._render_traceback_()[-1] == "b: too"
