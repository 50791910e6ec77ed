"""Tables as text for a terminal, Markdown or LaTeX for a page, CSV or JSON for a program: the one way to each of them.

A `Table` holds cells that are laid out already, as a person reads them; names in it are escaped for the medium
(`analysis.markup`). What programs read is the frame itself, in base units (`data`), or anything plain (`to_json`).
"""

import json
import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from analysis.markup import csv_cell, latex, markdown
from testbed.display import visible
from testbed.errors import ExperimentError

WIDTH = 118
"""Columns of a terminal that tables and notes keep to, where their cells allow it."""


@dataclass(frozen=True)
class Table:
    """Cells under heads.

    Attributes:
        heads: of its columns, in the medium's markup: the program's own words. None: a list of names and values.
        rows: cells, as text.
        left: the columns that are aligned to the left; all else is to the right. None: all are to the left.
        title: on a line of its own above; empty: none.
        spans: (title, number of columns) from the left, above the heads; text and LaTeX.
        sections: by the row at which it begins the name of a section, or an empty one for a gap; text and LaTeX.
        ruled: whether text has a line below the heads.
        indent: spaces before each line of the text.
        widths: of the text's columns, at which cells are wrapped. None: as wide as the cells.
        is_markup: whether the cells are Markdown already, of the program's own words.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Collection[int] | None = None
    title: str = ""
    spans: Sequence[tuple[str, int]] = ()
    sections: Mapping[int, str] = field(default_factory=dict)
    ruled: bool = True
    indent: int = 0
    widths: Sequence[int] | None = None
    is_markup: bool = False

    def is_left(self, column: int) -> bool:
        """Whether a column is aligned to the left."""
        return self.left is None or column in self.left


def render(table: Table, format: str) -> str:
    """The table as ``text``, ``markdown`` or ``latex``, ending in a line feed."""
    return {"text": _text, "markdown": _markdown, "latex": _latex}[format](table)


def require_format(format: str, *allowed: str) -> None:
    """Raise `ExperimentError` for a format that is not among those allowed."""
    if format not in allowed:
        raise ExperimentError(f"--format {format}: unknown; allowed: {', '.join(allowed)}")


# -- for people -----------------------------------------------------------------------------------------------------


def _text(table: Table) -> str:
    cells = [[list(map(visible, row))] for row in table.rows]
    if table.widths is not None:
        cells = [_wrapped(row, table.widths) for [row] in cells]
    heads = [list(map(visible, table.heads))] if table.heads else []
    every = [*heads, *(line for lines in cells for line in lines)]
    widths = table.widths or [max(map(len, column)) for column in zip(*every, strict=True)]

    def laid_out(line: Sequence[str]) -> str:
        parts = zip(line, widths, strict=True)
        aligned = [
            cell.ljust(width) if table.is_left(at) else cell.rjust(width) for at, (cell, width) in enumerate(parts)
        ]
        return "  ".join(aligned).rstrip()

    lines = [visible(table.title)] if table.title else []
    lines += [_spans(table, widths)] if table.spans else []
    lines += map(laid_out, heads)
    if table.ruled:
        whole = sum(widths) + 2 * (len(widths) - 1)
        lines.append("─" * (whole if table.widths else max(len(laid_out(line)) for line in every)))
    name = ""
    for place, row in enumerate(cells):
        if place in table.sections:
            before, name = name, table.sections[place]
            lines += [""] if place and (before or not name) else []
            lines += [visible(name)] if name else []
        lines += map(laid_out, row)
    margin = " " * table.indent
    return "".join(f"{margin}{line}\n" for line in lines)


def _wrapped(row: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """The lines of a row whose cells take several."""
    cells = [textwrap.wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    height = max(1, *map(len, cells))
    return [[cell[line] if line < len(cell) else "" for cell in cells] for line in range(height)]


def _spans(table: Table, widths: Sequence[int]) -> str:
    parts, start = [], 0
    for title, columns in table.spans:
        parts.append(title.ljust(sum(widths[start : start + columns]) + 2 * (columns - 1)))
        start += columns
    return "  ".join(parts).rstrip()


def _markdown(table: Table) -> str:
    title = f"**{markdown(table.title)}**\n\n" if table.title else ""
    rule = ["---" if table.is_left(column) else "---:" for column in range(len(table.heads))]
    escaped = _no_cell_ends if table.is_markup else markdown
    lines = [table.heads, rule, *(map(escaped, row) for row in table.rows)]
    return title + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _no_cell_ends(cell: str) -> str:
    return cell.replace("|", "\\|")


def _latex(table: Table) -> str:
    """A ``tabular`` of the package booktabs."""
    count = len(table.rows[0])
    kinds = "".join("l" if table.is_left(column) else "r" for column in range(count))
    lines = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"]
    if table.spans:
        titles, rules, start = [], "", 1
        for title, columns in table.spans:
            titles.append(rf"\multicolumn{{{columns}}}{{c}}{{{title}}}" if title else "")
            rules += rf"\cmidrule(lr){{{start}-{start + columns - 1}}}" if title else ""
            start += columns
        lines += [" & ".join(titles) + r" \\", rules]
    lines += [" & ".join(table.heads) + r" \\", r"\midrule"]
    for place, row in enumerate(table.rows):
        if place in table.sections:
            lines += [r"\midrule"] if place else []
            if name := table.sections[place]:
                lines.append(rf"\multicolumn{{{count}}}{{l}}{{\emph{{{latex(name)}}}}} \\")
        lines.append(" & ".join(map(latex, row)) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


# -- for programs ---------------------------------------------------------------------------------------------------


def data(frame: pd.DataFrame, format: str) -> str:
    """The frame as ``csv``, or as ``json``: ``{"rows": [...]}``, an object a row."""
    return csv(frame) if format == "csv" else to_json({"rows": frame})


def rows_of_every(frame: pd.DataFrame, number: int) -> pd.DataFrame:
    """Each so many-th row, and the last."""
    return frame.iloc[[place for place in range(len(frame)) if (place + 1) % number == 0 or place + 1 == len(frame)]]


def csv(frame: pd.DataFrame) -> str:
    """The frame as CSV. A text that a spreadsheet would take for a formula begins with an apostrophe; numbers do not.

    That is the usual defence (OWASP, "CSV injection"): such a cell shows as its text.
    """
    objects = [column for column, kind in frame.dtypes.items() if not pd.api.types.is_numeric_dtype(kind)]
    safe = frame.assign(**{str(column): frame[column].map(csv_cell) for column in objects})
    return str(safe.rename(columns=csv_cell).to_csv(index=False, lineterminator="\n"))


def to_json(value: Any, *, indent: int = 2, ascii: bool = False) -> str:
    """`plain` of a value as JSON that any reader takes, ending in a line feed; `ascii`: other characters as escapes."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=ascii, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """A value of JSON: a frame as a list of rows, scalars of NumPy as Python's; what is missing or not finite is null.

    Mappings and sequences hold what becomes of their values; anything else stays, for `json` to refuse.
    """
    if isinstance(value, pd.DataFrame):
        return plain(value.astype(object).to_dict(orient="records"))
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
