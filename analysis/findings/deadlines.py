"""Rounds that waited for a deadline."""

from dataclasses import dataclass

import numpy as np

from analysis.comparison.rows import Row
from analysis.findings.compared import ComparedRows, counted, diverged_rounds, seconds, value_of
from analysis.findings.ends import ends_of
from analysis.findings.finding import Finding
from testbed.records import RunRecords

LEAST_SHARE = 0.2
"""Of the time of all rounds: below it, waiting for deadlines does not rule the round time."""

_COLUMNS = ["stage", "sent_s", "received_s", "outcome"]
_DEFAULT_DEADLINE_S = 60.0


@dataclass
class Waits:
    """How long rounds waited between the last answer of a stage and the deadline of the stage.

    Attributes:
        rounds: number of recorded rounds.
        waiting: how many of them waited for at least one deadline.
        waited_s: seconds, summed over their stages.
        total_s: seconds of all rounds.
        late: answers that were still on their way when the deadline came.
        gone: clients that had gone, or were silent.
    """

    rounds: int = 0
    waiting: int = 0
    waited_s: float = 0.0
    total_s: float = 0.0
    late: int = 0
    gone: int = 0

    def add(self, other: "Waits") -> None:
        """Add those of another run."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def share(self) -> float:
        """Of the time of all rounds that was spent waiting for deadlines."""
        return self.waited_s / self.total_s if self.total_s > 0 else 0.0

    @property
    def text(self) -> str:
        """E.g. ``4 of 5 rounds waited for a deadline, 10 ms each on average (100% of the time)``."""
        return (
            f"{self.waiting:,} of {counted(self.rounds, 'round')} waited for a deadline, "
            f"{seconds(self.waited_s / self.waiting)} each on average ({self.share:.0%} of the time)"
        )


def waits_of(run: RunRecords) -> Waits:
    """How long the rounds of a run waited for deadlines; nothing of an asynchronous run, which waits for nobody.

    A stage waited for its deadline if a client did not answer in it and it lasted until the deadline. The time between
    its last answer and the deadline is what the wait cost. Rounds with updates that were not finite are left out: their
    clients do not answer any more.
    """
    rounds = run.rounds[~run.rounds["round"].isin(diverged_rounds(run))]
    found = Waits(rounds=len(rounds), total_s=float((rounds["ended_s"] - rounds["started_s"]).sum()))
    if value_of(run, "asynchronous") is not None or not len(rounds):
        return found
    deadline_s = float(value_of(run, "time.deadline_s", _DEFAULT_DEADLINE_S))
    of_stages = value_of(run, "time.stage_deadlines", {})
    ended_s = rounds.set_index("round")["ended_s"]
    for rows in run.exchanges_in_stretches(_COLUMNS, keep=False):
        rows = rows[rows["round"].isin(ended_s.index)]
        outcome = rows["outcome"].astype(str)
        flags = {
            "late": outcome.eq("late"),
            "gone": outcome.isin(["offline", "dropped", "silent"]),
        }
        answered_s = rows["received_s"].where(~flags["late"])
        keyed = rows.assign(stage=rows["stage"].astype(str), received_s=answered_s, **flags)
        stages = keyed.groupby(["round", "stage", "sent_s"], sort=False).agg(
            answered_s=("received_s", "max"), late=("late", "sum"), gone=("gone", "sum")
        )
        stages = stages.reset_index().sort_values(["round", "sent_s"], kind="stable", ignore_index=True)
        same_round = stages["round"].eq(stages["round"].shift(-1))
        ends = stages["sent_s"].shift(-1).where(same_round, stages["round"].map(ended_s))
        limit = stages["stage"].map(of_stages).astype(np.float64).fillna(deadline_s)
        at_deadline = (stages["late"] + stages["gone"] > 0) & (ends - stages["sent_s"] >= limit * (1 - 1e-9))
        answered_after = (stages["answered_s"] - stages["sent_s"]).fillna(0.0).clip(lower=0.0)
        waited = (limit - answered_after)[at_deadline]
        found.waiting += stages.loc[at_deadline, "round"].nunique()
        found.waited_s += float(waited.sum())
        found.late += int(stages.loc[at_deadline, "late"].sum())
        found.gone += int(stages.loc[at_deadline, "gone"].sum())
    return found


def waited_for_deadlines(compared: ComparedRows) -> list[Finding]:
    """Rows whose rounds spent at least a fifth of their time waiting for deadlines, a finding for each cause.

    Rows whose rounds ended early because of a deadline are left out: that finding tells how long they waited.
    """
    groups: dict[tuple[str, tuple[str, ...]], tuple[list[Row], Waits]] = {}
    for row in compared.rows:
        waits = Waits()
        for run in row.runs:
            waits.add(waits_of(run))
        if not waits.waiting or waits.share < LEAST_SHARE:
            continue
        ends = ends_of(row)
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
