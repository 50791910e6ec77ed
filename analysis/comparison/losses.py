"""Clients that were lost: offline, dropped out, too late, refusing, or crashed, stage by stage.

Two groups are counted: the participants of a round, whose loss costs the round something, and all that were asked
(a check-in asks the whole population). Each question that was not answered counts, but a client that has gone and is
asked again in the same round is not lost again. `first_losses` has each lost participant of a round once.
"""

import numpy as np
import pandas as pd

from testbed.records import RunRecords

LOST = ("offline", "dropped", "late", "refused")
"""What an exchange says of a client that was lost. One whose code has crashed was silent; the events say why."""

CRASHED = "crashed"
GROUPS = ("participants", "asked")


def somebody_was_lost(run: RunRecords) -> bool:
    """Whether any client was lost in any stage of the run."""
    return any(rows["outcome"].isin(LOST).any() for rows in run.exchanges_in_stretches(["outcome"]))


def counts(run: RunRecords, *, with_participants: bool = False) -> pd.DataFrame:
    """`(stages, 12)` int64, stages in the order of the protocol.

    Columns, for each of `GROUPS`: ``GROUP`` (how many were asked) and ``GROUP_offline``, ``GROUP_dropped``,
    ``GROUP_late``, ``GROUP_refused``, ``GROUP_crashed`` (how many of them were lost, and how).

    Args:
        run: the records.
        with_participants: count only the rounds in which somebody took part (`rounds_with_participants`).
    """
    rounds = rounds_with_participants(run) if with_participants else run.rounds["round"]
    crashes = _crashes(run)
    of_stretches = [
        _counted(rows[rows["round"].isin(rounds)], "asked")
        for rows in run.exchanges_in_stretches(["stage", "client", "outcome"])
    ]
    asked = pd.concat(of_stretches).groupby(level=0, sort=False).sum()
    participants = _counted(run.exchanges_of_participants, "participants").reindex(asked.index, fill_value=0)
    for table, group, rows in (
        (asked, "asked", crashes[crashes["round"].isin(rounds)]),
        (participants, "participants", crashes.merge(run.participation[["round", "client"]], on=["round", "client"])),
    ):
        table[f"{group}_{CRASHED}"] = rows.groupby("stage").size().reindex(asked.index, fill_value=0)
    return pd.concat([participants, asked], axis=1).astype(np.int64)


def rounds_with_participants(run: RunRecords) -> pd.Series:
    """The numbers of the rounds that had participants: in others, nobody who takes part can be lost."""
    return run.rounds.loc[run.rounds["participants"] > 0, "round"]


def _crashes(run: RunRecords) -> pd.DataFrame:
    """Round, stage and client of each crash of a client's code."""
    rows = run.events.loc[run.events["kind"] == "crash", ["round", "stage", "party"]]
    client = rows["party"].str.removeprefix("client:").astype(np.int64)
    return rows.assign(client=client)[["round", "stage", "client"]]


def _counted(rows: pd.DataFrame, group: str) -> pd.DataFrame:
    """`counts` of one group in a stretch of whole rounds."""
    stages = pd.Index([str(stage) for stage in rows["stage"].unique()], name="stage", dtype=object)
    gone = rows.loc[rows["outcome"].isin(("offline", "dropped")), ["round", "client", "outcome"]]
    again = gone.index[(gone["outcome"] == "offline") & gone.duplicated(["round", "client"])]
    lost = rows[["stage", "outcome"]].drop(index=again).groupby(["stage", "outcome"], observed=True).size()
    frame = pd.DataFrame(index=stages)
    frame[group] = rows.groupby("stage", observed=True).size().reindex(stages, fill_value=0)
    frame[[f"{group}_{outcome}" for outcome in LOST]] = (
        lost.unstack(fill_value=0).reindex(index=stages, columns=list(LOST), fill_value=0).to_numpy()
    )
    return frame


def first_losses(run: RunRecords) -> pd.DataFrame:
    """One row per participant that was lost in a round, where it was lost first: round, client, stage, outcome."""
    rows = run.exchanges_of_participants  # in the order in which the stages began
    rows = rows.loc[rows["outcome"].isin(LOST), ["round", "client", "stage", "outcome"]]
    return rows.drop_duplicates(["round", "client"]).astype({"stage": str, "outcome": str}).reset_index(drop=True)
