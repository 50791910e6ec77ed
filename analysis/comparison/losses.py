"""Clients that were lost: offline, dropped out, too late, refusing, or crashed, stage by stage.

Two groups are counted: the participants of a round (their loss affects its result) and all clients that were asked (a
check-in asks the whole population). Every unanswered question counts, except for further questions to a client that was
already offline in the same round. `first_losses` has each lost participant of a round once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparison.measures import stage_order
from analysis.comparison.rows import ComparisonRow, rows_of
from analysis.tables import Table, data, require_format
from analysis.tables import render as render_table
from testbed.records import RunRecords

LOST = ("offline", "dropped", "late", "refused")
"""Outcomes of an exchange with a lost client. Crashed clients are recorded as silent; the events give the reason."""

CRASHED = "crashed"
GROUPS = ("participants", "asked")


def somebody_was_lost(run: RunRecords) -> bool:
    """Return whether any client was lost in any stage of the run."""
    return any(rows["outcome"].isin(LOST).any() for rows in run.exchanges_in_stretches(["outcome"]))


def counts(run: RunRecords, *, with_participants: bool = False) -> pd.DataFrame:
    """Return the number of lost clients: `(stages, 12)` int64, stages in the order of the protocol.

    Columns, for each of `GROUPS`: ``GROUP`` (number of clients asked) and ``GROUP_offline``, ``GROUP_dropped``,
    ``GROUP_late``, ``GROUP_refused``, ``GROUP_crashed`` (number of them lost in this way).

    Args:
        run: the records.
        with_participants: count only rounds with participants (`rounds_with_participants`).
    """
    rounds = rounds_with_participants(run) if with_participants else run.rounds["round"]
    crashes = _crashes(run)
    of_stretches = [
        _counted(rows[rows["round"].isin(rounds)], "asked")
        for rows in run.exchanges_in_stretches(["stage", "client", "outcome"])  # not all at once: there may be 10^8
    ]
    all_asked = pd.concat(of_stretches).groupby(level=0, sort=False).sum()
    participants = _counted(run.exchanges_of_participants, "participants").reindex(all_asked.index, fill_value=0)
    for table, group, rows in (
        (all_asked, "asked", crashes[crashes["round"].isin(rounds)]),
        (participants, "participants", crashes.merge(run.participation[["round", "client"]], on=["round", "client"])),
    ):
        table[f"{group}_{CRASHED}"] = rows.groupby("stage").size().reindex(all_asked.index, fill_value=0)
    return pd.concat([participants, all_asked], axis=1).astype(np.int64)


def rounds_with_participants(run: RunRecords) -> pd.Series:
    """Return the numbers of the rounds that had participants; other rounds cannot lose a participant."""
    return run.rounds.loc[run.rounds["participants"] > 0, "round"]


def _crashes(run: RunRecords) -> pd.DataFrame:
    """Return round, stage and client of each crash of a client's code."""
    rows = run.events.loc[run.events["kind"] == "crash", ["round", "stage", "party"]]
    client = rows["party"].str.removeprefix("client:").astype(np.int64)  # only clients crash
    return rows.assign(client=client)[["round", "stage", "client"]]


def _counted(rows: pd.DataFrame, group: str) -> pd.DataFrame:
    """Return `counts` of one group in a stretch of whole rounds."""
    stages = pd.Index([str(stage) for stage in rows["stage"].unique()], name="stage", dtype=object)
    gone = rows.loc[rows["outcome"].isin(("offline", "dropped")), ["round", "client", "outcome"]]
    # A client that is gone is offline at each further question of the round: one loss, not several.
    repeated = gone.index[(gone["outcome"] == "offline") & gone.duplicated(["round", "client"])]
    lost = rows[["stage", "outcome"]].drop(index=repeated).groupby(["stage", "outcome"], observed=True).size()
    frame = pd.DataFrame(index=stages)
    frame[group] = rows.groupby("stage", observed=True).size().reindex(stages, fill_value=0)
    frame[[f"{group}_{outcome}" for outcome in LOST]] = (
        lost.unstack(fill_value=0).reindex(index=stages, columns=list(LOST), fill_value=0).to_numpy()
    )
    return frame


def first_losses(run: RunRecords) -> pd.DataFrame:
    """Return the first loss of each lost participant of a round: columns round, client, stage, outcome."""
    rows = run.exchanges_of_participants  # in the order in which the stages began
    rows = rows.loc[rows["outcome"].isin(LOST), ["round", "client", "stage", "outcome"]]
    return rows.drop_duplicates(["round", "client"]).astype({"stage": str, "outcome": str}).reset_index(drop=True)


# -- the table of losses by stage --------------------------------------------------------------------------------------


def dropouts(runs: Sequence[RunRecords]) -> pd.DataFrame:
    """Return one row per protocol (repetitions with other seeds added up) and stage.

    Columns: setting, label, seeds, rounds (those with participants), rounds_recorded (all), stage; totals of the
    columns of `counts`; and each of their losses with ``_per_round`` appended. Only rounds with participants are
    counted. If a protocol had no round with participants, ``rounds`` is 0 and all recorded rounds are counted.

    Raises:
        ExperimentError: there are no runs.
    """
    frames = [_of_row(row) for row in rows_of(runs)]
    return pd.concat(frames, ignore_index=True)


def _of_row(row: ComparisonRow) -> pd.DataFrame:
    rounds = sum(len(rounds_with_participants(run)) for run in row.runs)
    recorded = sum(len(run.rounds) for run in row.runs)
    # No round had participants because clients did not answer: the table must show these clients.
    tables = [counts(run, with_participants=rounds > 0) for run in row.runs]
    order = stage_order([list(table.index) for table in tables])
    total = sum((table.reindex(order, fill_value=0) for table in tables[1:]), tables[0].reindex(order, fill_value=0))
    for column in [f"{group}_{outcome}" for group in GROUPS for outcome in (*LOST, CRASHED)]:
        total[f"{column}_per_round"] = total[column] / max(rounds or recorded, 1)
    keys: dict[str, Any] = {"setting": row.setting, "label": row.label, "seeds": len(row.runs), "rounds": rounds}
    return total.reset_index().assign(**keys, rounds_recorded=recorded)[[*keys, "rounds_recorded", "stage", *total]]


# -- printing -------------------------------------------------------------------------------------------------------


def render(frame: pd.DataFrame, format: str = "text") -> str:
    """Return the table of `dropouts`, ending in a line feed.

    Text and Markdown show totals and, at the end, losses per round; CSV and JSON have every column.

    Args:
        frame: from `dropouts`.
        format: ``text``, ``markdown``, ``csv`` or ``json``.

    Raises:
        ExperimentError: an unknown format.
    """
    require_format(format, "text", "markdown", "csv", "json")
    if format in ("csv", "json"):
        return data(frame, format)
    if frame.empty:
        return "the server has not asked any client in these runs yet\n"
    crashed = [f"{group}_{CRASHED}" for group in GROUPS]
    lost = (*LOST, CRASHED) if frame[crashed].any(axis=None) else LOST
    protocols = [part for _, part in frame.groupby(["setting", "label"], sort=False)]
    return "\n".join(render_table(_table(part, lost, format), format) for part in protocols)


def _table(part: pd.DataFrame, losses: Sequence[str], format: str) -> Table:
    """Return the table of one protocol: for each group the clients asked, the losses, and their sum per round."""
    names = ["asked", *losses, "lost/round"]
    groups = ("", "") if format == "text" else ("Participants ", "All ")
    return Table(
        heads=["Stage", *(group + name for group in groups for name in names)],
        rows=_cells(part, losses),
        left=[0],
        title=_title(part),
        spans=(("", 1), ("Participants", len(names)), ("All clients asked", len(names))),
    )


def _title(part: pd.DataFrame) -> str:
    first = part.iloc[0]
    name = ",".join(name for name in (first["label"], first["setting"]) if name)
    seeds = f" of {first['seeds']} seeds" if first["seeds"] > 1 else ""
    if not first["rounds"]:
        recorded = f"{first['rounds_recorded']} {'round' if first['rounds_recorded'] == 1 else 'rounds'}"
        return f"{name}: no participants in any of {recorded}{seeds}; all rounds are counted"
    empty = first["rounds_recorded"] - first["rounds"]
    without = f" (and {empty} without participants)" if empty else ""
    return f"{name}: {first['rounds']} {'round' if first['rounds'] == 1 else 'rounds'}{seeds}{without}"


def _cells(part: pd.DataFrame, losses: Sequence[str]) -> list[list[str]]:
    """Return the body: stage, then for each group the clients asked, the losses, and their sum per round."""
    names = {group: [f"{group}_{outcome}" for outcome in losses] for group in GROUPS}
    counted = part.set_index("stage")[[name for group in GROUPS for name in (group, *names[group])]]
    counted.loc["all stages"] = counted.sum()
    first = part.iloc[0]
    rounds, body = max(first["rounds"] or first["rounds_recorded"], 1), []
    for stage, row in counted.iterrows():
        cells = [str(stage)]
        for group in GROUPS:
            lost = row[names[group]].tolist()
            cells += [str(row[group]), *map(str, lost), f"{sum(lost) / rounds:.2f}"]
        body.append(cells)
    return body
