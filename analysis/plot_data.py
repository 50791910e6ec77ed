"""Rows of data for figures whose curves have no table of their own, e.g. those of a paper."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle, StepPatch

_ENDS = ("x_low", "x_high", "y_low", "y_high")
_COLUMNS = ["panel", "x_axis", "y_axis", "series", "colour", "mark", "x", "y", *_ENDS]


def plot_data(figure: Figure) -> pd.DataFrame:
    """Return one row for each point of a line, bar, band, step and reference line, in the units of the axes.

    Columns: panel (its title, or its number), x_axis and y_axis (their labels), series (its name in the legend),
    colour, mark (``point``, ``bar``, ``step``, ``band``, ``reference``), x, y, and where it reaches (an error bar, a
    bar, a band): x_low, x_high, y_low, y_high. Pictures are left out.
    """
    rows = []
    for number, axes in enumerate(figure.axes, start=1):
        titles = [axes.get_title(loc=loc) for loc in ("left", "center", "right")]
        panel = next(filter(None, titles), str(number))
        where = {"panel": panel, "x_axis": axes.get_xlabel(), "y_axis": axes.get_ylabel()}
        rows += [{**where, **mark} for mark in _of_axes(axes)]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _of_axes(axes: Axes) -> Iterator[dict[str, Any]]:
    inside: set[int] = set()
    for container in axes.containers:
        if isinstance(container, ErrorbarContainer):
            yield from _error_bars(container)
            line, caps, bars = container.lines
            inside |= {id(part) for part in (line, *caps, *bars)}
    for line in axes.lines:
        if id(line) not in inside:
            yield from _line(line, axes)
    for patch in axes.patches:
        if isinstance(patch, StepPatch):
            values, edges, _ = patch.get_data()
            for value, low, high in zip(values, edges[:-1], edges[1:], strict=True):
                yield {**_look(patch), "mark": "step", "y": value, "x_low": low, "x_high": high}
        elif isinstance(patch, Rectangle):
            low, high = patch.get_x(), patch.get_x() + patch.get_width()
            bottom, top = patch.get_y(), patch.get_y() + patch.get_height()
            ends = dict(zip(_ENDS, (low, high, bottom, top), strict=True))
            yield {**_look(patch), "mark": "bar", **ends}
    for collection in axes.collections:
        if id(collection) in inside:
            continue
        if isinstance(collection, PathCollection):
            for x, y in np.ma.getdata(collection.get_offsets()):
                yield {**_look(collection), "mark": "point", "x": x, "y": y}
        elif isinstance(collection, PolyCollection):
            for path in collection.get_paths():
                vertices = np.asarray(path.vertices)
                for x in np.unique(vertices[:, 0]):
                    here = vertices[vertices[:, 0] == x, 1]
                    ends = {"y_low": here.min(), "y_high": here.max()}
                    yield {**_look(collection), "mark": "band", "x": x, **ends}


def _error_bars(container: ErrorbarContainer) -> Iterator[dict[str, Any]]:
    line, _, bars = container.lines
    if line is None:
        return
    segments = [np.asarray(each.get_segments()) for each in bars]
    for place, (x, y) in enumerate(np.asarray(line.get_xydata())):
        mark: dict[str, Any] = {**_look(container), "mark": "point", "x": x, "y": y}
        for ends in segments:
            for axis, name in enumerate("xy"):
                if ends[place, 0, axis] != ends[place, 1, axis]:
                    mark |= {f"{name}_low": ends[place, 0, axis], f"{name}_high": ends[place, 1, axis]}
        yield mark


def _line(line: Line2D, axes: Axes) -> Iterator[dict[str, Any]]:
    points = np.asarray(line.get_xydata(), float)
    if not len(points):  # stands in a legend for others
        return
    transform = line.get_transform()
    if transform == axes.transData:
        yield from ({**_look(line), "mark": "point", "x": x, "y": y} for x, y in points)
    elif transform == axes.get_yaxis_transform(which="grid"):  # axhline
        yield {**_look(line), "mark": "reference", "y": points[0, 1]}
    elif transform == axes.get_xaxis_transform(which="grid"):  # axvline
        yield {**_look(line), "mark": "reference", "x": points[0, 0]}


def _look(artist: Any) -> dict[str, str]:
    """Return the name of an artist in the legend (empty: none), and its colour, which identifies it without a name."""
    label = str(artist.get_label() or "")
    part = artist.lines[0] if isinstance(artist, ErrorbarContainer) else artist
    colour: Any = part.get_color() if isinstance(part, Line2D) else part.get_facecolor()
    colour = colour[0] if np.ndim(colour) == 2 and len(colour) else colour
    # Matplotlib names artists without a label with an underscore.
    return {"series": "" if label.startswith("_") else label, "colour": to_hex(colour) if np.size(colour) else ""}
