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

_FEW = 8  # largest number of values with a tick each
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
    """Colour and marker of a series."""

    colour: str
    marker: str

    @property
    def handle(self) -> Line2D:
        """Entry in a legend."""
        return Line2D([], [], color=self.colour, marker=self.marker, markersize=4, linewidth=1.0)


@dataclass(frozen=True)
class Series:
    """One series of one panel, in base units.

    Attributes:
        look: its colour and marker.
        x: `(n,)` numbers, or indices of names.
        y, half_width: `(n,)`; NaN: no such point, no interval.
        is_open: `(n,)` whether points are lower bounds: hollow, with an arrow upwards.
        is_missing: `(n,)` whether lower bounds stand for values never measured: only an arrow. None: no such points.
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
        axes: to draw into.
        series: in the order of the legend.
        unit: of y.
        joined: whether x is a number and lines join the points.
        top: end of the range of y, in base units.
        above_0: whether y is never below 0.
    """
    step = 0 if joined else min(0.12, 0.7 / max(1, len(series)))
    for place, one_series in enumerate(series):
        here = one_series.y.notna().to_numpy()
        x = one_series.x[here].to_numpy(float) + step * (place - (len(series) - 1) / 2)
        y, half = one_series.y[here].to_numpy(float), one_series.half_width[here].fillna(0).to_numpy(float)
        low = np.maximum(y - half, np.minimum(y, 0)) if above_0 else y - half
        high = np.minimum(y + half, max(top, y.max(initial=0))) if top is not None else y + half
        bars = np.vstack([y - low, high - y]) / unit.size
        missing = (
            np.zeros(len(y), bool) if one_series.is_missing is None else one_series.is_missing[here].to_numpy(bool)
        )
        bars[:, missing] = 0.0
        look: dict[str, Any] = {
            "color": one_series.look.colour,
            "marker": one_series.look.marker,
            "markersize": 4,
        }
        line: dict[str, Any] = {
            "linestyle": "-" if joined else "none",
            "linewidth": 1.0,
            "capsize": 2,
            "elinewidth": 0.8,
        }
        measured = np.where(missing, np.nan, y / unit.size)  # a line to an arrow would look like a measurement
        error_bars = axes.errorbar(x, measured, yerr=bars, markeredgecolor="white", markeredgewidth=0.4, **look, **line)
        bound = one_series.is_open[here].to_numpy(bool) & ~missing
        look |= {"markerfacecolor": "white", "markeredgewidth": 0.9, "linestyle": "none", "zorder": 3}
        arrows = [
            *axes.plot(x[bound], y[bound] / unit.size, color=one_series.look.colour, marker=_ARROW, **_ARROW_LOOK),
            *axes.plot(
                x[missing], y[missing] / unit.size, color=one_series.look.colour, marker=_ARROW_ON_A_FOOT, **_ARROW_LOOK
            ),
        ]
        for marks in (error_bars[0], *arrows, *axes.plot(x[bound], y[bound] / unit.size, **look)):
            marks.set_clip_on(False)  # markers on the axis are not clipped
            marks.set_in_layout(False)


def bound_handle() -> Line2D:
    """Return the legend's entry for lower bounds."""
    return Line2D([], [], color="#555555", marker=_centred(_ARROW), **_ARROW_LOOK | {"markersize": 9})


def missing_handle() -> Line2D:
    """Return the legend's entry for lower bounds of values that were never measured."""
    return Line2D([], [], color="#555555", marker=_centred(_ARROW_ON_A_FOOT), **_ARROW_LOOK | {"markersize": 9})


def _centred(arrow: Path) -> Path:
    return Path(np.asarray(arrow.vertices) - (0, 0.5), arrow.codes)


def end_above_points(panels: Sequence[Axes], least: float = 0.0) -> None:
    """Set the y axes of some panels to the range from 0 to slightly above the highest point, with room for arrows.

    Args:
        panels: with all their points.
        least: smallest end of the axes.
    """
    highest = max([axes.dataLim.y1 for axes in panels if np.isfinite(axes.dataLim.y1)], default=0.0)
    lines = [line for axes in panels for line in axes.lines if isinstance(line.get_marker(), Path)]
    headroom = _HEADROOM_OF_ARROWS if any(np.size(line.get_xdata()) for line in lines) else _HEADROOM
    for axes in panels:
        axes.set_ylim(0, max(headroom * highest, least) or 1.0)


def name_axis(axes: Axes, names: Sequence[str]) -> float:
    """Put names below an axis, upright or, if there are many or long names, rotated.

    Args:
        axes: with one point per name.
        names: in their order.

    Returns:
        inches of height beyond a line or two.
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
        if len(set(map(tuple, labels))) < len(set(names)):  # names were shortened to the same text
            labels = [figure_lines(name, 2 * _LONGEST, lines) for name in names]
    axes.set_xticks(range(len(names)), ["\n".join(label) for label in labels], rotation=0 if upright else 90)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.tick_params(axis="x", length=0)
    if upright:
        return _LINE_INCHES * max(0, max(map(len, labels)) - 2)
    return _LETTER_INCHES * max(len(line) for label in labels for line in label)


def log_axis(axes: Axes) -> None:
    """Make the y axis logarithmic, with numbers instead of powers at its ticks, also at 2 and 5 within a decade."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    locator = LogLocator(subs=(1.0, 2.0, 5.0) if high < 1000 * low else (1.0,))
    few = sum(low <= tick <= high for tick in locator.tick_values(low, high)) < 2
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]) if few else locator)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def number_axis(axes: Axes, values: Sequence[float], *, is_log: bool) -> None:
    """Set ticks at the values themselves if they are few and have room, otherwise at the usual places.

    Args:
        axes: with the points.
        values: of x.
        is_log: whether the x axis is logarithmic.
    """
    ticks = sorted(set(values))
    if is_log:
        axes.set_xscale("log")
        if len(ticks) <= _FEW:
            axes.xaxis.set_major_locator(FixedLocator(ticks))
        else:
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=_FEW))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        return
    gaps = np.diff(ticks)
    if len(ticks) <= _FEW and gaps.min() > 0.08 * (ticks[-1] - ticks[0]):
        axes.set_xticks(ticks, [f"{value:g}" for value in ticks])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
