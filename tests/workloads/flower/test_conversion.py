"""`testbed flower` refuses in one line that names its own options."""

import sys
from pathlib import Path

import pytest

from testbed.cli import main


@pytest.mark.parametrize("python", ["no-such-interpreter", sys.executable])
def test_a_folder_that_is_not_there_is_said_first(
    python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing interpreter, or one without flwr, was said in place of it."""
    absent = tmp_path / "absent"
    assert main(["flower", str(absent), "--python", python]) == 2
    assert capsys.readouterr().err.startswith(f"error: {absent}: no such folder; name the folder of a Flower app, or")
    absent.write_text("")
    assert main(["flower", str(absent), "--python", python]) == 2
    assert capsys.readouterr().err.startswith(f"error: {absent}: not a folder; ")


def test_the_interpreter_is_chosen_by_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for python in (str(tmp_path / "absent"), sys.executable):  # no interpreter, and one without flwr
        assert main(["flower", str(tmp_path), "--python", python]) == 2
        error = capsys.readouterr().err
        assert "--python" in error
        assert "workload.flower.python" not in error


def test_the_help_breaks_no_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flower", "--help"]) == 0
    assert "configuration. Then up to 100 clients train once" in capsys.readouterr().out
