"""Rounds that waited for a deadline."""

from analysis.comparison.rows import Row
from analysis.findings.compared import ComparedRows, value_of
from analysis.findings.ends import ends_of
from analysis.findings.finding import Finding
from analysis.findings.lost_answers import Waits, waits_of

LEAST_SHARE = 0.2
"""Of the time of all rounds: below it, waiting for deadlines does not rule the round time."""


def waited_for_deadlines(compared: ComparedRows) -> list[Finding]:
    """Rows whose rounds spent at least a fifth of their time waiting for deadlines, a finding for each cause.

    Rows whose rounds ended early because of a deadline are left out: that finding tells how long they waited.
    """
    groups: dict[tuple[str, tuple[str, ...]], tuple[list[Row], Waits]] = {}
    for row in compared.rows:
        waits = waits_of(compared, row)
        if not waits.waiting or waits.share < LEAST_SHARE:
            continue
        ends = ends_of(compared, row)
        if ends is None or not ends.by_deadline:
            rows, total = groups.setdefault(_cause(waits, row), ([], Waits()))
            rows.append(row)
            total.add(waits)
    return [
        Finding("waited-for-deadline", f"{total.text}, {cause}", compared.labels(rows), keys)
        for (cause, keys), (rows, total) in groups.items()
    ]


def _cause(waits: Waits, row: Row) -> tuple[str, tuple[str, ...]]:
    """The clients that rounds waited for, and the keys that decide about it."""
    visible = value_of(row.runs[0], "time.disconnects", "invisible") == "visible"
    if waits.gone >= waits.late and not visible:
        return "for clients that had gone, which the server did not see", ("time.disconnects", "time.deadline_s")
    if waits.late >= waits.gone:
        return "for answers that came too late", ("time.deadline_s", "time.stage_deadlines", "time.stage_quorums")
    return "for clients that did not answer", ("time.deadline_s", "time.stage_deadlines")
