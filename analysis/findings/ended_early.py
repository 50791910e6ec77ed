"""Rounds that ended early: skipped or aborted, and the keys that decide about each reason."""

from collections import Counter

from analysis.findings.compared import ComparedRows, counted
from analysis.findings.deadlines import LEAST_SHARE
from analysis.findings.ends import Ends, ends_of, reason_name
from analysis.findings.finding import Finding
from analysis.findings.lost_answers import Waits, waits_of

_LONGEST = 60  # characters of a detail

KEYS: dict[str, tuple[str, ...]] = {
    "too-few-candidates": ("selection.over_selection", "selection.participants", "population"),
    "too-few-available": ("selection.participants", "population", "availability"),
    "too-few-rested": ("selection.separation", "population", "selection.participants"),
    "too-few-whole-batches": ("selection.privacy", "population", "availability"),
    "too-few-in-whole-batches": ("aggregation.smallest_sum", "selection.privacy", "availability.dropout"),
    "no-whole-batch": ("selection.privacy", "aggregation.batches", "availability.dropout"),
    "too-few-updates": ("selection.participants", "availability.dropout"),
    "no-updates": ("availability", "time.deadline_s"),
    "below-threshold": ("aggregation.threshold", "availability", "time.deadline_s"),
    "threshold-too-low": ("aggregation.threshold", "selection.participants"),
    "wrong-size": ("selection.participants", "population"),
    "unsafe-committee": ("aggregation.committee", "population"),
    "too-few-committee-members": ("aggregation.committee", "population", "availability"),
    "set-up-failed": ("aggregation.committee", "availability"),
    "no-helper": ("availability", "time.deadline_s"),
    "update-too-large": ("workload.learning_rate", "aggregation.clip"),
    "gradient-too-large": ("workload.learning_rate", "aggregation.clip"),
    "nobody-selected": ("selection", "population"),
    "nobody-available": ("availability", "population"),
    "nobody-recorded": ("selection.recorded",),
}
"""By the reason's name, the keys that decide about it, the most useful first."""

_DEADLINES = ("time.deadline_s", "time.stage_deadlines")
_ELSE = ("availability", "time.deadline_s")


def ended_early(compared: ComparedRows) -> list[Finding]:
    """Rows of which more than 10 % of the rounds were skipped or aborted, a finding for each most frequent reason.

    Where most of the lost answers were late, the finding also tells how long rounds waited for their deadlines.
    """
    groups: dict[tuple[str, bool], list[Ends]] = {}
    for row in compared.rows:
        if (ends := ends_of(compared, row)) is not None:
            groups.setdefault((ends.name, ends.by_deadline), []).append(ends)
    largest_first = sorted(groups.values(), key=lambda group: -sum(ends.reasons.total() for ends in group))
    return [_finding(compared, group) for group in largest_first]


def _finding(compared: ComparedRows, group: list[Ends]) -> Finding:
    """The finding of rows with the same most frequent reason."""
    reasons = Counter[str]()
    for ends in group:
        reasons += ends.reasons
    name = group[0].name
    frequent = sum(count for reason, count in reasons.items() if reason_name(reason) == name)
    detail = next((one.partition(":")[2].strip() for one, _ in reasons.most_common() if reason_name(one) == name), "")
    detail = detail if len(detail) <= _LONGEST else f"{detail[: _LONGEST - 1]}…"
    among = f", {frequent} of them" if frequent < reasons.total() else ""
    number = sum(ends.rounds for ends in group)
    text = f"{reasons.total():,} of {counted(number, 'round')} ended early{among}: {name}" + f" ({detail})" * bool(
        detail
    )
    keys = KEYS.get(name, _ELSE)
    if group[0].by_deadline:
        late, lost = sum(ends.late for ends in group), sum(ends.lost for ends in group)
        text += f"; {late:,} of {counted(lost, 'missing answer')} in them came after the deadline"
        keys = (*_DEADLINES, *(key for key in keys if key not in _DEADLINES))
        waits = Waits()
        for ends in group:
            waits.add(waits_of(compared, ends.row))
        if waits.waiting and waits.share >= LEAST_SHARE:
            text += f"; {waits.text}"
    return Finding("ended-early", text, compared.labels(ends.row for ends in group), keys)
