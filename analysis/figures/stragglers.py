"""Figure of stragglers: time to answer by class of client, slowest clients of rounds, and late or lost participants."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparison.losses import first_losses
from analysis.comparison.measures import stage_order
from analysis.comparison.rows import ComparisonRow
from analysis.figures.curves import Panel, grid_of, row_colours, settings_of
from analysis.figures.elements import FigureWithData, fitted, interval_note, of_rows, over_runs
from analysis.figures.points import MARKERS, Look, Series, bound_handle, draw_points, end_above_points, name_axis
from analysis.style import width
from analysis.tables import Unit, seconds_unit
from testbed.records import RunRecords

_DEFAULT_DEADLINE_S = 60.0  # of runs recorded without a deadline
_FEW = 4  # largest number of devices with a group each
_THIRDS = ("fastest third", "middle third", "slowest third")
_MEASURES = {"answer_s": "Time to answer", "is_slowest": "Slowest of the round", "is_lost": "Late or lost"}


def stragglers(rows: Sequence[ComparisonRow], columns: int = 1) -> FigureWithData | str:
    """Draw by class of client: time to answer, share of rounds with the slowest client, share of lost participants.

    Time to answer is summed over the stages of a round, each from its start to the client's answer. Unlike client time
    it excludes waiting for others. A client for which a stage waited until its deadline took at least that long; the
    class's time is a lower bound then. Clients that miss another answer (they had dropped out) have no time. The
    slowest client of a round has the longest time, among the clients that the round waited for in vain if there are
    any. Late or lost are participants that were offline, dropped out, were too late or refused.

    Clients without classes are grouped by their devices: by the factor, or in thirds of the population if there are
    many factors. Points are means over the seeds of the means over the rounds; error bars are 95% intervals over the
    seeds, of a single run over its rounds.

    Args:
        rows: from `analysis.comparison.rows.rows_of`.
        columns: of the page, 1 or 2.

    Returns:
        the figure, or the reason for its absence.
    """
    kinds = [[kinds_of(run) for run in row.runs] for row in rows]
    names = stage_order([list(each.cat.categories) for group in kinds for each in group])
    if len(names) < 2:
        return "clients differ neither in class nor in device (or no table of clients was recorded)"
    frames = [_by_kind(row, of_runs, names) for row, of_runs in zip(rows, kinds, strict=True)]
    if not any(frame["value"].notna().any() for frame in frames):
        return "these runs have no participants"
    times = pd.concat([frame[frame["measure"] == "answer_s"]["value"] for frame in frames])
    seconds = seconds_unit(times.dropna())
    units = {"answer_s": seconds, "is_slowest": Unit("%", 0.01, 1), "is_lost": Unit("%", 0.01, 1)}
    panels = [Panel("", f"{title} [{units[measure].symbol}]") for measure, title in _MEASURES.items()]
    note = f"error bars: {interval_note([len(row.runs) for row in rows], 'rounds')}"
    labels, settings = list(dict.fromkeys(row.label for row in rows)), settings_of(rows)
    named = labels if len(labels) > 1 else []
    bounds = any(frame["is_bound"].any() for frame in frames)
    entries = [("at least: answers were missing at the deadline", bound_handle())] if bounds else []
    legend = fitted([*named, *(text for text, _ in entries)], width(columns), note)
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
    for of_measure, measure in zip(zip(*grid, strict=True), _MEASURES, strict=True):  # panels share their axes
        end_above_points(of_measure, 1.0 if units[measure].symbol == "%" else 0.0)
    figure.set_figheight(figure.get_figheight() + more)
    legend.add_to(figure, [*(looks[label].handle for label in named), *(handle for _, handle in entries)])
    return FigureWithData("stragglers", figure, of_rows(rows, frames))


def _series(look: Look, frame: pd.DataFrame, names: Sequence[str]) -> Series:
    return Series(look, frame["class"].map(names.index), frame["value"], frame["half_width"], frame["is_bound"])


def kinds_of(run: RunRecords) -> "pd.Series[Any]":
    """Return each client's class or device group: ordered categories, index the client; may be empty."""
    clients = run.clients
    if clients.empty:
        return pd.Series(pd.Categorical([]), dtype="category")
    classes, factors = clients["class"].astype(str), clients["device_factor"]
    if (classes != "").any():
        class_names = list(run.experiment.get("classes") or {})
        groups, order = classes, [*class_names, *sorted(set(classes) - set(class_names))]
        order = [name for name in order if name in set(classes)]
    elif factors.nunique() <= _FEW:
        order = [f"device {factor:g}" for factor in sorted(factors.unique())]
        groups = factors.map(lambda factor: f"device {factor:g}")
    else:
        third = (3 * (factors.rank(method="first") - 1) // len(factors)).astype(int)
        order, groups = list(_THIRDS), third.map(dict(enumerate(_THIRDS)))
    return pd.Series(pd.Categorical(groups, order), clients["client"].to_numpy())


def _by_kind(row: ComparisonRow, kinds: Sequence["pd.Series[Any]"], names: Sequence[str]) -> pd.DataFrame:
    """Return a row per class and measure: class, measure, value, half_width, is_bound.

    Values are NaN for classes without participants.
    """
    of_runs = [_rounds(run, kind) for run, kind in zip(row.runs, kinds, strict=True)]
    records = []
    for name in names:
        for measure in _MEASURES:
            statistics = over_runs([_of_class(frames[measure], name) for frames in of_runs])
            is_bound = measure == "answer_s" and any(_of_class(of["is_bound"], name).any() for of in of_runs)
            values = {"value": statistics.mean, "half_width": statistics.half_width, "is_bound": is_bound}
            records.append({"class": name, "measure": measure, **values})
    return pd.DataFrame(records).astype({"value": float, "half_width": float, "is_bound": bool})


def _of_class(frame: pd.DataFrame, name: str) -> pd.Series:
    return frame[name] if name in frame else pd.Series(dtype=float)


def _rounds(run: RunRecords, kinds: "pd.Series[Any]") -> Mapping[str, pd.DataFrame]:
    """Return for each measure a row per round and a column per class; NaN for classes without participants.

    ``is_bound``: whether one of the class's times is only known to be at least that.
    """
    took = _times(run)
    took["class"] = took["client"].map(kinds)
    times = took.pivot_table("answer_s", "round", "class", observed=False, dropna=False)
    is_bound = took.pivot_table("is_bound", "round", "class", "max", observed=False, dropna=False)
    timed = took.dropna(subset="answer_s").sort_values(["is_bound", "answer_s"], kind="stable")
    slowest = timed.drop_duplicates("round", keep="last").set_index("round")["class"].sort_index()
    is_slowest = pd.DataFrame({name: (slowest == name).astype(float) for name in kinds.cat.categories})
    part = run.participation[["round", "client"]].merge(
        first_losses(run).assign(is_lost=1.0), "left", ["round", "client"]
    )
    part["is_lost"] = part["is_lost"].fillna(0.0)
    part["class"] = part["client"].map(kinds)
    lost = part.pivot_table("is_lost", "round", "class", observed=False, dropna=False)
    measures = {"answer_s": times, "is_slowest": is_slowest, "is_lost": lost.astype(np.float64)}
    return measures | {"is_bound": is_bound.fillna(0.0) > 0}


def _times(run: RunRecords) -> pd.DataFrame:
    """Return one row per participant: round, client, answer_s (NaN: dropped out), is_bound (1.0: at least that).

    A stage waits for clients that are late or silent, and for those that have dropped out where the server does not
    see that (``time.disconnects``). It waited in vain where it lasted until its deadline.
    """
    rows = run.exchanges_of_participants
    rows = rows[rows["as_participant"]].copy()
    times = run.experiment.get("time") or {}
    is_visible = times.get("disconnects") == "visible"
    missed = rows["outcome"].isin(["late", "silent"] if is_visible else ["late", "silent", "dropped", "offline"])
    limit_s = float(times.get("deadline_s") or _DEFAULT_DEADLINE_S)
    limits = rows["stage"].astype(str).map(times.get("stage_deadlines") or {}).astype(float)
    limits = limits.fillna(limit_s)
    missed &= run.experiment.get("asynchronous") is None  # asynchronous runs do not wait
    in_vain = missed & (_ends(run, rows) - rows["sent_s"] >= limits * (1 - 1e-9))
    rows["answer_s"] = (rows["received_s"] - rows["sent_s"]).where(~in_vain, limits)
    rows["is_bound"] = in_vain.astype(float)
    # A client that was late is not asked again, or counts as offline: its time ends there.
    rows["is_known"] = rows["answer_s"].notna()
    by_client = rows.groupby(["round", "client"]).agg(
        answer_s=("answer_s", "sum"), is_bound=("is_bound", "max"), is_known=("is_known", "all")
    )
    by_client["answer_s"] = by_client["answer_s"].where(by_client["is_known"] | (by_client["is_bound"] > 0))
    return by_client.drop(columns="is_known").reset_index()


def _ends(run: RunRecords, rows: pd.DataFrame) -> "pd.Series[Any]":
    """Return the end of each row's stage: the beginning of the next stage, or the end of the round."""
    begins = rows[["round", "sent_s"]].drop_duplicates().sort_values(["round", "sent_s"])
    following = begins.groupby("round")["sent_s"].shift(-1)
    ends = following.fillna(begins["round"].map(run.rounds.set_index("round")["ended_s"])).rename("ends")
    joined = rows[["round", "sent_s"]].merge(begins.assign(ends=ends), "left", ["round", "sent_s"])
    return pd.Series(joined["ends"].to_numpy(), rows.index)
