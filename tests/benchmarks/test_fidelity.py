"""The virtual clock against real TCP over links that the kernel limits (root only)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.fidelity.namespaces import PREFIX, Unavailable, check_available
from benchmarks.fidelity.wan import QUICK_CASES, QUICK_LOSSY
from benchmarks.fidelity.wan_rounds import ROUNDS
from tests.repository import ROOT

COMMAND = [sys.executable, "-m", "benchmarks.fidelity"]


def fidelity(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *options], capture_output=True, text=True, cwd=ROOT, timeout=590, check=False)


@pytest.fixture(scope="module")
def kernel_links() -> None:
    """Skips, with the reason, where limited links cannot be made."""
    try:
        check_available()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.usefixtures("kernel_links")
def test_computed_times_and_bytes_agree_with_the_kernels() -> None:
    done = fidelity("--quick", "--format", "json", "--cases", "one at 10 Mbit/s", "server down shared by eight")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["cases"] == 2
    # The bytes do not depend on how busy this machine is; the times do.
    assert result["worst_bytes_error"] < 0.03
    assert result["worst_error"] < 0.5
    assert result["lost_packets"] == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("kernel_links")
def test_the_wire_is_what_it_should_be_and_the_clock_agrees_with_tcp_over_it(tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    done = fidelity("--wan", "--quick", "--format", "json", "--out", str(picture))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["cases"] == QUICK_CASES + QUICK_LOSSY
    assert result["rounds"] == ROUNDS
    # How busy this machine is makes times longer, a little; a window too small or a handshake too few is far off.
    assert result["wire_rate_error"] < 0.05
    assert result["wire_rtt_error"] < 0.5
    assert result["median_error"] < 0.2
    assert result["round_median_error"] < 0.3
    assert picture.read_text().rstrip().endswith("</svg>")


@pytest.mark.slow
@pytest.mark.usefixtures("kernel_links")
@pytest.mark.parametrize("options", [["--cases", "one at 1 Mbit/s"], ["--wan", "--quick"]])
def test_nothing_is_left_behind_by_a_run_or_by_one_that_was_killed(options: list[str]) -> None:
    before = set(os.listdir("/sys/class/net"))
    killed = subprocess.Popen([*COMMAND, *options], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    own = f"{PREFIX}-{killed.pid}-"
    while not any(name.startswith(own) for name in namespaces()):
        assert killed.poll() is None, killed.communicate()[1]
    killed.kill()
    killed.communicate()
    assert any(name.startswith(own) for name in namespaces())
    done = fidelity("--quick", "--cases", "100 B at 100 Mbit/s")
    assert done.returncode == 0, done.stderr
    assert not any(name.startswith(own) for name in namespaces())
    assert set(os.listdir("/sys/class/net")) == before


def namespaces() -> list[str]:
    return os.listdir("/run/netns") if os.path.isdir("/run/netns") else []


def test_an_unknown_case_is_one_line() -> None:
    done = fidelity("--cases", "nothing like it")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "nothing like it" in done.stderr


def test_a_picture_is_of_the_validation_over_distances() -> None:
    done = fidelity("--out", "picture.svg")
    assert done.returncode == 2
    assert "--wan" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_root_it_says_so_in_one_line() -> None:
    as_nobody = "import os; from benchmarks.fidelity.__main__ import main; os.geteuid() or os.setuid(65534); main()"
    done = subprocess.run(
        [sys.executable, "-c", as_nobody], capture_output=True, text=True, cwd=ROOT, timeout=100, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "root" in done.stderr
    assert len(done.stderr.splitlines()) == 1
