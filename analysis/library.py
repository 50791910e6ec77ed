"""Results of runs for notebooks, scripts and `testbed run`: tables, findings and the page, by directories.

`from testbed import compare, compare_targets, findings, report` are services of this module. Libraries that take
seconds to import (pandas, matplotlib) are imported when a function is called.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.records.mirror import runs_below

__all__ = ["compare", "compare_targets", "findings", "report"]

if TYPE_CHECKING:
    import pandas

    from analysis.findings import Finding
    from testbed.records import RunRecords


def compare(
    runs: str | Path | Sequence[str | Path], baseline: str | None = None, group_by: Sequence[str] = ()
) -> "pandas.DataFrame":
    """Return the overhead table of runs (`analysis.comparison.overhead.compare`).

    Args:
        runs: a directory, or several; all runs at or below them are compared.
        baseline: label, protocol or directory of the row that ratios refer to; None: the first row.
        group_by: swept keys whose values are settings with a baseline of their own.

    Returns:
        One row per protocol and setting; docs/reference/comparison.md lists the columns.

    Raises:
        RunError: there are no runs.
        ExperimentError: the baseline or a key is not among the runs.

    Example:
        >>> from testbed import Experiment, compare, run
        >>> sweep = {"aggregation.protocol": ["plain", "secagg"]}
        >>> experiment = Experiment(rounds=1, population=6, selection={"participants": 3}, sweep=sweep)
        >>> table = compare(run(experiment, out="runs/compared", network="in-process"), baseline="plain")
        >>> table[["label", "client_bytes_ratio"]].round(2).values.tolist()
        [['plain', 1.0], ['secagg', 1.02]]
    """
    from analysis.comparison import overhead

    return overhead.compare(runs_below([runs] if isinstance(runs, str | Path) else runs), baseline, group_by=group_by)


def report(
    runs: str | Path | Sequence[str | Path],
    out: str | Path = "report.html",
    targets: Sequence[str] = (),
    baseline: str | None = None,
) -> Path:
    """Write the HTML report of runs (`analysis.report.write`), and return its path.

    Args:
        runs: a directory, or several; all runs at or below them are reported.
        out: the file to write.
        targets: such as ``80%`` of accuracy or ``loss<0.3``.
        baseline: see `compare`.

    Raises:
        RunError: there are no runs.
        ExperimentError: the baseline or a target is unsuitable, or `out` is a folder.

    Example:
        >>> from testbed import Experiment, report, run
        >>> experiment = Experiment(rounds=1, population=6, selection={"participants": 3})
        >>> report(run(experiment, out="runs/first", network="in-process"), "first.html").name
        'first.html'
    """
    from analysis.report import write

    return write(runs_below([runs] if isinstance(runs, str | Path) else runs), Path(out), targets, baseline)


def compare_targets(
    runs: str | Path | Sequence[str | Path],
    targets: Sequence[str] | None = None,
    baseline: str | None = None,
    smooth: int = 1,
) -> "pandas.DataFrame":
    """Return time, rounds and traffic until targets (`analysis.comparison.time_to_target.compare_targets`).

    Args:
        runs: a directory, or several; all runs at or below them are compared.
        targets: such as ``80%``; None: the best value that all runs reach.
        baseline: see `compare`.
        smooth: number of evaluations that a moving average takes.

    Returns:
        One row per protocol, setting and target; docs/reference/comparison.md lists the columns.

    Raises:
        RunError: there are no runs.
        ExperimentError: a target is invalid or was not measured.

    Example:
        >>> from testbed import Experiment, compare_targets, run
        >>> digits = {"dataset": "digits", "model": "logistic"}
        >>> experiment = Experiment(seed=1, rounds=3, population=6, workload=digits, selection={"participants": 3})
        >>> table = compare_targets(run(experiment, out="runs/digits", network="in-process"), ["50%"])
        >>> table[["target", "rounds_to_target"]].values.tolist()
        [['accuracy>=0.5', 1.0]]
    """
    from analysis.comparison import time_to_target

    run_records = runs_below([runs] if isinstance(runs, str | Path) else runs)
    return time_to_target.compare_targets(run_records, targets, baseline, smooth)


def findings(
    runs: str | Path | Sequence[str | Path], baseline: str | None = None, group_by: Sequence[str] = ()
) -> "list[Finding]":
    """Return the findings of the runs at or below some directories, the worst first; see `analysis.findings.findings`.

    Args:
        runs: a directory, or several, or URIs of them.
        baseline, group_by: see `compare`; findings have the labels of its rows.

    Returns:
        All findings; each has `code`, `text`, `rows` (labels; empty: all rows) and `keys`.

    Raises:
        RunError: there are no runs.
        ExperimentError: a key of `group_by` is not a key of the runs.

    Example:
        >>> from testbed import Experiment, findings, run
        >>> experiment = Experiment(rounds=1, population=6, selection={"participants": 3})
        >>> [finding.code for finding in findings(run(experiment, out="runs/first", network="in-process"))]
        []
    """
    from analysis.comparison.time_to_target import targets_beside
    from analysis.findings import findings as found_in

    below = runs_below([runs] if isinstance(runs, str | Path) else runs)
    targets, _ = targets_beside(below, baseline, group_by=group_by)
    return found_in(below, baseline, group_by=group_by, targets=targets)


def table_of(runs: "Sequence[RunRecords]", summaries: Mapping[Path, Mapping[str, Any]]) -> str:
    """Return the overhead table of some runs with its findings, as text for a terminal.

    Args:
        runs: the records.
        summaries: by directory, of the runs that are summarised already.

    Raises:
        TestbedError: no table can be made of them, e.g. because the baseline is not clear.
    """
    from analysis.comparison import overhead
    from analysis.comparison.time_to_target import targets_beside
    from analysis.findings import findings as found_in
    from analysis.findings import render

    frame, (targets, _) = overhead.compare(list(runs), summaries=summaries), targets_beside(list(runs))
    return render(frame, found_in(list(runs), targets=targets), targets=targets)
