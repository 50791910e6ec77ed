"""Names in tables and figures: what a medium would take for more than text, written so that it does not act.

One function a medium. The frames keep the names as the records have them; only what is printed or drawn is escaped.
"""

import re
from collections.abc import Sequence

import pandas as pd

from testbed.display import visible

_MARKDOWN = {character: f"\\{character}" for character in "\\`*[]|~$"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LINKS = re.compile(r"(?P<scheme>:)(?=//)|(?<=www)(?P<host>\.)", re.IGNORECASE)
_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")  # within a word it emphasises nothing

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "×": r"$\times$", "≥": r"$\geq$", "–": "--",
    "<": r"$<$", ">": r"$>$", "|": r"$|$", '"': "''", "`": r"\textasciigrave{}",
    "[": "{[}", "]": "{]}", "*": "{*}",  # after the end of a row these would be its options
}  # fmt: skip


def markdown(text: str) -> str:
    """`text` in one line of Markdown (CommonMark, GitHub's): no emphasis, code, link, HTML, formula or table cell."""
    escaped = "".join(_MARKDOWN.get(character, character) for character in visible(text))
    escaped = _UNDERSCORE.sub(r"\\_", escaped)
    return _LINKS.sub(lambda found: "&#58;" if found["scheme"] else "&#46;", escaped)


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int | Sequence[int] = 1) -> str:
    """A Markdown table, ending in a line feed.

    Args:
        heads: of its columns, in Markdown: the program's own words.
        rows: cells, as text.
        left: how many columns, or which, are aligned to the left; all else is to the right.
    """
    to_left = range(left) if isinstance(left, int) else left
    rule = ["---" if column in to_left else "---:" for column in range(len(heads))]
    lines = [list(heads), rule, *(map(markdown, row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def text_table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int]) -> str:
    """The same for a terminal: columns of one width, a line below the heads; the columns `left` are to the left."""
    lines = [list(map(visible, line)) for line in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    printed = [
        "  ".join(
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([printed[0], "─" * max(map(len, printed)), *printed[1:]]) + "\n"


def csv(frame: pd.DataFrame) -> str:
    """The frame as CSV. A text that a spreadsheet would take for a formula begins with an apostrophe; numbers do not.

    That is the usual defence (OWASP, "CSV injection"): such a cell shows as its text.
    """
    objects = [column for column, kind in frame.dtypes.items() if not pd.api.types.is_numeric_dtype(kind)]
    safe = frame.assign(**{str(column): frame[column].map(_csv_cell) for column in objects})
    return str(safe.rename(columns=_csv_cell).to_csv(index=False, lineterminator="\n"))


def _csv_cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    acts = value.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(value)
    return ("'" if acts else "") + visible(value)


def latex(text: str) -> str:
    """`text` in a document that is UTF-8: no commands, no formulas, no end of a cell."""
    return "".join(_LATEX.get(character, character) for character in visible(text))


def figure_text(text: str) -> str:
    """`text` as Matplotlib shows it: no formulas, and in the legend also where it begins with an underscore."""
    shown = visible(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
