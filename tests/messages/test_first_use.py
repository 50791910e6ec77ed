"""Threads may decode a kind of message for the first time at once: a crash of msgspec's would end the process."""

import re
import subprocess
import sys

from tests.repository import ROOT

PROCESSES, KINDS = 3, 60
"""Without the lock 34 of 40 such processes ended with a segmentation fault."""


def test_first_uses_at_once_crash_nothing() -> None:
    command = [sys.executable, "-m", "tests.messages.first_use", str(KINDS)]
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(PROCESSES)
    ]
    ends = [(process.communicate()[1].decode(errors="replace")[-500:], process.returncode) for process in processes]
    assert ends == [("", 0)] * PROCESSES


def test_decoders_are_made_in_one_place() -> None:
    """Whoever makes one elsewhere, or converts with msgspec, is not under the lock."""
    found = [
        (file.relative_to(ROOT).as_posix(), line.strip())
        for package in ("testbed", "cluster", "workloads", "analysis")
        for file in sorted((ROOT / package).rglob("*.py"))
        for line in file.read_text().splitlines()
        if re.search(r"\.Decoder\(|msgspec\.(msgpack|json|yaml|toml)\.decode\(|msgspec\.convert\(", line)
    ]
    assert len(found) == 2
    assert {file for file, _ in found} == {"testbed/messages.py"}
