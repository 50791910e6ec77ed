"""`testbed run` on a Ray that it starts itself: the same records as without Ray."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.ray
def test_a_sweep_on_ray_equals_one_in_this_process(
    call: Callable[..., Any],
    written: Callable[..., Path],
    tmp_path: Path,
    fingerprint: Callable[[Path], dict[str, Any]],
) -> None:
    file = written(sweep={"selection.protocol": ["random", "lotto-server-centric"]})
    command = [sys.executable, "-m", "testbed", "run", str(file), "--out", str(tmp_path / "ray")]
    done = subprocess.run([*command, "--network", "ray", "--hosts", "2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "lotto-server-centric" in done.stdout
    for point in ("random", "lotto-server-centric"):
        assert sum(f"{point}: round " in line for line in done.stderr.splitlines()) == 3
    assert call("run", file, "--out", tmp_path / "here").code == 0
    for point in ("random", "lotto-server-centric"):
        assert fingerprint(tmp_path / "ray" / point) == fingerprint(tmp_path / "here" / point)
