"""Columns of a comparison as tables of text, Markdown and LaTeX that fit a terminal or a page."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from analysis.comparison.cells import Column, settings
from analysis.tables import NARROW_GAP, WIDE_GAP, WIDTH, Table, latex, longest_word
from analysis.tables import render as render_table
from testbed.display import visible

_POINTS = 4.4  # width of an average character at \\footnotesize, in 10 pt articles
_UNSEEN = 3 * _POINTS  # excess width of a heading over its cells that does not disturb
_LINE = {True: 229.0, False: 469.0}  # points: widths of one and two columns in the narrowest usual classes


# -- text and Markdown ------------------------------------------------------------------------------------------------


def text_table(frame: pd.DataFrame, columns: Sequence[Column], label_width: int, title: str = "") -> str:
    """Return a text table: labels of the rows and columns, in sections by setting.

    Args:
        frame: with the label and the setting of each row.
        columns: with a cell for each row.
        label_width: characters; longer labels are wrapped.
        title: above the table; empty: none.
    """
    cells = [column.in_columns() for column in columns]
    table = Table(
        heads=["Protocol", *(column.heading for column in columns)],
        rows=list(zip(map(visible, frame["label"]), *cells, strict=True)),
        left=[0],
        title=title,
        sections=settings(frame),
        widths=[label_width, *map(_widest, columns)],
    )
    return render_table(table, "text")


def markdown_table(frame: pd.DataFrame, columns: Sequence[Column], title: str = "") -> str:
    """Return a Markdown table: labels of the rows and columns, with a column of settings if there are several.

    Args:
        frame: with the label and the setting of each row.
        columns: with a cell for each row.
        title: above the table; empty: none.
    """
    left: dict[str, list[str]] = {"Setting": frame["setting"].tolist()} if frame["setting"].ne("").any() else {}
    left["Protocol"] = frame["label"].tolist()
    rows = list(zip(*left.values(), *(column.in_cells() for column in columns), strict=True))
    heads = [*left, *(column.heading for column in columns)]
    return render_table(Table(heads, rows, left=range(len(left)), title=title), "markdown")


def label_width(frame: pd.DataFrame, others: int, shortest: int) -> int:
    """Return the width of the labels in characters; labels are wrapped, but not within a word.

    Args:
        frame: with the label of each row.
        others: characters that the columns need.
        shortest: smallest width of the labels.
    """
    labels = ["Protocol", *map(visible, frame["label"])]
    return min(max(map(len, labels)), max(shortest, WIDTH - others, *map(longest_word, labels[1:])))


def width_of(columns: Sequence[Column]) -> int:
    """Return the width of the columns in characters, including the gap before each."""
    return sum(_widest(column) + 2 for column in columns)


def fitting(columns: Sequence[Column], room: int) -> Iterator[list[Column]]:
    """Yield the columns of each of the tables that a width requires.

    Args:
        columns: all columns.
        room: characters beside the labels.
    """
    part: list[Column] = []
    for column in columns:
        if part and width_of([*part, column]) > room:  # a column wider than a terminal stands alone
            yield part
            part = []
        part.append(column)
    if part:
        yield part


def wrapped(notes: Sequence[str]) -> list[str]:
    """Return notes wrapped to the lines of a terminal."""
    return [line for note in notes for line in textwrap.wrap(visible(note), WIDTH, break_on_hyphens=False)]


def _widest(column: Column) -> int:
    return max(map(len, [column.heading, *column.in_columns()]))


# -- LaTeX ------------------------------------------------------------------------------------------------------------


def tabulars(frame: pd.DataFrame, columns: Sequence[Column], title: str = "", *, narrow: bool) -> list[str]:
    """Return the columns in as many tables as the width requires, each with the labels as its first column.

    Args:
        frame: with the label and the setting of each row.
        columns: with a cell for each row.
        title: above the first table; empty: none.
        narrow: whether the table is as wide as one column of a two-column page; otherwise as wide as two.
    """
    labels, sections = frame["label"].tolist(), settings(frame)
    gap = 2 * (NARROW_GAP if narrow else WIDE_GAP)
    label = max(map(len, ["Protocol", *labels])) * _POINTS
    parts: list[list[Column]] = [[]]
    room = left = _LINE[narrow] - label
    for column in columns:
        needed = _points(column, gap, narrow=narrow)
        if parts[-1] and needed > left:
            parts.append([])
            left = room
        parts[-1].append(column)
        left -= needed
    tables = [_tabular(labels, part, sections, narrow=narrow) for part in parts if part]
    if title and tables:
        tables[0] = rf"\emph{{{latex(title)}}}\par\smallskip" + "\n" + tables[0]
    return tables


def _points(column: Column, gap: int, *, narrow: bool) -> float:
    """Return the width that a column needs in LaTeX, in points."""
    heading = max(map(len, _heading_lines(column, narrow=narrow)))
    return max(_inner_points(column, gap), heading * _POINTS + gap)


def _inner_points(column: Column, gap: int) -> float:
    """Return the width that the cells of a column need, in points."""
    widest = [max((len(part[at]) for part in _parts(column)), default=0) for at in (0, 1)]
    return sum(width * _POINTS + gap for width in widest if width)


def _heading_lines(column: Column, *, narrow: bool) -> list[str]:
    """Return the lines of a heading: two in a narrow table if the heading is wider than the cells.

    LaTeX adds the excess width of a heading over its two columns to the second column, which would separate the ratio
    from the mean.
    """
    words, gap = column.heading.split(" "), 2 * NARROW_GAP
    excess = len(column.heading) * _POINTS + gap - _inner_points(column, gap)
    if not narrow or len(words) < 2 or excess <= _UNSEEN:
        return [column.heading]
    breaks = ([" ".join(words[:at]), " ".join(words[at:])] for at in range(1, len(words)))
    return min(breaks, key=lambda lines: max(map(len, lines)))


def _parts(column: Column) -> list[tuple[str, str]]:
    """Return pairs of mean with half-width, and ratio."""
    return [(mean + (f" ± {half}" if half else ""), ratio) for mean, half, ratio in column.rows]


def _tabular(labels: Sequence[str], columns: Sequence[Column], sections: Mapping[int, str], *, narrow: bool) -> str:
    """Return the LaTeX of a table.

    A column with ratios takes two columns: mean with half-width, and the ratio.
    """
    heads, body, left = ["Protocol"], [list(labels)], [0]
    for column in columns:
        parts = _parts(column)
        lines = [latex(line) for line in _heading_lines(column, narrow=narrow)]
        heading = r" \\ ".join(lines)
        heading = rf"\shortstack{{{heading}}}" if len(lines) > 1 else heading
        left += [len(body)] if column.is_text else []
        body.append([mean for mean, _ in parts])
        if any(ratio for _, ratio in parts):
            body.append([ratio for _, ratio in parts])
            heading = rf"\multicolumn{{2}}{{c}}{{{heading}}}"
        heads.append(heading)
    rows = list(zip(*body, strict=True))
    return render_table(Table(heads, rows, left=left, sections=sections), "latex")
