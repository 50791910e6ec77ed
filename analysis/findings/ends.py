"""Rounds that ended early, or waited for a deadline, and the keys that decide about it."""

from collections import Counter
from dataclasses import dataclass

from analysis.comparison.rows import ComparisonRow
from analysis.findings.compared import ComparedRows, Finding, counted, failed_rounds
from analysis.findings.lost_answers import Waits, lost_answers, waits_of
from testbed.records import RunRecords

MORE_THAN = 0.1
"""Of the rounds of a row: then its means are over the lucky ones. Protocols may lose 10 % as intended."""
FEWEST = 3
"""Rounds of a row: fewer may be an accident, which the table's notes tell."""
LATE_SHARE = 0.5
"""Of the answers that were lost in rounds that ended early: then the deadline is the reason for these ends."""


@dataclass(frozen=True)
class Ends:
    """The rounds of one row that ended early.

    Attributes:
        row: the row.
        rounds: all rounds of its runs.
        reasons: how often each reason was recorded.
        lost: answers that did not come in these rounds, of clients that were asked for one.
        late: how many of them came after the deadline.
    """

    row: ComparisonRow
    rounds: int
    reasons: Counter[str]
    lost: int
    late: int

    @property
    def name(self) -> str:
        """The name of the most frequent reason."""
        names = Counter[str]()
        for reason, count in self.reasons.items():
            names[reason_name(reason)] += count
        return names.most_common(1)[0][0]

    @property
    def by_deadline(self) -> bool:
        """Whether most of the lost answers were late."""
        return self.late > LATE_SHARE * self.lost


def ends_of(compared: ComparedRows, row: ComparisonRow) -> Ends | None:
    """The rounds of a row that ended early; None where they are at most 10 % of its rounds, or fewer than 3.

    Rows of which most failed because updates were not finite are left out: another finding explains them. So are rows
    in which somebody misbehaves: there the end of a round is the result.
    """
    if any(run.has_misbehaviour for run in row.runs):
        return None
    number = sum(len(run.rounds) for run in row.runs)
    reasons = Counter(reason for run in row.runs for reason in _reasons(run))
    if reasons.total() < FEWEST or reasons.total() <= MORE_THAN * number:
        return None
    lost = Counter[str]()
    for run in row.runs:
        lost += compared.measured(lost_answers, run).in_failed_rounds
    return Ends(row, number, reasons, lost.total(), lost["late"])


def _reasons(run: RunRecords) -> list[str]:
    """Why rounds ended early, of those whose clients all had finite updates."""
    return [str(reason) for reason in failed_rounds(run)["reason"]]


def reason_name(reason: str) -> str:
    """The name of a recorded reason.

    Example:
        >>> reason_name("too-few-candidates: 6 candidates, 8 wanted")
        'too-few-candidates'
    """
    return reason.partition(":")[0].strip() or "no reason given"


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
        if waits.waiting and waits.share >= WAITING_SHARE:
            text += f"; {waits.text}"
    return Finding("ended-early", text, compared.labels(ends.row for ends in group), keys)


WAITING_SHARE = 0.2
"""Of the time of all rounds: below it, waiting for deadlines does not rule the round time."""


def waited_for_deadlines(compared: ComparedRows) -> list[Finding]:
    """Rows whose rounds spent at least a fifth of their time waiting for deadlines, a finding for each cause.

    Rows whose rounds ended early because of a deadline are left out: that finding tells how long they waited.
    """
    groups: dict[tuple[str, tuple[str, ...]], tuple[list[ComparisonRow], Waits]] = {}
    for row in compared.rows:
        waits = waits_of(compared, row)
        if not waits.waiting or waits.share < WAITING_SHARE:
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


def _cause(waits: Waits, row: ComparisonRow) -> tuple[str, tuple[str, ...]]:
    """The clients that rounds waited for, and the keys that decide about it."""
    visible = row.runs[0].value("time.disconnects", "invisible") == "visible"
    if waits.gone >= waits.late and not visible:
        return "for clients that had gone, which the server did not see", ("time.disconnects", "time.deadline_s")
    if waits.late >= waits.gone:
        return "for answers that came too late", ("time.deadline_s", "time.stage_deadlines", "time.stage_quorums")
    return "for clients that did not answer", ("time.deadline_s", "time.stage_deadlines")
