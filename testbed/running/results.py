"""What runs tell when they have ended: the summary of one, the overhead table of several.

`analysis` takes a second to import (pandas, scipy), so it is imported when it is first needed, and only here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.records import RunRecords, find_runs
from testbed.records.mirror import fetched

if TYPE_CHECKING:
    import pandas


def summary(run: RunRecords) -> dict[str, Any]:
    """What ``summary.json`` says of a finished run; see `analysis.comparison.summary.summarise`."""
    from analysis.comparison.summary import summarise

    return summarise(run)


def compare(runs: str | Path | Sequence[str | Path], baseline: str | None = None) -> "pandas.DataFrame":
    """The overhead table of the runs at or below some directories; see `analysis.comparison.overhead.compare`.

    Raises `RunError` when there are no runs and `ExperimentError` for a baseline that is not among them.
    """
    from analysis.comparison import overhead

    return overhead.compare(runs_below([runs] if isinstance(runs, str | Path) else runs), baseline)


def runs_below(directories: Sequence[str | Path]) -> list[RunRecords]:
    """The runs at or below the directories (or URIs), each once; raises `RunError` for a directory without any."""
    found = {run.path.resolve(): run for directory in directories for run in find_runs(fetched(directory))}
    return list(found.values())
