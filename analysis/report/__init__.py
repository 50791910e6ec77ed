"""One page that says what runs have measured: a file that opens in a browser, without a network.

`document` says what is on it, `render` makes the file: `page/` holds its template, style and scripts, and Plotly draws
the curves. `analysis.live` shows the same page while runs go on.
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
    """Write the report of some runs as one HTML file, and return its path; a file that is there is replaced.

    Args:
        runs: e.g. from `testbed.records.find_runs`; also runs that go on.
        out: the file; folders are made when they are not there.
        targets: texts as of `testbed compare --target`; default: those that the experiments name, else the best
            accuracy that every row reaches.
        baseline: see `analysis.comparison.rows.baselines_of`, which also says what it raises.
        command: the command that makes the report, which then says so.

    Raises:
        ExperimentError: there are no runs, `out` is a folder, or a target is none or does not fit the runs.
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
