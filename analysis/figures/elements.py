"""What several figures draw: stacked bars with a row for each protocol, and lines that tell protocols apart."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from analysis.comparison.rows import Row
from analysis.style import COLUMN_INCHES, figure_text, protocol_colours
from analysis.tables import Unit

FAILED = "skipped and aborted rounds"
FAILED_LOOK: dict[str, Any] = {"facecolor": "white", "edgecolor": "#7F7F7F", "hatch": "/////"}
LEGEND_COLUMNS = 2
_LINES = ("-", "--", ":", "-.")
_MARKERS = "osD^vP"
_BAR = 0.72


def random_first(rows: Sequence[Row]) -> list[Row]:
    """As in the table: the usual baseline first in each setting."""
    settings = list(dict.fromkeys(row.setting for row in rows))
    return sorted(rows, key=lambda row: (settings.index(row.setting), row.protocol != "random"))


def positions(rows: Sequence[Row]) -> tuple[list[float], float]:
    """Where each row's bar goes (downwards, with room for the setting's name above its first), and inches of height."""
    places, at, setting = [], 0.0, ""
    for row in rows:
        if row.setting != setting:
            setting = row.setting
            at += 1.1 if at else 1.0
        places.append(at)
        at += 1
    return places, 0.23 * (at + 0.2)


def bars(
    axes: Axes,
    places: Sequence[float],
    columns: Sequence[pd.Series],
    unit: Unit,
    colours: Mapping[str, str],
    nothing: str = "no completed round",
) -> float:
    """One horizontal bar per row: parts stacked, failed rounds hatched, the numbers at its end.

    Args:
        places: from `positions`.
        columns: a row's values (in base units) by the name of the part; `FAILED` is the hatched one.
        unit: of the axis.
        colours: of each part, in the order in which they are stacked.
        nothing: stands where a row has no values.

    Returns how far the axis has to reach for the numbers to fit.
    """
    reach = 0.0
    for position, column in zip(places, columns, strict=True):
        values = (column / unit.size).to_dict()
        end = 0.0
        for part in [part for part in colours if part in values]:
            axes.barh(position, values[part], _BAR, end, color=colours[part], linewidth=0)
            end += values[part]
        failed, text = values.get(FAILED, 0.0), f"{end:.{unit.decimals}f}" if values else nothing
        if failed:
            axes.barh(position, failed, _BAR, end, linewidth=0.5, **FAILED_LOOK)
        if round(failed, unit.decimals):
            text += f" + {failed:.{unit.decimals}f}"
        start = (end + failed, position)
        axes.annotate(text, start, (3, 0), textcoords="offset points", va="center_baseline", fontsize=7)
        reach = max(reach, (end + failed) / (0.98 - 0.028 * len(text)))
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    return reach


def protocol_axis(axes: Axes, rows: Sequence[Row], places: Sequence[float]) -> None:
    """Labels at the bars, the names of settings in bold above their first bar."""
    ticks = {
        position: (textwrap.fill(figure_text(row.label), 26, break_long_words=False), False)
        for row, position in zip(rows, places, strict=True)
    }
    setting = ""
    for row, position in zip(rows, places, strict=True):
        if row.setting != setting:
            setting = row.setting
            ticks[position - 0.95] = (figure_text(setting), True)
    axes.set_yticks(list(ticks), [label for label, _ in ticks.values()])
    for label, (_, bold) in zip(axes.get_yticklabels(), ticks.values(), strict=True):
        label.set_fontweight("bold" if bold else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(places[-1] + 0.6, min(ticks) - 0.6)
    axes.grid(axis="x")


def part_handles(colours: Mapping[str, str]) -> list[Patch]:
    """Entries of a legend for the parts of the bars."""
    return [Patch(facecolor=colour, label=figure_text(part)) for part, colour in colours.items()]


def legend_inches(handles: Sequence[object]) -> float:
    """Height of a legend below the panels."""
    return 0.14 * -(-len(handles) // LEGEND_COLUMNS) + 0.1


def over_settings(
    rows: Sequence[Row], lines: Sequence[Sequence[tuple[pd.Series, Any]]], linewidth: float, **shared: Any
) -> tuple[Figure, Any]:
    """Two panels per setting, one below the other, with a line for each of its rows.

    Args:
        rows: see `random_first`.
        lines: of each row, for both panels: x, and y as columns mean, min and max; where a row has repetitions, a band
            goes from the least to the most.
        linewidth: in points.
        shared: axes, as for `Figure.subplots`.

    Returns:
        The figure, and `(2, settings)` axes.
    """
    settings = list(dict.fromkeys(row.setting for row in rows))
    wide = COLUMN_INCHES if len(settings) == 1 else 2.3 * len(settings)
    figure = Figure(figsize=(wide, 3.7), layout="constrained")
    panels = figure.subplots(2, len(settings), squeeze=False, **shared)
    colours = protocol_colours([row.protocol or row.label for row in rows])
    styles, handles = _line_styles(rows), {}
    for row, parts in zip(rows, lines, strict=True):
        colour, (line, marker) = colours[row.protocol or row.label], styles[row.label]
        for axes, (x, y) in zip(panels[:, settings.index(row.setting)], parts, strict=True):
            (handles[row.label],) = axes.plot(
                x,
                y["mean"],
                line,
                color=colour,
                linewidth=linewidth,
                **_marked(marker, len(x)),
                label=figure_text(row.label),
            )
            if len(row.runs) > 1:
                axes.fill_between(x, y["min"], y["max"], color=colour, alpha=0.15, linewidth=0)
    for axes, setting in zip(panels[0], settings, strict=True):
        axes.set_title(figure_text(setting))
    for axes in panels.flat:
        axes.grid()
        axes.set_xlim(left=0)
    figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=2 * len(settings))
    return figure, panels


def _line_styles(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Line and marker of each label: rows of one protocol have one colour and differ in the line."""
    labels = list(dict.fromkeys(row.label for row in rows))
    styles, counts = {}, dict.fromkeys([row.protocol for row in rows], 0)
    for place, label in enumerate(labels):
        protocol = next(row.protocol for row in rows if row.label == label)
        styles[label] = (_LINES[counts[protocol] % len(_LINES)], _MARKERS[place % len(_MARKERS)])
        counts[protocol] += 1
    return styles


def _marked(marker: str, points: int) -> dict[str, Any]:
    """A line of so many points with about a dozen markers on it."""
    look = {"markersize": 3, "markeredgecolor": "white", "markeredgewidth": 0.4}
    return {"marker": marker, "markevery": max(1, points // 12), **look}
