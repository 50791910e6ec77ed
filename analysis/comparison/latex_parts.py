"""Columns of a comparison as LaTeX tables, one below the other, each within the width of a page or of its column."""

from collections.abc import Mapping, Sequence

from analysis.comparison.cells import ShownColumn
from analysis.tables import NARROW_GAP, WIDE_GAP, Table, latex
from analysis.tables import render as render_table

_POINTS = 4.4  # of an average character at \\footnotesize, in 10 pt articles
_UNSEEN = 3 * _POINTS  # by so much a heading may be wider than its cells
_LINE = {True: 229.0, False: 469.0}  # points of one column and of two, the narrowest of the usual classes


def tabulars(
    labels: Sequence[str],
    columns: Sequence[ShownColumn],
    sections: Mapping[int, str],
    title: str = "",
    *,
    narrow: bool,
) -> list[str]:
    """The columns in as many tables as the width needs, each with the labels as its first column.

    Args:
        labels: of the rows.
        columns: with a cell for each row.
        sections: the name of each section, by the row at which it begins.
        title: above the first table; empty: none.
        narrow: one column of a two-column page wide, else two.
    """
    gap = 2 * (NARROW_GAP if narrow else WIDE_GAP)
    label = max(map(len, ["Protocol", *labels])) * _POINTS
    parts: list[list[ShownColumn]] = [[]]
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


def _points(column: ShownColumn, gap: int, *, narrow: bool) -> float:
    """The width that a column needs in LaTeX."""
    heading = max(map(len, _heading_lines(column, narrow=narrow)))
    return max(_inner_points(column, gap), heading * _POINTS + gap)


def _inner_points(column: ShownColumn, gap: int) -> float:
    """The width that the cells of a column need."""
    widest = [max((len(part[at]) for part in _parts(column)), default=0) for at in (0, 1)]
    return sum(width * _POINTS + gap for width in widest if width)


def _heading_lines(column: ShownColumn, *, narrow: bool) -> list[str]:
    """The heading; of a narrow table in two lines where it is wider than the cells.

    LaTeX adds the width that a heading has over its two columns to the second: the ratio would stand far away.
    """
    words, gap = column.heading.split(" "), 2 * NARROW_GAP
    excess = len(column.heading) * _POINTS + gap - _inner_points(column, gap)
    if not narrow or len(words) < 2 or excess <= _UNSEEN:
        return [column.heading]
    breaks = ([" ".join(words[:at]), " ".join(words[at:])] for at in range(1, len(words)))
    return min(breaks, key=lambda lines: max(map(len, lines)))


def _parts(column: ShownColumn) -> list[tuple[str, str]]:
    """Mean with half-width, and the ratio."""
    return [(mean + (f" ± {half}" if half else ""), ratio) for mean, half, ratio in column.rows]


def _tabular(
    labels: Sequence[str], columns: Sequence[ShownColumn], sections: Mapping[int, str], *, narrow: bool
) -> str:
    """The columns under their heads, in two each where there are ratios: mean and half-width, and the ratio."""
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
