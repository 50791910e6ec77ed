"""Lines at targets, with labels placed on their line and clear of curves."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from analysis.comparison.targets import Target
from analysis.figures.curves import keep_within
from analysis.style import figure_text

_GAP = 1.5  # points between a line and its label
_PLACES = np.linspace(0.01, 0.99, 25)  # left or right ends tried for a label, in widths of the panel
_MARKER_POINTS = 2.5


def add_target_lines(
    figure: Figure, panels: Sequence[Axes], targets: Sequence[Target], percent: float, top: float | None
) -> None:
    """Draw a dotted line for each target, with its label just above the line and clear of curves.

    A label goes below its line if curves leave no room above it, and beside the panel if there is no room at all.

    Args:
        figure: with all its curves and its legend.
        panels: panels of the figure with curves.
        targets: of the metric in the figure.
        percent: factor for a threshold.
        top: end of the metric's range, see `keep_within`.
    """
    for axes in panels:
        for target in targets:
            axes.axhline(percent * target.threshold, color="#555555", linewidth=0.8, linestyle=(0, (1, 1.5)))
    for axes in panels:  # panels share their axes, so all lines have to exist first
        keep_within(axes, top)
    if targets:
        figure.draw_without_rendering()  # rendering makes the layout place the panels
    labels = [[(_label(axes, target, percent), target) for target in targets] for axes in panels]
    for form in ("target {}", "{}"):  # use the shorter form in all panels if the longer form does not fit in one
        placed = [_place_all(axes, of_panel, form) for axes, of_panel in zip(panels, labels, strict=True)]
        if all(placed):
            break


def _place_all(axes: Axes, labels: Sequence[tuple[Annotation, Target]], form: str) -> bool:
    """Place the labels of a panel; return whether all have a place in it."""
    occupied: list[Bbox] = []
    all_placed = True
    for label, target in labels:
        text = form.format(target.label.removeprefix(f"{target.metric} "))
        label.set_text(figure_text(text.replace(" ", "\N{NO-BREAK SPACE}")))
        all_placed &= _place(label, axes, target, occupied)
        occupied.append(label.get_window_extent())
    return all_placed


def _label(axes: Axes, target: Target, percent: float) -> Annotation:
    """Return the label, without its text and place."""
    options: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "color": "#444444"}
    label = axes.annotate("", (1, percent * target.threshold), (2, 0), ("axes fraction", "data"), **options)
    label.set_gid(f"target {target.column}")
    return label


def _place(label: Annotation, axes: Axes, target: Target, taken: Sequence[Bbox]) -> bool:
    """Move the label to the first free place of the panel; otherwise put it beside the panel and return False."""
    curves, bands, level = _curves(axes), _bands(axes), label.xy[1]
    from_left = target.metric == "accuracy"  # curves of an accuracy rise, so there is room above the line on the left
    for above, avoided in itertools.product((True, False), (bands, [])):
        label.set(position=(0, _GAP if above else -_GAP))
        label.set(va="bottom" if above else "top", ha="left" if from_left else "right")
        for place in _PLACES if from_left else _PLACES[::-1]:
            label.xy = (place, level)
            box = label.get_window_extent()
            if _is_free(box, axes, taken, curves) and not any(path.intersects_bbox(box) for path in avoided):
                label.set_in_layout(False)  # in the layout, the label would move the panels again
                return True
    label.xy = (1, level)
    label.set(position=(2, 0), ha="left", va="center", in_layout=True)
    return False


def _is_free(box: Bbox, axes: Axes, taken: Sequence[Bbox], curves: Sequence[Path]) -> bool:
    """Return whether the box is in the panel, clear of curves, other labels and lines."""
    figure, frame = axes.get_figure(root=True), axes.get_window_extent()
    assert figure is not None
    if not (frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1):
        return False
    levels = [
        axes.transData.transform(np.array([0.0, np.asarray(line.get_xydata())[0, 1]]))[1]
        for line in axes.lines
        if _is_level(line, axes)
    ]
    if any(box.overlaps(other) for other in taken) or any(box.y0 < level < box.y1 for level in levels):
        return False
    around = box.padded(_MARKER_POINTS * figure.dpi / 72)
    return not any(path.intersects_bbox(around, filled=False) for path in curves)


def _is_level(line: Line2D, axes: Axes) -> bool:
    return line.get_transform() == axes.get_yaxis_transform(which="grid")


def _curves(axes: Axes) -> list[Path]:
    """Return the curves of a panel in pixels."""
    lines = [
        line for line in axes.lines if line.get_transform() == axes.transData and len(np.atleast_1d(line.get_xdata()))
    ]
    return [axes.transData.transform_path(Path(np.asarray(line.get_xydata(), float))) for line in lines]


def _bands(axes: Axes) -> list[Path]:
    """Return the bands of a panel in pixels."""
    bands = [collection for collection in axes.collections if isinstance(collection, PolyCollection)]
    return [axes.transData.transform_path(path) for band in bands for path in band.get_paths()]
