"""Matplotlib's settings are the user's, not those of a folder that a command is called in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DRAWS = """
import analysis.style, matplotlib
from matplotlib.figure import Figure
print(matplotlib.rcParams["lines.linewidth"], type(matplotlib.__loader__).__name__)
"""


def _printed(folder: Path, **environment: str) -> str:
    command = [sys.executable, "-P", "-c", DRAWS]
    ran = subprocess.run(command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "matplotlibrc" not in ran.stderr
    return ran.stdout.strip()


@pytest.mark.parametrize("planted", [b"\xff\xfe", b"lines.linewidth: 9\n"])
def test_a_file_of_settings_in_the_working_directory_is_not_read(tmp_path: Path, planted: bytes) -> None:
    """One of bytes that are no text ended `testbed plot` and `testbed report`."""
    (tmp_path / "matplotlibrc").write_bytes(planted)
    assert _printed(tmp_path, MPLCONFIGDIR=str(tmp_path / "own")) == "1.5 SourceFileLoader"


def test_the_users_own_settings_are_read(tmp_path: Path) -> None:
    own, records = tmp_path / "own", tmp_path / "records"
    own.mkdir()
    records.mkdir()
    (records / "matplotlibrc").write_text("lines.linewidth: 9\n")
    (own / "matplotlibrc").write_text("lines.linewidth: 3\n")
    empty = str(tmp_path / "empty")
    assert _printed(records, MATPLOTLIBRC=str(own), MPLCONFIGDIR=empty).startswith("3.0 ")
    assert _printed(records, MATPLOTLIBRC=str(own / "matplotlibrc"), MPLCONFIGDIR=empty).startswith("3.0 ")
    assert _printed(records, MPLCONFIGDIR=str(own)).startswith("3.0 ")
