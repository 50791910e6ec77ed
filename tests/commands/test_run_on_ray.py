"""`testbed run` on a Ray that it starts itself: the same records as without Ray."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fingerprints import fingerprint


@pytest.mark.ray
def test_a_sweep_on_ray_equals_one_in_this_process(
    call: Callable[..., Any],
    written: Callable[..., Path],
    tmp_path: Path,
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


OWN = """
class Halves:
    def __init__(self, section, slow=4.0):
        self.slow = slow

    def speed_factors(self, population, generator):
        return [1.0, self.slow] * (population // 2)
"""
OTHER_CODE = """
import sys
from testbed.plugins import sources
from testbed.commands import main
from testbed.running import preparation

preparation.digests = lambda names: {name: "of other code" for name in sources.digests(names)}
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.ray
def test_own_code_on_ray_is_that_of_the_provenance(written: Callable[..., Path], tmp_path: Path) -> None:
    """In the working directory, as on one machine; a node with other code than the driver's ends the run at once."""
    (tmp_path / "their_phones.py").write_text(OWN)
    file = written(devices={"model": "their_phones:Halves", "options": {"slow": 3.0}}, rounds=1)
    arguments = ["run", str(file), "--hosts", "2", "--network"]
    ended = {}
    for name, start, network in (
        ("here", ["-m", "testbed"], "in-process"),
        ("ray", ["-m", "testbed"], "ray"),
        ("other", ["-c", OTHER_CODE], "ray"),
    ):
        command = [sys.executable, *start, *arguments, network, "--out", name]
        ended[name] = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended["here"].returncode, ended["ray"].returncode) == (0, 0), ended["ray"].stderr
    assert fingerprint(tmp_path / "here") == fingerprint(tmp_path / "ray")
    assert ended["other"].returncode == 2
    (line,) = (line for line in ended["other"].stderr.splitlines() if line.startswith("error: "))
    assert "your own their_phones.py is other code than where the run was started on node " in line
