"""How figures look and are written: width of a paper's columns, readable and embedded fonts, colours that colour-blind
readers tell apart; the data beside each."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.stage_looks import stage_looks
from analysis.tables import csv
from testbed.display import visible

COLUMN_INCHES = 3.5  # a column of a two-column paper (IEEE, ACM): figures here need no scaling
PAGE_INCHES = 7.16  # both columns and the gap between them
FORMATS = ("png", "pdf", "svg")
USUAL_FORMATS = ("png", "pdf")
_DPI = 200

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same figure on every machine
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 7.5,
    "axes.titleweight": "bold",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.2,
    "legend.columnspacing": 1.2,
    "legend.handletextpad": 0.5,
    "legend.labelspacing": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "grid.color": "#D9D9D9",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "hatch.linewidth": 0.6,
    "pdf.fonttype": 42,  # TrueType, as publishers ask for
    "ps.fonttype": 42,
    "svg.hashsalt": "testbed",  # else identifiers are random, and the file differs each time
}

# Protocols: the palette of Okabe and Ito (Color Universal Design, 2008).
_PROTOCOLS = {
    "random": "#000000",
    "lotto-server-centric": "#0072B2",
    "lotto-client-centric": "#D55E00",
    "batch-partition": "#009E73",
    "weighted-random": "#CC79A7",
    "partition": "#E69F00",
    "bernoulli": "#56B4E9",
    "verifiable-batch-partition": "#882255",
}
_OTHERS = ("#CC79A7", "#F0E442", "#56B4E9", "#AA4499", "#E69F00", "#332288", "#88CCEE")
SERIES_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9", "#882255")
"""Colours of other series, in this order, of the same palette."""


def protocol_colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each protocol, the same in every figure."""
    return _colours(names, _PROTOCOLS)


def stage_colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each stage, the same in every figure."""
    return {name: look.colour for name, look in stage_looks(names).items()}


def _colours(names: Sequence[str], colours_by_name: dict[str, str]) -> dict[str, str]:
    others = [name for name in dict.fromkeys(names) if name not in colours_by_name]
    spare = [colour for colour in _OTHERS if colour not in {colours_by_name.get(name) for name in names}]
    return {name: colours_by_name.get(name) or spare[others.index(name) % len(spare)] for name in names}


def figure_text(text: str) -> str:
    """`text` as Matplotlib shows it: no formulas, and in the legend also where it begins with an underscore."""
    shown = visible(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def figure_lines(text: str, letters: int, at_most: int | None = None) -> list[str]:
    """Return `figure_text` in lines, broken behind spaces, commas and hyphens if possible.

    Args:
        text: text for a figure.
        letters: largest number of letters in a line.
        at_most: largest number of lines, of which the last then ends in an ellipsis; None: any.

    Example:
        >>> figure_lines("time to accuracy", 8)
        ['time to', 'accuracy']
    """
    lines = [""]
    for piece in re.split(r"(?<=[ \t\n,-])", visible(text)):  # not at a no-break space
        if len(lines[-1]) + len(piece.rstrip()) > letters and lines[-1]:
            lines.append("")
        lines[-1] += piece
        while len(lines[-1].rstrip()) > letters:
            lines[-1:] = [lines[-1][:letters], lines[-1][letters:]]
    if at_most is not None and len(lines) > at_most:
        lines[at_most - 1 :] = [f"{lines[at_most - 1].rstrip()[: letters - 1]}…"]
    return [figure_text(line.rstrip()) for line in lines]


def axis_label(text: str, letters: int) -> str:
    """Return `figure_text` in as few lines as possible, of about equal length.

    Args:
        text: text for a figure.
        letters: largest number of letters in a line.
    """
    lines = figure_lines(text, letters)
    narrower = (figure_lines(text, few) for few in range(max(1, len(visible(text)) // len(lines)), letters))
    return "\n".join(next((fitting for fitting in narrower if len(fitting) == len(lines)), lines))


@contextlib.contextmanager
def house_style() -> Iterator[None]:
    """Matplotlib settings of the figures, for the block only."""
    # Without the user's own settings, so that figures are the same everywhere; agg needs no display.
    with mpl.rc_context({**mpl.rcParamsDefault, **_STYLE, "backend": "agg"}):
        yield


def width(columns: int) -> float:
    """Return the size in inches of a figure over one or two columns of a paper."""
    return COLUMN_INCHES if columns == 1 else PAGE_INCHES


@contextlib.contextmanager
def one_panel(height: float, columns: int = 1) -> Iterator[tuple[Figure, Axes]]:
    """Return a figure with one pair of axes, in the house style.

    Args:
        height: in inches.
        columns: of the page, 1 or 2.
    """
    with house_style():
        figure = Figure(figsize=(width(columns), height), layout="constrained")
        yield figure, figure.add_subplot()


def save(
    figure: Figure, path: Path, data: pd.DataFrame | None = None, formats: Sequence[str] = USUAL_FORMATS
) -> list[Path]:
    """Write `path` with the suffix of each format added, and its folder if need be; the same figure, the same bytes.

    Args:
        figure: PNG gets 200 dpi.
        path: without a suffix.
        data: what is drawn, one row per mark, in base units: written as .csv beside it.
        formats: of `FORMATS`.
    """
    paths = [path.with_name(f"{path.name}.{kind}") for kind in formats]
    path.parent.mkdir(parents=True, exist_ok=True)
    for target in paths:
        # No dates and versions: a figure that did not change must not show up in a commit.
        metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}[target.suffix[1:]]
        figure.savefig(target, dpi=_DPI, bbox_inches="tight", pad_inches=0.03, metadata=metadata)
    if data is not None:
        paths.append(path.with_name(f"{path.name}.csv"))
        paths[-1].write_text(csv(data), encoding="utf-8")
    return paths
