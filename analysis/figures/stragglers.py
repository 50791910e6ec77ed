"""Who holds rounds up: how long participants take by class of client, who is the slowest, who is late or lost."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparison.losses import first_losses
from analysis.comparison.measures import stage_order
from analysis.comparison.rows import Row
from analysis.figures.curves import Panel, grid_of, row_colours, settings_of
from analysis.figures.elements import Drawn, fitted_lines, interval_note, of_rows, over_runs
from analysis.figures.points import MARKERS, Look, Series, draw_points, name_axis
from analysis.style import width
from analysis.tables import Unit, seconds_unit
from testbed.records import RunRecords

_FEW = 4  # devices that are named one by one
_THIRDS = ("fastest third", "middle third", "slowest third")
_MEASURES = {"answer_s": "Time to answer", "is_slowest": "Slowest of the round", "is_lost": "Late or lost"}


def stragglers(rows: Sequence[Row], columns: int = 1) -> Drawn | str:
    """By class of client: how long its participants take to answer, how often the slowest is one, how many are lost.

    Time to answer is summed over the stages of a round, each from its start to the client's answer: unlike client time
    it has no waiting for others. Those of whom an answer is missing have none. The slowest of a round has the longest.
    Late or lost are the class's participants that were offline, dropped out, came too late or refused.

    Clients without classes are told apart by their devices: by the factor, or in thirds of the population where there
    are many factors. Points are means over the seeds of the means over the rounds; error bars are 95% intervals over
    the seeds, of a single run over its rounds.

    Args:
        rows: from `analysis.comparison.rows.rows_of`.
        columns: of the page, 1 or 2.

    Returns:
        The figure, or why there is none.
    """
    kinds = [[kinds_of(run) for run in row.runs] for row in rows]
    names = stage_order([list(each.cat.categories) for group in kinds for each in group])
    if len(names) < 2:
        return "clients have neither classes nor devices that differ (or no table of clients was recorded)"
    frames = [_by_kind(row, of_runs, names) for row, of_runs in zip(rows, kinds, strict=True)]
    if not any(frame["value"].notna().any() for frame in frames):
        return "nobody took part in these runs"
    times = pd.concat([frame[frame["measure"] == "answer_s"]["value"] for frame in frames])
    seconds = seconds_unit(times.dropna())
    units = {"answer_s": seconds, "is_slowest": Unit("%", 0.01, 1), "is_lost": Unit("%", 0.01, 1)}
    panels = [Panel("", f"{title} [{units[measure].symbol}]") for measure, title in _MEASURES.items()]
    note = f"error bars: {interval_note([len(row.runs) for row in rows], 'rounds')}"
    labels, settings = list(dict.fromkeys(row.label for row in rows)), settings_of(rows)
    legend = fitted_lines(labels, width(columns), note)
    figure, grid = grid_of(settings, panels, columns, legend.inches + 0.3)
    colours = row_colours(rows)
    looks = {label: Look(colours[label], MARKERS[place % len(MARKERS)]) for place, label in enumerate(labels)}
    more = 0.0
    for setting, axes_of in zip(settings, grid, strict=True):
        here = [(row, frame) for row, frame in zip(rows, frames, strict=True) if row.setting == setting]
        for axes, measure in zip(axes_of, _MEASURES, strict=True):
            series = [_series(looks[row.label], frame[frame["measure"] == measure], names) for row, frame in here]
            top = None if measure == "answer_s" else 1.0
            draw_points(axes, series, units[measure], joined=False, top=top)
            more = name_axis(axes, names)
    for axes_of in grid:  # panels share their axes: they end where all of them have their points
        for axes, measure in zip(axes_of, _MEASURES, strict=True):
            axes.set_ylim(0, max(axes.get_ylim()[1], 1.0 if units[measure].symbol == "%" else 0.0))
    figure.set_figheight(figure.get_figheight() + more)
    legend.add_to(figure, [looks[label].handle for label in labels])
    return Drawn("stragglers", figure, of_rows(rows, frames))


def _series(look: Look, frame: pd.DataFrame, names: Sequence[str]) -> Series:
    closed = pd.Series(data=False, index=frame.index)
    return Series(look, frame["class"].map(names.index), frame["value"], frame["half_width"], closed)


def kinds_of(run: RunRecords) -> "pd.Series[Any]":
    """Each client's class, or what its device is like: categories in their order, index the client; may be empty."""
    clients = run.clients
    if clients.empty:
        return pd.Series(pd.Categorical([]), dtype="category")
    classes, factors = clients["class"].astype(str), clients["device_factor"]
    if (classes != "").any():
        given = list(run.experiment.get("classes") or {})
        found, order = classes, [*given, *sorted(set(classes) - set(given))]
        order = [name for name in order if name in set(classes)]
    elif factors.nunique() <= _FEW:
        order = [f"device {factor:g}" for factor in sorted(factors.unique())]
        found = factors.map(lambda factor: f"device {factor:g}")
    else:
        third = (3 * (factors.rank(method="first") - 1) // len(factors)).astype(int)
        order, found = list(_THIRDS), third.map(dict(enumerate(_THIRDS)))
    return pd.Series(pd.Categorical(found, order), clients["client"].to_numpy())


def _by_kind(row: Row, kinds: Sequence["pd.Series[Any]"], names: Sequence[str]) -> pd.DataFrame:
    """A row per class and measure: class, measure, value, half_width; NaN where none of it took part."""
    of_runs = [_rounds(run, kind) for run, kind in zip(row.runs, kinds, strict=True)]
    records = []
    for name in names:
        for measure in _MEASURES:
            found = over_runs([_of_class(frames[measure], name) for frames in of_runs])
            records.append({"class": name, "measure": measure, "value": found.mean, "half_width": found.half_width})
    return pd.DataFrame(records).astype({"value": float, "half_width": float})


def _of_class(frame: pd.DataFrame, name: str) -> pd.Series:
    return frame[name] if name in frame else pd.Series(dtype=float)


def _rounds(run: RunRecords, kinds: "pd.Series[Any]") -> Mapping[str, pd.DataFrame]:
    """For each measure a row per round and a column per class; NaN where none of it took part."""
    rows = run.exchanges_of_participants
    rows = rows[rows["as_participant"]]
    waits = (rows["received_s"] - rows["sent_s"]).groupby([rows["round"], rows["client"]])
    took = waits.sum().where(waits.count() == waits.size()).rename("answer_s").reset_index()
    took["class"] = took["client"].map(kinds)
    times = took.pivot_table("answer_s", "round", "class", observed=False, dropna=False)
    answered = took.dropna(subset="answer_s")
    slowest = answered.loc[answered.groupby("round")["answer_s"].idxmax()].set_index("round")["class"]
    is_slowest = pd.DataFrame({name: (slowest == name).astype(float) for name in kinds.cat.categories})
    part = run.participation[["round", "client"]].merge(
        first_losses(run).assign(is_lost=1.0), "left", ["round", "client"]
    )
    part["is_lost"] = part["is_lost"].fillna(0.0)
    part["class"] = part["client"].map(kinds)
    lost = part.pivot_table("is_lost", "round", "class", observed=False, dropna=False)
    return {"answer_s": times, "is_slowest": is_slowest, "is_lost": lost.astype(np.float64)}
