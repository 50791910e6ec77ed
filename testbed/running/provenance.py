"""Where a run's numbers come from: software versions, commit, machine. No names of hosts or users, no paths."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from testbed.version import VERSION

_PACKAGES = ("ray", "torch", "numpy")


def provenance() -> dict[str, Any]:
    """Plain data for a run's ``experiment.yaml``: ``versions``, ``git_commit``, ``machine`` and ``started``.

    ``git_commit`` is None when the testbed does not run from a checkout; ``-dirty`` at its end says that tracked
    files were changed. ``machine.memory_bytes`` is physical memory. ``started`` is the time now, in UTC.
    """
    return {
        "versions": _versions(),
        "git_commit": _git_commit(Path(__file__).resolve().parents[2]),
        "machine": {"cpus": os.cpu_count(), "processor": _processor(), "memory_bytes": _memory_bytes()},
        "started": now(),
    }


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"testbed": VERSION, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def _git_commit(checkout: Path) -> str | None:
    # Only the testbed's own checkout: an installed testbed may well lie inside a repository of the user's.
    if not (checkout / ".git").exists():
        return None
    describe = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(describe, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
