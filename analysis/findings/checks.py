"""The list of checks, the most misleading findings first."""

from collections.abc import Sequence

import pandas as pd

from analysis.comparison.rows import baselines_of, rows_of
from analysis.findings import ends, federation, intervals, learning, privacy
from analysis.findings.compared import Check, ComparedRows, Finding
from testbed.errors import ExperimentError
from testbed.records import RunRecords

CHECKS: tuple[Check, ...] = (
    learning.not_finite,
    ends.ended_early,
    learning.does_not_learn,
    privacy.more_than_planned,
    ends.waited_for_deadlines,
    federation.transport_differs,
    federation.unscaled,
    federation.single_step,
    federation.never_available,
    intervals.cannot_be_ranked,
    privacy.less_than_planned,
)


def findings(
    runs: Sequence[RunRecords],
    baseline: str | None = None,
    *,
    group_by: Sequence[str] = (),
    targets: pd.DataFrame | None = None,
) -> list[Finding]:
    """What a reader of the comparison of some runs should know before believing it, the worst first; often nothing.

    All of it is computed from the records. `docs/explanation/findings.md` has the criterion of each.

    Args:
        runs: e.g. from `testbed.records.find_runs`; runs that go on count as far as they are.
        baseline, group_by: as of `analysis.comparison.overhead.compare`, so that the rows are those of its table. A
            baseline that cannot be told apart is none.
        targets: from `analysis.comparison.time_to_target.compare_targets`, to find times to a target that cannot be
            ranked; None: these are left out.

    Returns:
        all findings; `analysis.findings.MOST` of them are shown, the first ones.

    Raises:
        ExperimentError: there are no runs, or one of `group_by` is not a key of theirs.
        RunError: records are damaged.
    """
    rows = rows_of(runs, group_by)
    try:
        baselines = baselines_of(rows, baseline)
    except ExperimentError:
        baselines = [None] * len(rows)
    compared = ComparedRows(tuple(rows), tuple(baselines), targets)
    return [finding for check in CHECKS for finding in check(compared)]
