"""The rounds of a row that were skipped or aborted, and whether a deadline is the reason."""

from collections import Counter
from dataclasses import dataclass

from analysis.comparison.rows import Row
from analysis.findings.compared import ComparedRows, failed_rounds
from analysis.findings.lost_answers import lost_answers
from testbed.records import RunRecords

MORE_THAN = 0.1
"""Of the rounds of a row: then its means are over the lucky ones. Protocols may lose 10 % as intended."""
FEWEST = 3
"""Rounds of a row: fewer may be an accident, which the table's notes tell."""
LATE = 0.5
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

    row: Row
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
        return self.late > LATE * self.lost


def ends_of(compared: ComparedRows, row: Row) -> Ends | None:
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
