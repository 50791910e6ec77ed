"""Answers that rounds lost, and the time that rounds waited for them."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from analysis.comparison.rows import ComparisonRow
from analysis.findings.compared import ComparedRows, counted, diverged_rounds, failed_rounds, seconds
from testbed.records import RunRecords

_COLUMNS = ["stage", "sent_s", "received_s", "outcome"]
_DEFAULT_DEADLINE_S = 60.0


@dataclass
class Waits:
    """The time that rounds waited between the last answer of a stage and the deadline of the stage.

    Attributes:
        rounds: number of recorded rounds.
        waiting: how many of them waited for at least one deadline.
        waited_s: seconds, summed over their stages.
        total_s: seconds of all rounds.
        late: number of answers still in transit at the deadline.
        gone: number of clients that had dropped out or were silent.
    """

    rounds: int = 0
    waiting: int = 0
    waited_s: float = 0.0
    total_s: float = 0.0
    late: int = 0
    gone: int = 0

    def add(self, other: "Waits") -> None:
        """Add the waits of another run."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def share(self) -> float:
        """Share of the time of all rounds that was spent waiting for deadlines."""
        return self.waited_s / self.total_s if self.total_s > 0 else 0.0

    @property
    def text(self) -> str:
        """One clause, e.g. ``4 of 5 rounds waited for a deadline, 10 ms each on average (100% of the time)``."""
        return (
            f"{self.waiting:,} of {counted(self.rounds, 'round')} waited for a deadline, "
            f"{seconds(self.waited_s / self.waiting)} each on average ({self.share:.0%} of the time)"
        )


@dataclass(frozen=True)
class LostAnswers:
    """The answers that did not arrive in time in one run.

    Attributes:
        waits: the time that its rounds waited for deadlines.
        in_failed_rounds: number of lost answers by outcome of the client, in rounds that ended early.
    """

    waits: Waits
    in_failed_rounds: Counter[str]


def lost_answers(run: RunRecords) -> LostAnswers:
    """Return the answers that a run lost, in one pass over its exchanges; asynchronous runs never wait.

    A stage waited for its deadline if a client did not answer in the stage and the stage lasted until the deadline. The
    time between the last answer and the deadline is the cost of the wait. Rounds in which an update was not finite are
    left out, because their clients stop answering.

    Silent clients do not count among the lost answers: if clients select themselves, most of them are silent in every
    round.
    """
    failed = failed_rounds(run)["round"]
    lost = Counter[str]()
    rounds = run.rounds[~run.rounds["round"].isin(diverged_rounds(run))]
    waits = Waits(rounds=len(rounds), total_s=float((rounds["ended_s"] - rounds["started_s"]).sum()))
    may_wait = run.value("asynchronous") is None and len(rounds) > 0
    if not may_wait and not len(failed):
        return LostAnswers(waits, lost)
    deadline_s = float(run.value("time.deadline_s", _DEFAULT_DEADLINE_S))
    of_stages = run.value("time.stage_deadlines", {})
    ended_s = rounds.set_index("round")["ended_s"]
    for rows in run.exchanges_in_stretches(_COLUMNS, keep=False):
        outcome = rows["outcome"].astype(str)
        lost.update(outcome[rows["round"].isin(failed) & outcome.isin(["offline", "dropped", "late"])].tolist())
        if not may_wait:
            continue
        rows = rows[rows["round"].isin(ended_s.index)]
        outcome = outcome[rows.index]
        flags = {
            "late": outcome.eq("late"),
            "gone": outcome.isin(["offline", "dropped", "silent"]),
        }
        answered_s = rows["received_s"].where(~flags["late"])  # late answers did not shorten the wait
        keyed = rows.assign(stage=rows["stage"].astype(str), received_s=answered_s, **flags)
        stages = keyed.groupby(["round", "stage", "sent_s"], sort=False).agg(
            answered_s=("received_s", "max"), late=("late", "sum"), gone=("gone", "sum")
        )
        stages = stages.reset_index().sort_values(["round", "sent_s"], kind="stable", ignore_index=True)
        same_round = stages["round"].eq(stages["round"].shift(-1))
        ends = stages["sent_s"].shift(-1).where(same_round, stages["round"].map(ended_s))
        limit = stages["stage"].map(of_stages).astype(np.float64).fillna(deadline_s)
        # A tolerance, since times are sums of floats: a stage that ends at its deadline may miss it by rounding.
        at_deadline = (stages["late"] + stages["gone"] > 0) & (ends - stages["sent_s"] >= limit * (1 - 1e-9))
        # Without any answer, the whole time until the deadline was a wait.
        answered_after = (stages["answered_s"] - stages["sent_s"]).fillna(0.0).clip(lower=0.0)
        waited = (limit - answered_after)[at_deadline]
        waits.waiting += stages.loc[at_deadline, "round"].nunique()
        waits.waited_s += float(waited.sum())
        waits.late += int(stages.loc[at_deadline, "late"].sum())
        waits.gone += int(stages.loc[at_deadline, "gone"].sum())
    return LostAnswers(waits, lost)


def waits_of(compared: ComparedRows, row: ComparisonRow) -> Waits:
    """Return the time that the rounds of a row waited for deadlines.

    Args:
        compared: the rows of the comparison.
        row: one of them.
    """
    total = Waits()
    for run in row.runs:
        total.add(compared.measured(lost_answers, run).waits)
    return total
