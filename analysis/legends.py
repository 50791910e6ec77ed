"""Legends below the panels of a figure, in as many columns as fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.patches import Patch

from analysis.style import figure_lines

MARKERS = "osD^vPX*"
_LETTER_INCHES = 0.052  # of 7 points, on average
_HANDLE_INCHES = 0.35
_LINE_LETTERS = 2.4  # length of a line in a legend; shorter ones make dashes look like dots


@dataclass(frozen=True)
class FittedLegend:
    """A legend below the panels, in as many columns as fit.

    Attributes:
        labels: of its entries, in lines that are not too long; none where a legend would tell nothing apart.
        columns: of the legend.
        title: meaning of bands or error bars; empty: none.
        inches: of height.
    """

    labels: Sequence[str]
    columns: int
    title: str
    inches: float

    def add_to(self, figure: Any, handles: Sequence[Any]) -> None:
        """Draw it at the lower end of a figure or a part of it."""
        if not self.labels:
            if self.title:
                figure.supxlabel(self.title, fontsize=7)
            return
        options: dict[str, Any] = {"title": self.title, "title_fontsize": 7} if self.title else {}
        if not any(isinstance(handle, Patch) for handle in handles):
            options["handlelength"] = _LINE_LETTERS
        legend = figure.legend(
            handles=list(handles)[: len(self.labels)],
            labels=list(self.labels),
            loc="outside lower center",
            ncols=self.columns,
            **options,
        )
        legend.get_title().set_multialignment("center")


def fitted_lines(labels: Sequence[str], inches: float, title: str = "") -> FittedLegend:
    """Return `fitted` for lines and markers; a single line needs no name, only the title.

    Args:
        labels, inches, title: see `fitted`.
    """
    return fitted(labels if len(labels) > 1 else [], inches, title)


def fitted(labels: Sequence[str], inches: float, title: str = "", at_most: int = 4) -> FittedLegend:
    """Return the layout of a legend below a figure.

    Args:
        labels: the entries.
        inches: width of the figure.
        title: heading of the legend; empty: none.
        at_most: largest number of columns.
    """
    letters = int((inches - _HANDLE_INCHES) / _LETTER_INCHES)
    lines = [figure_lines(label, letters) for label in labels]
    longest = max((len(line) for each in lines for line in each), default=1)
    fits = int(inches / (_HANDLE_INCHES + _LETTER_INCHES * longest))
    columns = max(1, min(len(labels), fits, at_most))
    entries = -(-sum(map(len, lines)) // columns)
    heads = title.count("\n") + 1 if title else 0
    return FittedLegend(["\n".join(each) for each in lines], columns, title, 0.14 * (entries + heads) + 0.1)
