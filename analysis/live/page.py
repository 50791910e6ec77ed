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
    stamps = []
    for name in FILES:
        try:
            file_info = (path / name).stat()
            stamps.append(f"{file_info.st_mtime_ns}:{file_info.st_size}")
        except OSError:
            stamps.append("")
    return "/".join(stamps)


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
        current_parts: dict[Path, RunPart] = {}
        for path in paths:
            stamp, before = stamp_of(path), self._parts.get(path)
            same = before is not None and before.stamp == stamp
            current_parts[path] = before if before is not None and same else part_of(RunRecords(path), rows, stamp)
        self._parts = current_parts  # parts of directories that are gone are dropped
        return document(
            list(current_parts.values()), self.targets, self.baseline, privacy_time_limit_s=PRIVACY_TIME_LIMIT_S
        )
