"""Report of runs as one page: a file that opens in a browser, without a network.

`document` collects its content, `render` makes the file: `page/` has its template, style and scripts, and Plotly draws
the curves. `analysis.live` serves the same page while runs are in progress.
"""

from collections.abc import Sequence
from pathlib import Path

from analysis.report.document import document, part_of
from analysis.report.render import render
from analysis.report.rounds import ROWS
from testbed.errors import ExperimentError, RunError
from testbed.files.atomic import atomic_write
from testbed.records import RunRecords

__all__ = ["write"]


def write(
    runs: Sequence[RunRecords],
    out: Path,
    targets: Sequence[str] = (),
    baseline: str | None = None,
    *,
    command: str = "",
) -> Path:
    """Write the report of some runs as one HTML file, replacing an existing file, and return its path.

    Args:
        runs: e.g. from `testbed.records.find_runs`; runs may be in progress.
        out: the file; missing folders are created.
        targets: texts as for `testbed compare --target`; default: the targets of the experiments, otherwise the best
            accuracy that every row reaches.
        baseline: as for `analysis.comparison.rows.baselines_of`.
        command: the command that makes the report, for display on it.

    Raises:
        ExperimentError: there are no runs, `out` is a folder, the baseline is unknown, or a target is invalid or does
            not fit the runs.
        RunError: records are damaged, or the file cannot be written.
    """
    if out.is_dir():
        raise ExperimentError(f"{out} is a folder; give a file in it, say {out / 'report.html'}")
    parts = [part_of(run, ROWS // max(len(runs), 1)) for run in runs]
    page = render(document(parts, targets, baseline, command=command, folder=out.parent))
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(out, lambda why: RunError(f"{out}: cannot be written: {why}")) as file:
        file.write(page.encode())
    return out
