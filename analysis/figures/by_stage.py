"""Round time and traffic by stage, as stacked bars."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.comparison.measures import FAILED, by_stage, mean_by_stage, per_update_by_stage, stage_order
from analysis.comparison.rows import ComparisonRow
from analysis.figures.elements import (
    FAILED_LOOK,
    FigureWithData,
    bars,
    fitted,
    interval_note,
    named,
    over_runs,
    part_handles,
    positions,
    protocol_axis,
)
from analysis.stage_looks import stage_looks
from analysis.statistics import Interval
from analysis.style import width
from analysis.tables import Unit, bytes_unit, seconds_unit

COMPLETED = "completed round"
"""Part in the data: the sum over the stages of a completed round, with its interval."""


def round_time(rows: Sequence[ComparisonRow], columns: int = 1) -> FigureWithData | str:
    """Draw the mean completed round by stage; hatched: the time of failed rounds per completed round.

    The error bar is the 95% interval of the mean round time over the seeds; of a single run over its rounds.

    Args:
        rows: from `analysis.comparison.rows.rows_of`.
        columns: of the page, 1 or 2.

    Returns:
        the figure, or the reason for its absence.
    """
    by_round = [_of_row(row) for row in rows]
    stages = [_mean_stages(row, frames) for row, frames in zip(rows, by_round, strict=True)]
    if all(frame.empty for frame in stages):
        return "no round was completed"
    unit = seconds_unit(frame["duration_s"].sum() for frame in stages)
    totals = {"duration_s": [_total(frames, "duration_s") for frames in by_round]}
    figure = _bars(rows, stages, totals, {"duration_s": ""}, unit, "Round time", columns)
    return FigureWithData("round-time-by-stage", figure, _data(rows, stages, totals, {"duration_s": "duration_s"}))


def traffic(rows: Sequence[ComparisonRow], columns: int = 1) -> FigureWithData | str:
    """Draw the bytes between server and clients in a mean completed round, by stage and direction.

    Args:
        rows, columns: as for `round_time`.

    Returns:
        the figure, or the reason for its absence.
    """
    by_round = [_of_row(row) for row in rows]
    stages = [_mean_stages(row, frames) for row, frames in zip(rows, by_round, strict=True)]
    if all(frame.empty for frame in stages):
        return "no round was completed"
    ways = {"bytes_down": "Server to clients", "bytes_up": "Clients to server"}
    unit = bytes_unit(frame[way].sum() for frame in stages for way in ways)
    totals = {way: [_total(frames, way) for frames in by_round] for way in ways}
    figure = _bars(rows, stages, totals, ways, unit, "Traffic per round", columns)
    return FigureWithData("traffic-by-stage", figure, _data(rows, stages, totals, {way: way for way in ways}))


def _of_row(row: ComparisonRow) -> list[pd.DataFrame]:
    """Return each run's rounds by stage."""
    return [by_stage(run) for run in row.runs]


def _mean_stages(row: ComparisonRow, by_round: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return mean_by_stage([per_update_by_stage(run, frame) for run, frame in zip(row.runs, by_round, strict=True)])


def _total(by_round: Sequence[pd.DataFrame], column: str) -> Interval:
    """Return the total of a completed round over its stages."""
    done = [frame[frame["outcome"] == "completed"] for frame in by_round]
    return over_runs([frame.groupby("round")[column].sum() for frame in done])


def _data(
    rows: Sequence[ComparisonRow],
    stages: Sequence[pd.DataFrame],
    totals: Mapping[str, Sequence[Interval]],
    measures: Mapping[str, str],
) -> pd.DataFrame:
    """Return a row per bar's part and measure, and one for its sum, with the half-width of its interval."""
    records = []
    for place, (row, frame) in enumerate(zip(rows, stages, strict=True)):
        for column, measure in measures.items():
            start = {**named(row), "measure": measure}
            records += [{**start, "part": part, "value": value} for part, value in frame[column].items()]
            total = totals[column][place]
            records.append({**start, "part": COMPLETED, "value": total.mean, "half_width": total.half_width})
    return pd.DataFrame(records).astype({"value": float, "half_width": float})


def _bars(
    rows: Sequence[ComparisonRow],
    stages: Sequence[pd.DataFrame],
    totals: Mapping[str, Sequence[Interval]],
    titles: Mapping[str, str],
    unit: Unit,
    label: str,
    columns: int,
) -> Figure:
    """Return a figure of stacked bars: a panel for each of the columns of `stages`, under its title."""
    places, height = positions(rows)
    looks = stage_looks(stage_order([[name for name in frame.index if name != FAILED] for frame in stages]))
    handles = part_handles(looks)
    if any(frame["duration_s"].get(FAILED, 0.0) for frame in stages):
        handles.append(Patch(linewidth=0.5, label=FAILED, **FAILED_LOOK))
    any_interval = any(total.half_width is not None for column in totals.values() for total in column)
    note = f"error bars: {interval_note([len(row.runs) for row in rows], 'rounds')}" if any_interval else ""
    legend = fitted([*looks, FAILED][: len(handles)], width(columns), note)
    inches = sum(height + (0.22 if title else 0) for title in titles.values()) + 0.45 + legend.inches
    figure = Figure(figsize=(width(columns), inches), layout="constrained")
    panels = figure.subplots(len(titles), 1, sharex=True, squeeze=False)[:, 0]
    ends = []
    for axes, (column, title) in zip(panels, titles.items(), strict=True):
        axes.set_title(title, loc="left")
        half_widths = [total.half_width for total in totals[column]]
        ends.append(bars(axes, places, [frame[column] for frame in stages], half_widths, unit, looks))
        protocol_axis(axes, rows, places)
    panels[-1].set_xlim(0, max(ends))
    panels[-1].set_xlabel(f"{label} [{unit.symbol}]")
    legend.add_to(figure, handles)
    return figure
