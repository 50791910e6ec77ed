"""Rounds that ended early: skipped or aborted, and the keys that decide about each reason."""

from collections import Counter

from analysis.comparison.rows import Row
from analysis.findings.compared import ComparedRows, counted, diverged_rounds, has_misbehaviour
from analysis.findings.finding import Finding
from testbed.records import RunRecords

MORE_THAN = 0.5
"""Of the rounds of a row: then its means are over the lucky ones."""

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

_ELSE = ("availability", "time.deadline_s")


def ended_early(compared: ComparedRows) -> list[Finding]:
    """Rows of which more than half of the rounds were skipped or aborted, with the most frequent reason.

    Rows of which most failed because updates were not finite are left out: another finding explains them. So are rows
    in which somebody misbehaves: there the end of a round is the result.
    """
    rows, ends, total = list[Row](), Counter[str](), 0
    for row in compared.rows:
        if any(map(has_misbehaviour, row.runs)):
            continue
        number = sum(len(run.rounds) for run in row.runs)
        reasons = [reason for run in row.runs for reason in _reasons(run)]
        if number and len(reasons) > MORE_THAN * number:
            rows.append(row)
            ends.update(reasons)
            total += number
    if not rows:
        return []
    names = Counter[str]()
    for reason, count in ends.items():
        names[_name(reason)] += count
    name, frequent = names.most_common(1)[0]
    detail = next((one.partition(":")[2].strip() for one, _ in ends.most_common() if _name(one) == name), "")
    detail = detail if len(detail) <= _LONGEST else f"{detail[: _LONGEST - 1]}…"
    among = f", {frequent} of them" if len(names) > 1 else ""
    text = f"{ends.total():,} of {counted(total, 'round')} ended early{among}: {name}" + f" ({detail})" * bool(detail)
    return [Finding("ended-early", text, compared.labels(rows), KEYS.get(name, _ELSE))]


def _reasons(run: RunRecords) -> list[str]:
    """Why rounds ended early, of those whose clients all had finite updates."""
    rounds = run.rounds
    failed = rounds[rounds["outcome"].ne("completed") & ~rounds["round"].isin(diverged_rounds(run))]
    return [str(reason) for reason in failed["reason"]]


def _name(reason: str) -> str:
    return reason.partition(":")[0].strip() or "no reason given"
