"""What a drawn figure looks like: which texts it shows, where, and what is under them."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox, BboxBase

from analysis.style import house_style

PIXEL, EDGE = 1.0, 6.0


def shown_texts(figure: Figure) -> list[tuple[str, Bbox]]:
    """The visible texts of a figure with their boxes in pixels, once it is drawn."""
    with house_style():
        FigureCanvasAgg(figure).draw()
    hidden = {id(text) for axes in figure.axes for text in _hidden_ticks(axes)}
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and _is_visible(text)]
    return [(text.get_text(), _box(text)) for text in texts if id(text) not in hidden]


def _box(text: Text) -> Bbox:
    return Text.get_window_extent(text) if isinstance(text, Annotation) else text.get_window_extent()


def _is_visible(text: Text) -> bool:
    return text.get_visible() and (text.axes is None or text.axes.get_visible())


def _hidden_ticks(axes: Axes) -> Iterator[Text]:
    """Labels of ticks that are switched off, or that lie outside of the axis."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        margin = 1e-6 * (high - low)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            within = low - margin <= tick.get_loc() <= high + margin
            yield tick.label2
            if not within or not tick.label1.get_visible():
                yield tick.label1


def overlapping(texts: Sequence[tuple[str, Bbox]]) -> list[tuple[str, str]]:
    """Pairs of texts that lie on each other."""
    return [(one, two) for (one, first), (two, second) in combinations(texts, 2) if _overlap(first, second)]


def _overlap(first: Bbox, second: Bbox) -> bool:
    both = Bbox.intersection(first, second)
    return both is not None and both.width > PIXEL and both.height > PIXEL


def outside(texts: Sequence[tuple[str, Bbox]], canvas: BboxBase) -> list[str]:
    """Texts that reach beyond the canvas by more than files show around it (`analysis.style.save` fits the page)."""
    return [
        text
        for text, box in texts
        if box.x0 < canvas.x0 - EDGE
        or box.x1 > canvas.x1 + EDGE
        or box.y0 < canvas.y0 - EDGE
        or box.y1 > canvas.y1 + EDGE
    ]


def target_labels(figure: Figure) -> list[tuple[Axes, Annotation]]:
    """The labels of lines at targets, and their panels."""
    texts = [(axes, text) for axes in figure.axes for text in axes.texts if isinstance(text, Annotation)]
    return [(axes, text) for axes, text in texts if str(text.get_gid() or "").startswith("target")]
