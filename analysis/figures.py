"""Figures for a paper: round time by stage, accuracy against virtual time and rounds, traffic by stage.

Each is written as PNG and as PDF with embedded fonts, one column wide. Stages come in the order of the protocol
(selection, training, aggregation) and keep their colour from figure to figure, and so do protocols.
"""

import logging
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from analysis.figure_style import COLUMN_INCHES, house_style, protocol_colours, save, stage_colours
from analysis.measures import by_stage, per_round
from analysis.rows import Row, rows_of
from analysis.units import Unit, bytes_unit, seconds_unit
from testbed.records import RunRecords

_log = logging.getLogger(__name__)

FAILED = "skipped and aborted rounds"
_LINES = ("-", "--", ":", "-.")
_MARKERS = "osD^vP"
_BAR = 0.72
_FAILED_LOOK: dict[str, Any] = {"facecolor": "white", "edgecolor": "#7F7F7F", "hatch": "/////"}
_LEGEND_COLUMNS = 2


def plot(runs: Sequence[RunRecords], out: Path, note: Callable[[str], None] = _log.warning) -> list[Path]:
    """Draw ``round-time-by-stage``, ``accuracy`` and ``traffic-by-stage``, each as .png and .pdf; return the files.

    Repetitions with other seeds are averaged (see `analysis.rows`). Bars show the mean completed round; what skipped
    and aborted rounds have cost, per completed round, is hatched at their end. A figure for which nothing was
    recorded is left out, and `note` is told so.

    Args:
        runs: e.g. from `testbed.records.find_runs`; raises `ExperimentError` when there are none.
        out: directory, made when it is not there.
        note: called with one line for each figure that is left out.
    """
    rows = _random_first(rows_of(runs))
    stages = {id(row): _mean_stages(row) for row in rows}
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    with house_style():
        if any(_completed(frame) for frame in stages.values()):
            paths += save(_round_time(rows, stages), out / "round-time-by-stage")
        else:
            note("no round-time-by-stage figure: no round was completed")
        if any(per_round(run)["accuracy"].notna().any() for run in runs):
            paths += save(_accuracy(rows), out / "accuracy")
        else:
            note("no accuracy figure: no accuracy was measured in these runs")
        if any(_completed(frame) for frame in stages.values()):
            paths += save(_traffic(rows, stages), out / "traffic-by-stage")
        else:
            note("no traffic-by-stage figure: no round was completed")
    return paths


def _random_first(rows: list[Row]) -> list[Row]:
    """As in the table: the usual baseline first in each setting."""
    settings = list(dict.fromkeys(row.setting for row in rows))
    return sorted(rows, key=lambda row: (settings.index(row.setting), row.protocol != "random"))


# -- by stage -------------------------------------------------------------------------------------------------------


def _mean_stages(row: Row) -> pd.DataFrame:
    """Per stage and for failed rounds (index), what a completed round takes: duration_s, bytes_down, bytes_up.

    Means over the row's repetitions that have completed a round; empty when none has.
    """
    columns = ["duration_s", "bytes_down", "bytes_up"]
    means = []
    for run in row.runs:
        frame = by_stage(run)
        updates = int((run.rounds["outcome"] == "completed").sum())
        if not updates:
            continue
        frame["stage"] = frame["stage"].where(frame["outcome"] == "completed", FAILED)
        means.append(frame.groupby("stage", sort=False)[columns].sum() / updates)
    if not means:
        return pd.DataFrame(columns=columns, dtype=np.float64)
    total = pd.concat(means).groupby(level=0, sort=False).sum()
    return total / len(means)


def _completed(frame: pd.DataFrame) -> bool:
    return len(frame) > 0


def _stage_order(frames: Sequence[pd.DataFrame]) -> list[str]:
    """All stages of all rows, merged so that each row's own order holds: a stage goes before its successor."""
    order: list[str] = []
    for frame in frames:
        place = len(order)
        for name in reversed([str(name) for name in frame.index if name != FAILED]):
            if name in order:
                place = order.index(name)
            else:
                order.insert(place, name)
    return order


def _round_time(rows: Sequence[Row], stages: dict[int, pd.DataFrame]) -> Figure:
    frames = [stages[id(row)] for row in rows]
    unit = seconds_unit(frame["duration_s"].sum() for frame in frames)
    positions, height = _positions(rows)
    handles = _stage_handles(frames)
    figure = Figure(figsize=(COLUMN_INCHES, height + 0.45 + _legend_inches(handles)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlim(0, _bars(axes, positions, frames, "duration_s", unit))
    axes.set_xlabel(f"Round time [{unit.symbol}]")
    _protocol_axis(axes, rows, positions)
    figure.legend(handles=handles, loc="outside lower center", ncols=_LEGEND_COLUMNS)
    return figure


def _traffic(rows: Sequence[Row], stages: dict[int, pd.DataFrame]) -> Figure:
    frames = [stages[id(row)] for row in rows]
    unit = bytes_unit(frame[way].sum() for frame in frames for way in ("bytes_down", "bytes_up"))
    positions, height = _positions(rows)
    handles = _stage_handles(frames)
    inches = 2 * (height + 0.22) + 0.45 + _legend_inches(handles)
    figure = Figure(figsize=(COLUMN_INCHES, inches), layout="constrained")
    down, up = figure.subplots(2, 1, sharex=True)
    down.set_title("Server to clients", loc="left")
    up.set_title("Clients to server", loc="left")
    ends = [_bars(axes, positions, frames, way, unit) for axes, way in ((down, "bytes_down"), (up, "bytes_up"))]
    for axes in (down, up):
        _protocol_axis(axes, rows, positions)
    up.set_xlim(0, max(ends))
    up.set_xlabel(f"Traffic per round [{unit.symbol}]")
    figure.legend(handles=handles, loc="outside lower center", ncols=_LEGEND_COLUMNS)
    return figure


def _positions(rows: Sequence[Row]) -> tuple[list[float], float]:
    """Where each row's bar goes (downwards, with room for the setting's name above its first), and inches of height."""
    positions, at, setting = [], 0.0, ""
    for row in rows:
        if row.setting != setting:
            setting = row.setting
            at += 1.1 if at else 1.0
        positions.append(at)
        at += 1
    return positions, 0.23 * (at + 0.2)


def _bars(axes: Axes, positions: Sequence[float], frames: Sequence[pd.DataFrame], column: str, unit: Unit) -> float:
    """One horizontal bar per row: stages stacked, failed rounds hatched, the numbers at its end.

    Returns how far the axis has to reach for the numbers to fit.
    """
    order = _stage_order(frames)
    colours = stage_colours(order)
    reach = 0.0
    for position, frame in zip(positions, frames, strict=True):
        values = (frame[column] / unit.size).to_dict()
        end = 0.0
        for stage in [stage for stage in order if stage in values]:
            axes.barh(position, values[stage], _BAR, end, color=colours[stage], linewidth=0)
            end += values[stage]
        failed, text = values.get(FAILED, 0.0), f"{end:.{unit.decimals}f}" if values else "no completed round"
        if failed:
            axes.barh(position, failed, _BAR, end, linewidth=0.5, **_FAILED_LOOK)
        if round(failed, unit.decimals):
            text += f" + {failed:.{unit.decimals}f}"
        start = (end + failed, position)
        axes.annotate(text, start, (3, 0), textcoords="offset points", va="center_baseline", fontsize=7)
        reach = max(reach, (end + failed) / (0.98 - 0.028 * len(text)))
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    return reach


def _protocol_axis(axes: Axes, rows: Sequence[Row], positions: Sequence[float]) -> None:
    """Labels at the bars, the names of settings in bold above their first bar."""
    ticks = {
        position: (textwrap.fill(row.label, 26, break_long_words=False), False)
        for row, position in zip(rows, positions, strict=True)
    }
    setting = ""
    for row, position in zip(rows, positions, strict=True):
        if row.setting != setting:
            setting = row.setting
            ticks[position - 0.95] = (setting, True)
    axes.set_yticks(list(ticks), [label for label, _ in ticks.values()])
    for label, (_, bold) in zip(axes.get_yticklabels(), ticks.values(), strict=True):
        label.set_fontweight("bold" if bold else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(positions[-1] + 0.6, min(ticks) - 0.6)
    axes.grid(axis="x")


def _stage_handles(frames: Sequence[pd.DataFrame]) -> list[Patch]:
    order = _stage_order(frames)
    colours = stage_colours(order)
    handles = [Patch(facecolor=colours[stage], label=stage) for stage in order]
    if any(frame["duration_s"].get(FAILED, 0.0) for frame in frames):
        handles.append(Patch(linewidth=0.5, label=FAILED, **_FAILED_LOOK))
    return handles


def _legend_inches(handles: Sequence[Patch]) -> float:
    return 0.14 * -(-len(handles) // _LEGEND_COLUMNS) + 0.1


# -- accuracy -------------------------------------------------------------------------------------------------------


def _accuracy(rows: Sequence[Row]) -> Figure:
    """Two panels per setting: against virtual time and against rounds."""
    settings = list(dict.fromkeys(row.setting for row in rows))
    wide = COLUMN_INCHES if len(settings) == 1 else 2.3 * len(settings)
    figure = Figure(figsize=(wide, 3.7), layout="constrained")
    panels = figure.subplots(2, len(settings), sharey=True, squeeze=False)
    curves = {id(row): _curve(row) for row in rows}
    unit = seconds_unit([max((curve["ended_s"].max() for curve in curves.values() if len(curve)), default=0.0)])
    colours = protocol_colours([row.protocol or row.label for row in rows])
    styles = _line_styles(rows)
    handles = {}
    for row in rows:
        curve, column = curves[id(row)], settings.index(row.setting)
        colour, (line, marker) = colours[row.protocol or row.label], styles[row.label]
        for axes, x in (
            (panels[0, column], curve["ended_s"] / unit.size),
            (panels[1, column], curve["round"]),
        ):
            (handles[row.label],) = axes.plot(
                x, 100 * curve["mean"], line, color=colour, marker=marker, markersize=3,
                markevery=max(1, len(curve) // 12), markeredgecolor="white", markeredgewidth=0.4, label=row.label,
            )  # fmt: skip
            if len(row.runs) > 1:
                axes.fill_between(x, 100 * curve["least"], 100 * curve["most"], color=colour, alpha=0.15, linewidth=0)
    for column, setting in enumerate(settings):
        panels[0, column].set_title(setting)
        panels[0, column].set_xlabel(f"Virtual time [{unit.symbol}]")
        panels[1, column].set_xlabel("Round")
        panels[1, column].xaxis.set_major_locator(MaxNLocator(integer=True))
        for axes in panels[:, column]:
            axes.grid()
            axes.set_xlim(left=0)
    for axes in panels[:, 0]:
        axes.set_ylabel("Accuracy [%]")
    columns = 2 if len(settings) == 1 else 2 * len(settings)
    figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=columns)
    return figure


def _curve(row: Row) -> pd.DataFrame:
    """Accuracy by round: round, mean ended_s (s), mean, least and most accuracy over the repetitions."""
    rounds = pd.concat([per_round(run)[["round", "ended_s", "accuracy"]] for run in row.runs]).dropna()
    grouped = rounds.groupby("round")
    return grouped.agg(
        ended_s=("ended_s", "mean"), mean=("accuracy", "mean"), least=("accuracy", "min"), most=("accuracy", "max")
    ).reset_index()


def _line_styles(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Line and marker of each label: rows of one protocol have one colour and differ in the line."""
    labels = list(dict.fromkeys(row.label for row in rows))
    styles, counts = {}, dict.fromkeys([row.protocol for row in rows], 0)
    for place, label in enumerate(labels):
        protocol = next(row.protocol for row in rows if row.label == label)
        styles[label] = (_LINES[counts[protocol] % len(_LINES)], _MARKERS[place % len(_MARKERS)])
        counts[protocol] += 1
    return styles
