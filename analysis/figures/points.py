"""Points with error bars over a numeric axis, or over names: a marker and a colour for each series."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator

from analysis.legends import MARKERS as MARKERS
from analysis.style import figure_lines
from analysis.tables import Unit

_FEW = 8  # values that an axis can name one by one
_LETTER_INCHES, _LINE_INCHES = 0.056, 0.13
_MARGIN_INCHES = 0.65  # of a panel, left of its axis
_LONGEST = 24  # letters of a name on its side
_HEADROOM, _HEADROOM_OF_ARROWS = 1.05, 1.2  # of an axis that begins at 0, above its highest point
_ARROW_POINTS = [(0.0, 0.0), (0.0, 1.0), (-0.25, 0.65), (0.0, 1.0), (0.25, 0.65)]
_ARROW_CODES = [Path.MOVETO, Path.LINETO, Path.MOVETO, Path.LINETO, Path.LINETO]
_ARROW = Path(_ARROW_POINTS, _ARROW_CODES)
_ARROW_ON_A_FOOT = Path([*_ARROW_POINTS, (-0.35, 0.0), (0.35, 0.0)], [*_ARROW_CODES, Path.MOVETO, Path.LINETO])
_ARROW_LOOK: dict[str, Any] = {
    "fillstyle": "none",
    "linestyle": "none",
    "markersize": 22,  # twice the length of the arrow
    "markeredgewidth": 1.0,
    "zorder": 3,
}


@dataclass(frozen=True)
class Look:
    """How a series is drawn."""

    colour: str
    marker: str

    @property
    def handle(self) -> Line2D:
        """For a legend."""
        return Line2D([], [], color=self.colour, marker=self.marker, markersize=4, linewidth=1.0)


@dataclass(frozen=True)
class Series:
    """One series of one panel, in base units.

    Attributes:
        look: its colour and marker.
        x: `(n,)` numbers, or places of names.
        y, half_width: `(n,)`; NaN: no such point, no interval.
        is_open: `(n,)` which points are lower bounds: hollow, with an arrow upwards.
        is_missing: `(n,)` which lower bounds stand for nothing that was measured: an arrow alone. None: none.
    """

    look: Look
    x: pd.Series
    y: pd.Series
    half_width: pd.Series
    is_open: pd.Series
    is_missing: pd.Series | None = None


def draw_points(
    axes: Axes, series: Sequence[Series], unit: Unit, *, joined: bool, top: float | None = None, above_0: bool = True
) -> None:
    """Draw the series; points over names stand beside each other and are not joined by lines.

    Args:
        axes: where.
        series: in the order of the legend.
        unit: of y.
        joined: x is a number.
        top: where y ends at the latest, in base units.
        above_0: y is never below 0.
    """
    step = 0 if joined else min(0.12, 0.7 / max(1, len(series)))
    for place, each in enumerate(series):
        here = each.y.notna().to_numpy()
        x = each.x[here].to_numpy(float) + step * (place - (len(series) - 1) / 2)
        y, half = each.y[here].to_numpy(float), each.half_width[here].fillna(0).to_numpy(float)
        low = np.maximum(y - half, np.minimum(y, 0)) if above_0 else y - half
        high = np.minimum(y + half, max(top, y.max(initial=0))) if top is not None else y + half
        bars = np.vstack([y - low, high - y]) / unit.size
        missing = np.zeros(len(y), bool) if each.is_missing is None else each.is_missing[here].to_numpy(bool)
        bars[:, missing] = 0.0
        look: dict[str, Any] = {
            "color": each.look.colour,
            "marker": each.look.marker,
            "markersize": 4,
        }
        line: dict[str, Any] = {
            "linestyle": "-" if joined else "none",
            "linewidth": 1.0,
            "capsize": 2,
            "elinewidth": 0.8,
        }
        measured = np.where(missing, np.nan, y / unit.size)  # a line to an arrow would look like a measurement
        drawn = axes.errorbar(x, measured, yerr=bars, markeredgecolor="white", markeredgewidth=0.4, **look, **line)
        bound = each.is_open[here].to_numpy(bool) & ~missing
        look |= {"markerfacecolor": "white", "markeredgewidth": 0.9, "linestyle": "none", "zorder": 3}
        arrows = [
            *axes.plot(x[bound], y[bound] / unit.size, color=each.look.colour, marker=_ARROW, **_ARROW_LOOK),
            *axes.plot(
                x[missing], y[missing] / unit.size, color=each.look.colour, marker=_ARROW_ON_A_FOOT, **_ARROW_LOOK
            ),
        ]
        for marks in (drawn[0], *arrows, *axes.plot(x[bound], y[bound] / unit.size, **look)):
            marks.set_clip_on(False)  # on the axis, too, they are whole
            marks.set_in_layout(False)


def bound_handle() -> Line2D:
    """What stands for lower bounds in a legend."""
    return Line2D([], [], color="#555555", marker=_centred(_ARROW), **_ARROW_LOOK | {"markersize": 9})


def missing_handle() -> Line2D:
    """What stands in a legend for lower bounds of what was never measured."""
    return Line2D([], [], color="#555555", marker=_centred(_ARROW_ON_A_FOOT), **_ARROW_LOOK | {"markersize": 9})


def _centred(arrow: Path) -> Path:
    return Path(np.asarray(arrow.vertices) - (0, 0.5), arrow.codes)


def end_above_points(panels: Sequence[Axes], least: float = 0.0) -> None:
    """Let the y axes of some panels go from 0 to the same end, a twentieth above the highest point of all, and more
    where arrows need it.

    Args:
        panels: with all their points.
        least: where the axes end at the earliest.
    """
    highest = max([axes.dataLim.y1 for axes in panels if np.isfinite(axes.dataLim.y1)], default=0.0)
    lines = [line for axes in panels for line in axes.lines if isinstance(line.get_marker(), Path)]
    headroom = _HEADROOM_OF_ARROWS if any(np.size(line.get_xdata()) for line in lines) else _HEADROOM
    for axes in panels:
        axes.set_ylim(0, max(headroom * highest, least) or 1.0)


def name_axis(axes: Axes, names: Sequence[str]) -> float:
    """The names below an axis: in lines, or on their side where they are many or long.

    Returns the inches of height that they take beyond a line or two.
    """
    figure, spec = axes.get_figure(root=True), axes.get_subplotspec()
    assert figure is not None
    assert spec is not None
    room = (figure.get_figwidth() / spec.get_gridspec().ncols - _MARGIN_INCHES) / len(names)
    letters = int(room / _LETTER_INCHES)
    longest = max(len(word) for name in names for word in re.split(r"[\s,-]", name))
    if upright := letters > longest or letters >= _LONGEST:
        labels = [figure_lines(name, letters) for name in names]
    else:
        lines = max(1, int(room / _LINE_INCHES))
        labels = [figure_lines(name, _LONGEST, lines) for name in names]
        if len(set(map(tuple, labels))) < len(set(names)):  # shortened to the same
            labels = [figure_lines(name, 2 * _LONGEST, lines) for name in names]
    axes.set_xticks(range(len(names)), ["\n".join(label) for label in labels], rotation=0 if upright else 90)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.tick_params(axis="x", length=0)
    if upright:
        return _LINE_INCHES * max(0, max(map(len, labels)) - 2)
    return _LETTER_INCHES * max(len(line) for label in labels for line in label)


def log_axis(axes: Axes) -> None:
    """A logarithmic y axis whose ticks are numbers, not powers; also within a decade, at 1, 2 and 5."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    locator = LogLocator(subs=(1.0, 2.0, 5.0) if high < 1000 * low else (1.0,))
    few = sum(low <= tick <= high for tick in locator.tick_values(low, high)) < 2
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]) if few else locator)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def number_axis(axes: Axes, values: Sequence[float], *, is_log: bool) -> None:
    """Ticks at the values themselves where they are few and have room; else where it is usual."""
    each = sorted(set(values))
    if is_log:
        axes.set_xscale("log")
        if len(each) <= _FEW:
            axes.xaxis.set_major_locator(FixedLocator(each))
        else:
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=_FEW))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        return
    gaps = np.diff(each)
    if len(each) <= _FEW and gaps.min() > 0.08 * (each[-1] - each[0]):
        axes.set_xticks(each, [f"{value:g}" for value in each])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
