"""The page of runs that go on: what has changed is read again, the rest is kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.report.document import Document, RunPart, document, part_of
from analysis.report.rounds import ROWS
from testbed.records import RunRecords

FILES = ("experiment.yaml", "checkpoint.npz", "rounds.parquet", "summary.json")
PRIVACY_TIME_LIMIT_S = 0.3
"""For the T of each run that has gone on: somebody waits for the page."""


def stamp_of(path: Path) -> str:
    """Differs when the run in the directory has recorded something: times and sizes of `FILES`."""
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
    """Makes the page of runs again and again.

    Args:
        targets, baseline: see `analysis.report.write`.
    """

    targets: Sequence[str] = ()
    baseline: str | None = None

    def __post_init__(self) -> None:
        self._parts: dict[Path, RunPart] = {}

    def document(self, paths: Sequence[Path]) -> Document:
        """The page of the runs in these directories as they are now; raises as `analysis.report.write` does."""
        rows = ROWS // max(len(paths), 1)
        kept: dict[Path, RunPart] = {}
        for path in paths:
            stamp, before = stamp_of(path), self._parts.get(path)
            same = before is not None and before.stamp == stamp
            kept[path] = before if before is not None and same else part_of(RunRecords(path), rows, stamp)
        self._parts = kept
        return document(list(kept.values()), self.targets, self.baseline, privacy_time_limit_s=PRIVACY_TIME_LIMIT_S)
