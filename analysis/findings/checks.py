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
    """Return the findings about a comparison of runs, the most serious first; often none.

    Findings are computed from the records only. `docs/explanation/findings.md` has the criterion of each.

    Args:
        runs: e.g. from `testbed.records.find_runs`; of runs in progress, the rounds recorded so far count.
        baseline, group_by: as for `analysis.comparison.overhead.compare`, so that the rows are those of its table. An
            ambiguous or unknown baseline counts as no baseline.
        targets: from `analysis.comparison.time_to_target.compare_targets`, to find times to a target that cannot be
            ranked; None: times to a target are not checked.

    Returns:
        all findings; the first `analysis.findings.MOST` of them are displayed.

    Raises:
        ExperimentError: there are no runs, or `group_by` has a key that the runs do not have.
        RunError: records are damaged.
    """
    rows = rows_of(runs, group_by)
    try:
        baselines = baselines_of(rows, baseline)
    except ExperimentError:
        baselines = [None] * len(rows)
    compared = ComparedRows(tuple(rows), tuple(baselines), targets)
    return [finding for check in CHECKS for finding in check(compared)]
