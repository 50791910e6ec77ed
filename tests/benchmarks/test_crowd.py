"""The benchmark of a crowd, at a small one."""

import json
import subprocess
import sys

import pytest

from benchmarks.report import REQUIRED
from tests.repository import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["lotto-server-centric", "random"])
def test_a_crowd_of_two_thousand(selection: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.crowd", "--population", "2000", "--rounds", "2", "--selection", selection,
         "--format", "json"],
        capture_output=True, text=True, cwd=ROOT, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(REQUIRED) <= result.keys()
    assert result["population"] == 2000
    assert result["cpu_s"] > 0
