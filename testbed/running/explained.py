"""What misleads in the comparison of runs, for notebooks and scripts."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.records.mirror import runs_below

if TYPE_CHECKING:
    from analysis.findings import Finding


def findings(
    runs: str | Path | Sequence[str | Path], baseline: str | None = None, group_by: Sequence[str] = ()
) -> "list[Finding]":
    """The findings of the runs at or below some directories, the worst first; see `analysis.findings.findings`.

    Args:
        runs: directories, or URIs of them.
        baseline, group_by: as of `compare`, of whose rows the findings have the labels.

    Returns:
        all findings; each has `code`, `text`, `rows` (labels; empty: all rows) and `keys`.

    Raises:
        RunError: there are no runs.
        ExperimentError: one of `group_by` is not a key of theirs.
    """
    from analysis.comparison.time_to_target import targets_beside
    from analysis.findings import findings as found_in

    below = runs_below([runs] if isinstance(runs, str | Path) else runs)
    targets, _ = targets_beside(below, baseline, group_by=group_by)
    return found_in(below, baseline, group_by=group_by, targets=targets)
