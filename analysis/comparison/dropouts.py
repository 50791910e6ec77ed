"""The table of who was lost where: a run's stages, and how many were offline, dropped out, came too late, refused, or
had code that crashed.

See `analysis.comparison.losses` for what is counted.
"""

from collections.abc import Sequence
from typing import Literal

import pandas as pd

from analysis.comparison.losses import CRASHED, GROUPS, LOST, counts, rounds_with_participants
from analysis.comparison.measures import stage_order
from analysis.comparison.rows import Row, rows_of
from analysis.tables import Table, data, require_format
from analysis.tables import render as render_table
from testbed.records import RunRecords

Format = Literal["text", "markdown", "csv", "json"]
_KEYS = ["setting", "label", "seeds", "rounds", "rounds_recorded", "stage"]


def dropouts(runs: Sequence[RunRecords]) -> pd.DataFrame:
    """One row per protocol (repetitions with other seeds added up) and stage.

    Columns: setting, label, seeds, rounds (those in which somebody took part: only they are counted), rounds_recorded
    (all), stage; those of `analysis.comparison.losses.counts`, totals; and
    each of their losses with ``_per_round`` added. Raises `ExperimentError` when there are no runs.
    """
    frames = [_of_row(row) for row in rows_of(runs)]
    return pd.concat(frames, ignore_index=True)


def _of_row(row: Row) -> pd.DataFrame:
    tables = [counts(run, with_participants=True) for run in row.runs]
    order = stage_order([list(table.index) for table in tables])
    total = sum((table.reindex(order, fill_value=0) for table in tables[1:]), tables[0].reindex(order, fill_value=0))
    rounds = sum(len(rounds_with_participants(run)) for run in row.runs)
    recorded = sum(len(run.rounds) for run in row.runs)
    for column in [f"{group}_{outcome}" for group in GROUPS for outcome in (*LOST, CRASHED)]:
        total[f"{column}_per_round"] = total[column] / max(rounds, 1)
    frame = total.reset_index()
    frame = frame.assign(setting=row.setting, label=row.label, seeds=len(row.runs))
    return frame.assign(rounds=rounds, rounds_recorded=recorded)[[*_KEYS, *total]]


# -- printing -------------------------------------------------------------------------------------------------------


def render(frame: pd.DataFrame, format: str = "text") -> str:
    """The table that `dropouts` made as ``text``, ``markdown``, ``csv`` or ``json``, ending in a line feed.

    Text and Markdown show totals and, at their end, the losses of a round; CSV and JSON every column. Raises
    `ExperimentError` for another format.
    """
    require_format(format, "text", "markdown", "csv", "json")
    if format in ("csv", "json"):
        return data(frame, format)
    if frame.empty:
        return "nobody was asked for anything in these runs yet\n"
    crashed = [f"{group}_{CRASHED}" for group in GROUPS]
    lost = (*LOST, CRASHED) if frame[crashed].any(axis=None) else LOST
    protocols = [part for _, part in frame.groupby(["setting", "label"], sort=False)]
    return "\n".join(render_table(_table(part, lost, format), format) for part in protocols)


def _table(part: pd.DataFrame, losses: Sequence[str], format: str) -> Table:
    """One protocol's: for each group asked, the losses, their sum per round."""
    names = ["asked", *losses, "/round"]
    groups = ("", "") if format == "text" else ("Participants ", "All ")
    return Table(
        heads=["Stage", *(group + name for group in groups for name in names)],
        rows=_cells(part, losses),
        left=[0],
        title=_title(part),
        spans=(("", 1), ("Participants", len(names)), ("All asked", len(names))),
    )


def _title(part: pd.DataFrame) -> str:
    first = part.iloc[0]
    name = ",".join(name for name in (first["label"], first["setting"]) if name)
    seeds = f" of {first['seeds']} seeds" if first["seeds"] > 1 else ""
    empty = first["rounds_recorded"] - first["rounds"]
    without = f" (and {empty} in which nobody took part)" if empty else ""
    return f"{name}: {first['rounds']} {'round' if first['rounds'] == 1 else 'rounds'}{seeds}{without}"


def _cells(part: pd.DataFrame, losses: Sequence[str]) -> list[list[str]]:
    """Stage, then for each group: asked, the losses, their sum per round."""
    body = []
    for _, row in part.iterrows():
        cells = [str(row["stage"])]
        for group in GROUPS:
            lost = [int(row[f"{group}_{outcome}"]) for outcome in losses]
            cells += [str(row[group]), *map(str, lost), f"{sum(lost) / max(row['rounds'], 1):.2f}"]
        body.append(cells)
    total = ["all stages"]
    for group in GROUPS:
        lost = [int(part[f"{group}_{outcome}"].sum()) for outcome in losses]
        total += [str(part[group].sum()), *map(str, lost), f"{sum(lost) / max(part['rounds'].iloc[0], 1):.2f}"]
    return [*body, total]
