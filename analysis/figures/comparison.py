"""Figures for a paper: round time and traffic by stage, accuracy; `analysis.figures.availability` draws who was lost.

Each is written as PNG and as PDF with embedded fonts, one column wide. Stages come in the order of the protocol
(selection, training, aggregation) and keep their colour from figure to figure, and so do protocols.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from analysis.comparison.losses import somebody_was_lost
from analysis.comparison.measures import by_stage, per_round, stage_order
from analysis.comparison.rows import Row, rows_of
from analysis.figures.availability import availability, dropouts_by_stage
from analysis.figures.elements import (
    FAILED,
    FAILED_LOOK,
    LEGEND_COLUMNS,
    bars,
    legend_inches,
    over_settings,
    part_handles,
    positions,
    protocol_axis,
    random_first,
)
from analysis.statistics import mean_interval
from analysis.style import COLUMN_INCHES, house_style, save, stage_colours
from analysis.tables import Unit, bytes_unit, seconds_unit
from testbed.records import RunRecords

_log = logging.getLogger(__name__)


def plot(runs: Sequence[RunRecords], out: Path, note: Callable[[str], None] = _log.warning) -> list[Path]:
    """Draw the figures, each as .png and .pdf; return the files.

    They are ``round-time-by-stage``, ``accuracy``, ``traffic-by-stage``, ``availability`` and ``dropouts-by-stage``,
    and where noise was added, more or less of it or in several rings, ``accuracy-of-noise``.
    Repetitions with other seeds are averaged (see `analysis.comparison.rows`). Bars show the mean completed round; what
    skipped and aborted rounds have cost, per completed round, is hatched at their end. A figure for which nothing was
    recorded is left out, and `note` is told so.

    Args:
        runs: e.g. from `testbed.records.find_runs`; raises `ExperimentError` when there are none.
        out: directory, made when it is not there.
        note: called with one line for each figure that is left out.
    """
    rows = random_first(rows_of(runs))
    stages = [_mean_stages(row) for row in rows]
    none_completed = all(frame.empty for frame in stages)
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    with house_style():
        if none_completed:
            note("no round-time-by-stage figure: no round was completed")
        else:
            unit = seconds_unit(frame["duration_s"].sum() for frame in stages)
            figure = _by_stage(rows, stages, {"duration_s": ""}, unit, "Round time")
            paths += save(figure, out / "round-time-by-stage")
        if any(per_round(run)["accuracy"].notna().any() for run in runs):
            paths += save(_accuracy(rows), out / "accuracy")
        else:
            note("no accuracy figure: no accuracy was measured in these runs")
        if none_completed:
            note("no traffic-by-stage figure: no round was completed")
        else:
            ways = {"bytes_down": "Server to clients", "bytes_up": "Clients to server"}
            unit = bytes_unit(frame[way].sum() for frame in stages for way in ways)
            paths += save(_by_stage(rows, stages, ways, unit, "Traffic per round"), out / "traffic-by-stage")
        noise = accuracy_by_noise(runs)
        if says_something(noise):
            paths += save(accuracy_of_noise(noise), out / "accuracy-of-noise")
        if any(map(somebody_was_lost, runs)):
            paths += save(availability(rows), out / "availability")
            paths += save(dropouts_by_stage(rows), out / "dropouts-by-stage")
        else:
            note("no availability and dropouts-by-stage figures: nobody was away or lost in these runs")
    return paths


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


def _by_stage(
    rows: Sequence[Row], stages: Sequence[pd.DataFrame], columns: Mapping[str, str], unit: Unit, label: str
) -> Figure:
    """Stacked bars: a panel for each of the columns of `stages`, under its title."""
    places, height = positions(rows)
    colours = stage_colours(stage_order([[name for name in frame.index if name != FAILED] for frame in stages]))
    handles = part_handles(colours)
    if any(frame["duration_s"].get(FAILED, 0.0) for frame in stages):
        handles.append(Patch(linewidth=0.5, label=FAILED, **FAILED_LOOK))
    inches = sum(height + (0.22 if title else 0) for title in columns.values()) + 0.45 + legend_inches(handles)
    figure = Figure(figsize=(COLUMN_INCHES, inches), layout="constrained")
    panels = figure.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0]
    ends = []
    for axes, (column, title) in zip(panels, columns.items(), strict=True):
        axes.set_title(title, loc="left")
        ends.append(bars(axes, places, [frame[column] for frame in stages], unit, colours))
        protocol_axis(axes, rows, places)
    panels[-1].set_xlim(0, max(ends))
    panels[-1].set_xlabel(f"{label} [{unit.symbol}]")
    figure.legend(handles=handles, loc="outside lower center", ncols=LEGEND_COLUMNS)
    return figure


# -- accuracy -------------------------------------------------------------------------------------------------------


def _accuracy(rows: Sequence[Row]) -> Figure:
    """Two panels per setting: against time and against rounds."""
    curves = [_curve(row) for row in rows]
    unit = seconds_unit([max((curve["ended_s"].max() for curve in curves if len(curve)), default=0.0)])
    lines = []
    for curve in curves:
        percent = 100 * curve[["mean", "min", "max"]]
        lines.append(((curve["ended_s"] / unit.size, percent), (curve["round"], percent)))
    figure, panels = over_settings(rows, lines, linewidth=1.3, sharey=True)
    for above, below in panels.T:
        above.set_xlabel(f"Time [{unit.symbol}]")
        below.set_xlabel("Round")
        below.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in panels[:, 0]:
        axes.set_ylabel("Accuracy [%]")
    return figure


def _curve(row: Row) -> pd.DataFrame:
    """Accuracy by round: round, mean ended_s (s), mean, min and max of the accuracy over the repetitions."""
    rounds = pd.concat([per_round(run)[["round", "ended_s", "accuracy"]] for run in row.runs]).dropna()
    measures = {"ended_s": ("ended_s", "mean"), **{how: ("accuracy", how) for how in ("mean", "min", "max")}}
    return rounds.groupby("round").agg(**measures).reset_index()


# -- what noise costs in accuracy -------------------------------------------------------------------------------------


def accuracy_by_noise(runs: Sequence[RunRecords]) -> pd.DataFrame:
    """One row for each noise and ring: noise_multiplier (NaN: no noise), bits, runs, accuracy and its half_width.

    Runs that have measured no accuracy are left out, and runs whose noise is planned from an epsilon. Rows are in the
    order of the noise, then of the ring; the 95% interval is over runs that differ in something else (seeds).
    """
    rows = []
    for run in runs:
        section: dict[str, Any] = run.experiment["aggregation"]
        noise = section.get("noise") or {}
        measured = per_round(run)["accuracy"].dropna()
        if len(measured) and "bits" in section and noise.get("epsilon") is None:
            rows.append((noise.get("noise_multiplier"), section["bits"], float(measured.iloc[-1])))
    frame = pd.DataFrame(rows, columns=["noise_multiplier", "bits", "accuracy"]).astype({"noise_multiplier": float})
    found = []
    for (multiplier, bits), part in frame.groupby(["noise_multiplier", "bits"], dropna=False):
        interval = mean_interval(part["accuracy"])
        found.append((multiplier, bits, len(part), interval.mean, interval.half_width))
    return pd.DataFrame(found, columns=["noise_multiplier", "bits", "runs", "accuracy", "half_width"])


def says_something(frame: pd.DataFrame) -> bool:
    """Whether there is noise, and more than one noise or ring to compare."""
    return len(frame) > 1 and bool(frame["noise_multiplier"].notna().any())


def accuracy_of_noise(frame: pd.DataFrame) -> Figure:
    """Accuracy by noise multiplier and by ring width, the runs without noise as a line; `frame` as of above."""
    noisy, without = frame[frame["noise_multiplier"].notna()], frame[frame["noise_multiplier"].isna()]
    panels = {"noise_multiplier": "Noise multiplier", "bits": "Ring width [bits]"}
    drawn = [key for key in panels if noisy[key].nunique() > 1] or ["noise_multiplier"]
    figure = Figure(figsize=(COLUMN_INCHES, 1.9 * len(drawn)), layout="constrained")
    for axes, key in zip(figure.subplots(len(drawn), 1, squeeze=False)[:, 0], drawn, strict=True):
        _points(axes, noisy, without, key)
        axes.set_xlabel(panels[key])
        axes.set_ylabel("Accuracy [%]")
        axes.grid()
    return figure


def _points(axes: Axes, noisy: pd.DataFrame, without: pd.DataFrame, key: str) -> None:
    """One line for each value of the other key."""
    other, told = ("bits", "{:g} bits") if key == "noise_multiplier" else ("noise_multiplier", "multiplier {:g}")
    compared = noisy.groupby(other).filter(lambda part: len(part) > 1)  # a single point is in the other panel
    shown = compared if len(compared) else noisy
    values = sorted(shown[key].unique())
    for (value, part), marker in zip(shown.groupby(other), "osD^v+x*" * len(shown), strict=False):
        axes.errorbar(
            [values.index(one) for one in part[key]],
            100 * part["accuracy"],
            yerr=100 * part["half_width"].fillna(0),
            marker=marker,
            markersize=3.5,
            capsize=2,
            linewidth=1.0,
            label=told.format(value),
        )
    for accuracy in without["accuracy"]:
        axes.axhline(100 * accuracy, color="black", linewidth=0.8, linestyle=":", label="no noise")
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.legend(loc="best")
