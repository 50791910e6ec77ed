"""Checks for rounds that ended early or waited for a deadline, with the keys that change that."""

from collections import Counter
from dataclasses import dataclass

from analysis.comparison.rows import ComparisonRow
from analysis.findings.compared import ComparedRows, Finding, counted, failed_rounds
from analysis.findings.lost_answers import Waits, lost_answers, waits_of
from testbed.records import RunRecords

MORE_THAN = 0.1
"""Share of a row's rounds that end early. Above it, the row's means describe only the rounds that went well.

Protocols may lose up to 10 % of rounds as intended.
"""
FEWEST = 3
"""Number of rounds of a row that end early. Fewer may be chance; the notes below the table report them."""
LATE_SHARE = 0.5
"""Share of the answers lost in rounds that ended early. Above it, the deadline is taken as the cause."""


@dataclass(frozen=True)
class Ends:
    """The rounds of one row that ended early.

    Attributes:
        row: the row.
        rounds: number of all rounds of its runs.
        reasons: how often each reason was recorded.
        lost: number of answers that did not arrive in these rounds although a client was asked.
        late: how many of the lost answers arrived after the deadline.
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
    """Return the rounds of a row that ended early; None if they are at most 10 % of its rounds, or fewer than 3.

    Two kinds of rows are left out. If most rounds failed because updates were not finite, another finding explains
    them. In rows with misbehaving parties, the end of a round is the result of the experiment.


    Args:
        compared: the rows of the comparison.
        row: one of them.
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
    """Return why rounds ended early, without the rounds in which an update was not finite."""
    return [str(reason) for reason in failed_rounds(run)["reason"]]


def reason_name(reason: str) -> str:
    """Return the name at the beginning of a recorded reason.

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
"""By name of a reason, the keys that influence it, the most useful first."""

_DEADLINES = ("time.deadline_s", "time.stage_deadlines")
_ELSE = ("availability", "time.deadline_s")


def ended_early(compared: ComparedRows) -> list[Finding]:
    """Find rows in which more than 10 % of the rounds were skipped or aborted.

    Rows with the same most frequent reason share a finding. If most of the lost answers were late, the finding also
    says how long rounds waited for their deadlines.
    """
    groups: dict[tuple[str, bool], list[Ends]] = {}
    for row in compared.rows:
        if (ends := ends_of(compared, row)) is not None:
            groups.setdefault((ends.name, ends.by_deadline), []).append(ends)
    largest_first = sorted(groups.values(), key=lambda group: -sum(ends.reasons.total() for ends in group))
    return [_finding(compared, group) for group in largest_first]


def _finding(compared: ComparedRows, group: list[Ends]) -> Finding:
    """Return the finding of rows that have the same most frequent reason."""
    reasons = Counter[str]()
    for ends in group:
        reasons += ends.reasons
    name = group[0].name
    frequent = sum(count for reason, count in reasons.items() if reason_name(reason) == name)
    detail = next(
        (reason.partition(":")[2].strip() for reason, _ in reasons.most_common() if reason_name(reason) == name), ""
    )
    detail = detail if len(detail) <= _LONGEST else f"{detail[: _LONGEST - 1]}…"
    among = f", {frequent} of them" if frequent < reasons.total() else ""
    number = sum(ends.rounds for ends in group)
    text = f"{reasons.total():,} of {counted(number, 'round')} ended early{among}: {name}" + f" ({detail})" * bool(
        detail
    )
    keys = KEYS.get(name, _ELSE)
    if group[0].by_deadline:
        late, lost = sum(ends.late for ends in group), sum(ends.lost for ends in group)
        text += f"; {late:,} of {counted(lost, 'missing answer')} in them arrived after the deadline"
        keys = (*_DEADLINES, *(key for key in keys if key not in _DEADLINES))
        waits = Waits()
        for ends in group:
            waits.add(waits_of(compared, ends.row))
        if waits.waiting and waits.share >= WAITING_SHARE:
            text += f"; {waits.text}"
    return Finding("ended-early", text, compared.labels(ends.row for ends in group), keys)


WAITING_SHARE = 0.2
"""Share of the time of all rounds. Below it, waiting for deadlines does not dominate the round time."""


def waited_for_deadlines(compared: ComparedRows) -> list[Finding]:
    """Find rows that spent at least a fifth of their round time waiting for deadlines; one finding for each cause.

    Rows that ended early because of a deadline are left out: `ended_early` reports their waiting time.
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
    """Return the clients that rounds waited for, and the keys to change."""
    visible = row.runs[0].value("time.disconnects", "invisible") == "visible"
    if waits.gone >= waits.late and not visible:
        return "for clients that had gone unnoticed by the server", ("time.disconnects", "time.deadline_s")
    if waits.late >= waits.gone:
        return "for answers that arrived too late", ("time.deadline_s", "time.stage_deadlines", "time.stage_quorums")
    return "for clients that did not answer", ("time.deadline_s", "time.stage_deadlines")
