"""Commits of kept results: each must exist in the checkout."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from analysis.reproduction.kept import KeptResult


def unknown_commits(outcomes: Sequence[KeptResult], checkout: Path) -> list[str]:
    """List the results whose commit is missing, had changes or is not in the checkout's history, one line each.

    Args:
        outcomes: results.
        checkout: folder of the checkout. Without git, or with a shallow history, no commit is looked up.
    """
    if shutil.which("git") is None or _git(checkout, "rev-parse", "--is-shallow-repository") != "false":
        return []
    lines = []
    for outcome in outcomes:
        commit = outcome.origin.git_commit or ""
        if not commit or commit.endswith("-dirty") or _git(checkout, "cat-file", "-t", commit) != "commit":
            lines.append(f"{outcome.name}: commit {commit or '(none)'}: not in this repository; run it again")
    return lines


def _git(checkout: Path, *arguments: str) -> str:
    """Return git's answer, or nothing if git refuses."""
    command = ["git", "-C", str(checkout), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
