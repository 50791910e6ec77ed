"""Tables as text for a terminal, Markdown or LaTeX for a page, CSV or JSON for a program: the one way to each of them.

A `Table` holds cells that are laid out already, as a person reads them; names in it are escaped for the medium.
Programs read the frame itself, in base units (`data`), or anything plain (`to_json`).
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from testbed.display import csv_cell, visible
from testbed.errors import ExperimentError

WIDTH = 118
"""Columns of a terminal that tables and notes keep to, where their cells allow it."""

NARROW_GAP, WIDE_GAP = 3, 5
"""Half of the gap between two columns of a LaTeX table one or two columns of a page wide, in points."""


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
        widths: of the text's columns, at which cells are wrapped, after spaces and commas; a longer word makes its
            column wider. None: as wide as the cells.
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
        """Return whether a column is aligned to the left."""
        return self.left is None or column in self.left


def render(table: Table, format: str) -> str:
    """Return the text of a table, ending in a line feed.

    Args:
        table: the table.
        format: ``text``, ``markdown`` or ``latex``.

    Example:
        >>> print(render(Table(("protocol", "round [s]"), [("random", "1.4")]), "markdown"), end="")
        | protocol | round [s] |
        |---|---|
        | random | 1.4 |
    """
    return {"text": _text, "markdown": _markdown, "latex": _latex}[format](table)


def require_format(format: str, *allowed: str) -> None:
    """Raise `ExperimentError` for a format that is not among those allowed."""
    if format not in allowed:
        raise ExperimentError(f"--format {format}: unknown; allowed: {', '.join(allowed)}")


# -- for people -----------------------------------------------------------------------------------------------------


def _text(table: Table) -> str:
    cells = [[list(map(visible, row))] for row in table.rows]
    heads = [list(map(visible, table.heads))] if table.heads else []
    if table.widths is not None:
        words = [max([width, *map(longest_word, column)]) for width, column in _columns(table.widths, cells)]
        cells = [_wrapped(row, words) for [row] in cells]
    every = [*heads, *(line for lines in cells for line in lines)]
    widths = words if table.widths else [max(map(len, column)) for column in zip(*every, strict=True)]

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


def wrap_words(text: str, width: int) -> list[str]:
    """Return text in lines, broken after spaces and commas only.

    Args:
        text: one paragraph.
        width: largest number of characters in a line; a longer word stays whole.

    Example:
        >>> wrap_words("rounds completed of 3", 12)
        ['rounds', 'completed of', '3']
    """
    if len(text) <= width:
        return [text]
    lines = [""]
    for word in _words(text):
        if lines[-1] and len((lines[-1] + word).rstrip()) > width:
            lines.append("")
        lines[-1] += word if lines[-1] else word.lstrip()
    return [line.rstrip() for line in lines if line.strip()]


def longest_word(text: str) -> int:
    """Return the length of the longest part that `wrap_words` does not break."""
    return max((len(word.rstrip()) for word in _words(text)), default=0)


def _words(text: str) -> list[str]:
    return re.findall(r"[^ ,]*(?:,+ *| +|$)", text)


def _columns(widths: Sequence[int], cells: Sequence[Sequence[Sequence[str]]]) -> Iterable[tuple[int, list[str]]]:
    """Return the width and the cells of each column that must be wrapped."""
    for at, width in enumerate(widths):
        yield width, [row[at] for [row] in cells if len(row[at]) > width]


def _wrapped(row: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """Return the lines of a row with cells of several lines."""
    cells = [wrap_words(cell, width) for cell, width in zip(row, widths, strict=True)]
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
    """Return a ``tabular`` of the package booktabs."""
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


def latex_float(caption: str, name: str, tabulars: Sequence[str], notes: Sequence[str], *, narrow: bool) -> str:
    """Return a float of the package booktabs: a caption of one sentence, tables one below the other, and notes beneath.

    Args:
        caption: one sentence.
        name: for ``\\ref``, e.g. ``"tab:overhead"``.
        tabulars: LaTeX.
        notes: sentences, as text.
        narrow: one column of a two-column page wide (``table``), else two (``table*``).
    """
    kind = "table" if narrow else "table*"
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{{kind}}}",
        rf"\centering\footnotesize\setlength{{\tabcolsep}}{{{NARROW_GAP if narrow else WIDE_GAP}pt}}",
        rf"\caption{{{latex(caption)}}}",
        rf"\label{{{name}}}\smallskip",
        "\\par\\medskip\n".join(tabulars).rstrip(),
        r"\par\smallskip",
        r"\begin{minipage}{\linewidth}\scriptsize\raggedright",
        latex(" ".join(notes)),
        r"\end{minipage}",
        rf"\end{{{kind}}}",
    ]
    return "\n".join([*lines, ""])


# -- for programs ---------------------------------------------------------------------------------------------------


def data(frame: pd.DataFrame, format: str) -> str:
    """Return a frame for programs.

    Args:
        frame: the rows.
        format: ``csv``, or ``json``: ``{"rows": [...]}`` with an object for each row.
    """
    return csv(frame) if format == "csv" else to_json({"rows": frame})


def rows_of_every(frame: pd.DataFrame, number: int) -> pd.DataFrame:
    """Return every n-th row, and the last.

    Args:
        frame: the rows.
        number: n.
    """
    return frame.iloc[[place for place in range(len(frame)) if (place + 1) % number == 0 or place + 1 == len(frame)]]


def csv(frame: pd.DataFrame) -> str:
    """Return the frame as CSV.

    A text that a spreadsheet would take for a formula gets an apostrophe in front; numbers do not.

    That is the usual defence (OWASP, "CSV injection"): such a cell shows as its text.
    """
    # Text alone: a negative number begins with a sign, as a formula may, and has to stay a number.
    objects = [column for column, kind in frame.dtypes.items() if not pd.api.types.is_numeric_dtype(kind)]
    safe = frame.assign(**{str(column): frame[column].map(csv_cell) for column in objects})
    return str(safe.rename(columns=csv_cell).to_csv(index=False, lineterminator="\n"))  # one line end everywhere


def to_json(value: Any, *, indent: int = 2, ascii: bool = False) -> str:
    """Return `plain` of a value as JSON that any reader takes, ending in a line feed.

    Args:
        value: see `plain`.
        indent: spaces of each level.
        ascii: whether other characters are written as escapes.
    """
    return json.dumps(plain(value), indent=indent, ensure_ascii=ascii, allow_nan=False) + "\n"  # NaN is no JSON


def plain(value: Any) -> Any:
    """Return a value of JSON: a frame as a list of rows, scalars of NumPy as Python's, NaN and infinity as null.

    Values of mappings and sequences are converted; anything else stays, for `json` to refuse.
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


# -- markup -----------------------------------------------------------------------------------------------------------
# Escape names, so that no medium interprets them: one function a medium. The frames keep the
# names as the records have them; only what is printed or drawn is escaped (in figures by `analysis.style.figure_text`).


_MARKDOWN = {character: f"\\{character}" for character in "\\`*[]|~$"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LINKS = re.compile(r"(?P<scheme>:)(?=//)|(?<=www)(?P<host>\.)", re.IGNORECASE)
_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")  # within a word it emphasises nothing

_LATEX = {character: f"\\{character}" for character in "&%$#_{}"}
_LATEX |= {character: f"${character}$" for character in "<>|"}
_LATEX |= {character: f"{{{character}}}" for character in "[]*"}  # after the end of a row these would be its options
_LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {
    "±": r"$\pm$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "–": "--",
    '"': "''",
    "`": r"\textasciigrave{}",
}


def markdown(text: str) -> str:
    """`text` in one line of Markdown (CommonMark, GitHub's): no emphasis, code, link, HTML, formula or table cell."""
    escaped = "".join(_MARKDOWN.get(character, character) for character in visible(text))
    escaped = _UNDERSCORE.sub(r"\\_", escaped)
    return _LINKS.sub(lambda match: "&#58;" if match["scheme"] else "&#46;", escaped)


def latex(text: str) -> str:
    """`text` in a document that is UTF-8: no commands, no formulas, no end of a cell."""
    return "".join(_LATEX.get(character, character) for character in visible(text))


# -- names and units --------------------------------------------------------------------------------------------------


def protocol_name(section: Any) -> str | None:
    """Return the protocol that a section of an experiment names (``{"protocol": ...}``, or the name alone)."""
    if isinstance(section, dict):
        section = section.get("protocol")
    return None if section is None else str(section)


@dataclass(frozen=True)
class Unit:
    """A unit and how many decimals a number in it deserves.

    Attributes:
        symbol: e.g. ``"min"``.
        size: in base units, i.e. seconds or bytes.
        decimals: digits after the point.
    """

    symbol: str
    size: float
    decimals: int

    def number(self, value: float) -> str:
        """`value` (seconds or bytes) in this unit, without the symbol."""
        return f"{value / self.size:.{self.decimals}f}"

    def text(self, value: float) -> str:
        """`value` (seconds or bytes) in this unit, with the symbol."""
        return f"{self.number(value)} {self.symbol}"


# Symbol, size, and the smallest value for which the unit is chosen: minutes from two minutes on.
# In a table of several values: the least of a unit, and how many units are too many.
_LEAST, _MOST = 0.01, 10_000
_SECONDS = (("h", 3600.0, 7200.0), ("min", 60.0, 120.0), ("s", 1.0, 1.0), ("ms", 1e-3, 0.0))
_BYTES = (("GB", 1e9, 1e9), ("MB", 1e6, 1e6), ("kB", 1e3, 1e3), ("B", 1.0, 0.0))


def seconds_unit(values: Iterable[float]) -> Unit:
    """Return one unit for all of `values` (s), so that they are easy to compare: see `_choose`."""
    return _choose(_SECONDS, values)


def bytes_unit(values: Iterable[float]) -> Unit:
    """Return one unit (decimal: 1 MB is 10^6 bytes) for all of `values`: see `_choose`."""
    return _choose(_BYTES, values)


def _choose(units: tuple[tuple[str, float, float], ...], values: Iterable[float]) -> Unit:
    """Return the unit of the smallest positive value, or a larger one if the largest value has too many digits in it.

    In the larger unit, the smallest value is at least a hundredth.
    """
    positive = [value for value in values if value > 0] or [1.0]
    smallest, largest = min(positive), max(positive)
    place = next(place for place, unit in enumerate(units) if smallest >= unit[2])
    while place and largest >= _MOST * units[place][1] and smallest >= _LEAST * units[place - 1][1]:
        place -= 1
    symbol, size, _ = units[place]
    scaled = smallest / size
    decimals = 3 if scaled < 1 else 2 if scaled < 10 else 1 if scaled < 1000 else 0
    return Unit(symbol, size, 0 if symbol == "B" else decimals)
