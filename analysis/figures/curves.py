"""Lines of several protocols over time, rounds or traffic: panels for each setting, bands of 95% intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.comparison.rows import ComparisonRow
from analysis.figures.elements import fitted_lines, interval_note
from analysis.statistics import mean_interval
from analysis.style import SERIES_COLOURS, axis_label, figure_lines, protocol_colours, width

_LINES = ("-", "--", ":", "-.")
_MARKERS = "osD^vP"
_PANEL_INCHES = 1.75
_SHALLOW_INCHES = 1.4  # height of a panel if there are many below each other
_MANY = 4
_LETTER_INCHES = 0.062  # of a label beside an axis
_LETTER_BELOW_INCHES = 0.052  # of a label below an axis
_LINE_INCHES = 0.12  # of a label below an axis
_BETWEEN_INCHES = 0.3  # of labels between panels
_ABREAST = {1: 2, 2: 3}  # settings beside each other on one and on both columns of a page


@dataclass(frozen=True)
class Panel:
    """One of the panels of each setting; panels with the same `x` or `y` share that axis.

    Attributes:
        x, y: labels of its axes, with units.
        top: end of the range of `y`: bands are cut there, and at 0. None: no end.
    """

    x: str
    y: str
    top: float | None = None


def with_intervals(frame: pd.DataFrame, by: str, columns: Sequence[str]) -> pd.DataFrame:
    """Return a row for each value of `by` with the mean and ``_half_width`` of each column (NaN for a single value).

    Args:
        frame: the observations.
        by: column to group by.
        columns: to average.
    """
    grouped = frame.groupby(by)
    means = grouped[list(columns)].mean()
    for column in columns:
        half_widths = [mean_interval(values).half_width for _, values in grouped[column]]
        means[f"{column}_half_width"] = pd.Series(half_widths, means.index, dtype=float)
    return means.reset_index()


def settings_of(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return the settings, in their order."""
    return list(dict.fromkeys(row.setting for row in rows))


def over_settings(
    rows: Sequence[ComparisonRow],
    panels: Sequence[Panel],
    lines: Sequence[Sequence[tuple[pd.Series, pd.DataFrame]]],
    columns: int,
    linewidth: float = 1.3,
) -> tuple[Figure, list[list[Axes]]]:
    """Draw the panels of each setting with a line for each row, and a legend that explains the bands.

    Args:
        rows: rows of a setting are adjacent.
        panels: of each setting.
        lines: of each row, for each panel: x, and y as columns mean and half_width (NaN: no band).
        columns: of the page, 1 or 2.
        linewidth: in points.

    Returns:
        the figure, and the axes of each setting.
    """
    settings = settings_of(rows)
    labels = list(dict.fromkeys(row.label for row in rows))
    bands = any(y["half_width"].notna().any() for parts in lines for _, y in parts)
    note = interval_note([len(row.runs) for row in rows]) if bands else ""
    legend = fitted_lines(labels, width(columns), f"bands: {note}" if note else "")
    figure, grid = grid_of(settings, panels, columns, legend.inches)
    colours, styles, handles = row_colours(rows), line_styles(rows), {}
    for row, parts in zip(rows, lines, strict=True):
        colour, (line, marker) = colours[row.label], styles[row.label]
        for axes, panel, (x, y) in zip(grid[settings.index(row.setting)], panels, parts, strict=True):
            look = {"color": colour, "linewidth": linewidth, **_marked(marker, len(x))}
            (handles[row.label],) = axes.plot(x, y["mean"], line, **look)
            if y["half_width"].notna().any():
                low, high = (y["mean"] - y["half_width"]).clip(lower=0), (y["mean"] + y["half_width"])
                axes.fill_between(x, low, high.clip(upper=panel.top), color=colour, alpha=0.15, linewidth=0)
    for axes in figure.axes:
        axes.set_xlim(left=0)
    legend.add_to(figure, [handles[label] for label in labels])
    return figure, grid


def grid_of(
    settings: Sequence[str], panels: Sequence[Panel], columns: int, legend_inches: float
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure with empty panels: of a setting below each other, or beside each other if there is one setting.

    Args:
        settings: their names.
        panels: of each setting.
        columns: of the page, 1 or 2.
        legend_inches: height of the legend.
    """
    beside = columns == 2 and len(settings) == 1
    abreast = len(panels) if beside else min(_ABREAST[columns], len(settings))
    abreast = 1 if columns == 1 and len(settings) * len(panels) <= _MANY else abreast
    high = 1 if beside else len(panels) * -(-len(settings) // abreast)
    each = _PANEL_INCHES + 0.5 if beside else _SHALLOW_INCHES if high > _MANY else _PANEL_INCHES
    # A label below a panel may be wider than its axis, but not wider than the panel's share of the figure.
    below = [axis_label(panel.x, int(width(columns) / abreast / _LETTER_BELOW_INCHES)) for panel in panels]
    lines_below = sum(label.count("\n") for label in below) * (1 if beside else -(-len(settings) // abreast))
    inches = high * each + lines_below * _LINE_INCHES + legend_inches
    figure = Figure(figsize=(width(columns), inches), layout="constrained")
    letters = int(width(columns) / abreast / 0.068)
    grid: list[list[Axes]] = []
    first: dict[str, Axes] = {}
    for place, setting in enumerate(settings):
        grid.append([])
        for number, panel in enumerate(panels):
            line = 0 if beside else place // abreast * len(panels) + number
            column = number if beside else place % abreast
            axes = figure.add_subplot(high, abreast, line * abreast + column + 1, sharey=first.get(panel.y))
            first.setdefault(panel.y, axes)
            if number and panel.x == panels[number - 1].x and not beside:
                axes.sharex(grid[-1][-1])
                grid[-1][-1].tick_params(labelbottom=False)
            if number + 1 == len(panels) or panel.x != panels[number + 1].x or beside:
                axes.set_xlabel(below[number])
            if not column or (beside and panel.y != panels[0].y):
                axes.set_ylabel(axis_label(panel.y, int((each - _BETWEEN_INCHES) / _LETTER_INCHES)))
            axes.grid()
            grid[-1].append(axes)
        grid[-1][0].set_title("\n".join(figure_lines(setting, letters)) if setting else "")
    figure.align_ylabels()
    return figure, grid


def keep_within(axes: Axes, top: float | None) -> None:
    """End the y axis at 0, and slightly above `top` if it reaches further.

    Args:
        axes: with all their lines.
        top: end of the range; None: no end.
    """
    low, high = axes.get_ylim()
    axes.set_ylim(max(0.0, low), high if top is None else min(high, 1.03 * top))


def row_colours(rows: Sequence[ComparisonRow]) -> dict[str, str]:
    """Return the colour of each label: its protocol's, or its own if all rows have the same protocol."""
    if len({row.protocol for row in rows}) == 1 and rows[0].protocol:
        labels = dict.fromkeys(row.label for row in rows)
        if len(labels) > 1:
            return dict(zip(labels, cycle(SERIES_COLOURS), strict=False))
    colours = protocol_colours([row.protocol or row.label for row in rows])
    return {row.label: colours[row.protocol or row.label] for row in rows}


def line_styles(rows: Sequence[ComparisonRow]) -> dict[str, tuple[str, str]]:
    """Return line and marker of each label; rows of one protocol differ in the line, even if colours repeat."""
    labels = list(dict.fromkeys(row.label for row in rows))
    styles, counts = {}, dict.fromkeys([row.protocol for row in rows], 0)
    for place, label in enumerate(labels):
        protocol = next(row.protocol for row in rows if row.label == label)
        line = counts[protocol] + counts[protocol] // len(SERIES_COLOURS)
        styles[label] = (_LINES[line % len(_LINES)], _MARKERS[place % len(_MARKERS)])
        counts[protocol] += 1
    return styles


def _marked(marker: str, points: int) -> dict[str, Any]:
    """Return options for a line with about a dozen markers."""
    look = {"markersize": 3, "markeredgecolor": "white", "markeredgewidth": 0.4}
    return {"marker": marker, "markevery": max(1, points // 12), **look}
