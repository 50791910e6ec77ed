"""The log of a run: every line whole, from several processes, and never a reason for a run to end."""

import json
import os
import resource
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import RunError
from testbed.records.log import RunLog

WRITER = """
import sys
from pathlib import Path
from testbed.records.log import RunLog
log = RunLog(Path(sys.argv[1]))
sys.stdin.readline()  # all begin together
for number in range(200):
    log.write("round-ended", writer=int(sys.argv[2]), round=number, note="x" * 3000)
"""


def test_entries_come_back_in_order_with_their_time(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    assert log.read() == []
    before = datetime.now(UTC)
    assert log.write("run-started", rounds=3)
    assert log.write("round-ended", round=1, outcome="completed", wall_s=0.25)
    after = datetime.now(UTC)
    first, second = log.read()
    assert (first["event"], first["rounds"]) == ("run-started", 3)
    assert {key: second[key] for key in ("event", "round", "outcome", "wall_s")} == {
        "event": "round-ended", "round": 1, "outcome": "completed", "wall_s": 0.25
    }  # fmt: skip
    times = [datetime.fromisoformat(entry["time"]) for entry in (first, second)]
    assert all(time.utcoffset().total_seconds() == 0 for time in times)
    assert before.replace(microsecond=before.microsecond // 1000 * 1000) <= times[0] <= times[1] <= after


def test_every_line_is_json_of_its_own(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.write("run-failed", error="two\nlines and a \udc80 that is no text", path=tmp_path)
    log.write("round-ended", survivors=np.int64(4), accuracy=np.float32("nan"), stages={1: np.array([1.5, np.inf])})
    lines = (tmp_path / "log.jsonl").read_text().splitlines()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    failed, ended = (json.loads(line, parse_constant=refuse) for line in lines)
    assert failed["error"].startswith("two\nlines")
    assert failed["path"] == str(tmp_path)
    assert (ended["survivors"], ended["accuracy"], ended["stages"]) == (4, None, {"1": [1.5, None]})


@given(cut=st.integers(0, 200), again=st.booleans())
def test_a_torn_line_is_left_out_and_spoils_no_other(
    cut: int, again: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = RunLog(tmp_path_factory.mktemp("log"))
    log.write("run-started", note="ä" * 20)
    whole = log.path.read_bytes()
    log.write("round-ended", note="ö" * 60)
    last = log.path.read_bytes()[len(whole) :]
    kept = min(cut, len(last))
    log.path.write_bytes(whole + last[:kept])
    if again:
        assert log.write("run-resumed")
    expected = ["run-started"] + ["round-ended"] * (kept >= len(last) - 1) + ["run-resumed"] * again
    assert [entry["event"] for entry in log.read()] == expected


def test_processes_that_write_together_tear_no_line(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(number)], stdin=subprocess.PIPE)
        for number in range(3)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"\n")
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    entries = RunLog(tmp_path).read()
    lines = (tmp_path / "log.jsonl").read_bytes().splitlines()
    assert sum(line != b"" for line in lines) == len(entries) == 600
    for number in range(3):
        assert [entry["round"] for entry in entries if entry["writer"] == number] == list(range(200))


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    assert not RunLog(tmp_path / "gone").write("round-ended", round=1)
    assert not (tmp_path / "gone").exists()


def test_a_full_disk_ends_nothing(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    assert log.write("run-started")
    full = len(log.path.read_bytes()) + 10  # the kernel writes so much of the next line, and then no more
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (full, limits[1]))
    try:
        assert not log.write("round-ended", round=1)
        assert not log.write("round-ended", round=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert os.path.getsize(log.path) == full
    assert log.write("round-ended", round=3)
    assert [entry.get("round") for entry in log.read()] == [None, 3]


def test_a_log_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.path.mkdir()
    with pytest.raises(RunError, match=r"log\.jsonl: cannot read") as caught:
        log.read()
    assert "\n" not in str(caught.value)
