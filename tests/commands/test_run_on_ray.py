"""`testbed run` on a Ray that it starts itself: the same records as without Ray."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from testbed.plugins import sources
from testbed.records import RunRecords
from testbed.running import preparation
from tests.fingerprints import fingerprint
from tests.repository import ROOT

pytestmark = pytest.mark.ray
LIGHT = {"dataset": "benchmarks.breaking:Means"}  # without torch, so that hosts start quickly
POINTS = ("random", "lotto-server-centric")
OWN = """
from benchmarks.breaking import Means


class Halves:
    def __init__(self, section, slow=4.0):
        self.slow = slow

    def speed_factors(self, population, generator):
        return [1.0, self.slow] * (population // 2)


class Marked(Means):
    def client_accuracies(self, clients, model):
        return clients / (10 + abs(float(model[0])))
"""


def in_a_process(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Python with these arguments, with `folder` as its working directory."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_a_sweep_on_ray_with_own_code_equals_one_in_this_process(
    call: Callable[..., Any], written: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_phones.py").write_text(OWN)
    devices = {"model": "their_phones:Halves", "options": {"slow": 3.0}}
    workload = {"dataset": "their_phones:Marked", "client_accuracy": True}
    file = written(workload=workload, devices=devices, sweep={"selection.protocol": list(POINTS)})
    done = in_a_process(tmp_path, "-m", "testbed", "run", str(file), "--out", "ray", "--network", "ray", "--hosts", "2")
    assert done.returncode == 0, done.stderr
    assert "lotto-server-centric" in done.stdout
    for point in POINTS:
        assert sum(f"{point}: round " in line for line in done.stderr.splitlines()) == 3
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert call("run", file, "--out", tmp_path / "here").code == 0
    for point in POINTS:
        assert fingerprint(tmp_path / "ray" / point) == fingerprint(tmp_path / "here" / point)
        assert RunRecords(tmp_path / "ray" / point).rounds["client_accuracy_mean"].notna().all()


def test_a_node_with_other_code_than_the_provenance_ends_the_run(
    ray_here: None, call: Callable[..., Any], written: Callable[..., Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """At once, and names the node."""

    def digests(names: Iterable[str]) -> dict[str, str]:
        return sources.digests(names) | {"benchmarks/breaking.py": "of other code"}

    monkeypatch.setattr(preparation, "digests", digests)
    experiment = written(workload=LIGHT, rounds=1)
    ended = call("run", experiment, "--out", tmp_path / "other", "--network", "ray", "--hosts", "1")
    assert ended.code == 2, ended.err
    (line,) = (line for line in ended.errors if line.startswith("error: "))
    assert "your own benchmarks/breaking.py differs from the code where the run was started on node " in line
