"""The page of runs in progress: changed runs are read again, the rest is cached."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.report.document import Document, RunPart, document, part_of
from analysis.report.rounds import ROWS
from testbed.records import RunRecords

FILES = ("experiment.yaml", "checkpoint.npz", "rounds.parquet", "summary.json")
PRIVACY_TIME_LIMIT_S = 0.3
"""Seconds for the T of each run that has progressed; short, because a reader waits for the page."""


def stamp_of(path: Path) -> str:
    """Return a text that differs after the run has recorded something: times and sizes of `FILES`."""
    found = []
    for name in FILES:
        try:
            seen = (path / name).stat()
            found.append(f"{seen.st_mtime_ns}:{seen.st_size}")
        except OSError:
            found.append("")
    return "/".join(found)


@dataclass
class LivePage:
    """Repeatedly makes the page of runs.

    Args:
        targets, baseline: as for `analysis.report.write`.
    """

    targets: Sequence[str] = ()
    baseline: str | None = None

    def __post_init__(self) -> None:
        self._parts: dict[Path, RunPart] = {}

    def document(self, paths: Sequence[Path]) -> Document:
        """Return the current page of the runs in these directories.

        Raises:
            ExperimentError, RunError: as `analysis.report.write`.
        """
        rows = ROWS // max(len(paths), 1)
        kept: dict[Path, RunPart] = {}
        for path in paths:
            stamp, before = stamp_of(path), self._parts.get(path)
            same = before is not None and before.stamp == stamp
            kept[path] = before if before is not None and same else part_of(RunRecords(path), rows, stamp)
        self._parts = kept
        return document(list(kept.values()), self.targets, self.baseline, privacy_time_limit_s=PRIVACY_TIME_LIMIT_S)
