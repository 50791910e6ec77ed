"""Names in tables and figures: what a medium would take for more than text, written so that it does not act.

One function a medium. The frames keep the names as the records have them; only what is printed or drawn is escaped.
"""

import re

from testbed.display import visible

_MARKDOWN = {character: f"\\{character}" for character in "\\`*[]|~$"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LINKS = re.compile(r"(?P<scheme>:)(?=//)|(?<=www)(?P<host>\.)", re.IGNORECASE)
_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")  # within a word it emphasises nothing

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")

_LATEX = {character: f"\\{character}" for character in "&%$#_{}"}
_LATEX |= {character: f"${character}$" for character in "<>|"}
_LATEX |= {character: f"{{{character}}}" for character in "[]*"}  # after the end of a row these would be its options
_LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {"±": r"$\pm$", "×": r"$\times$", "≥": r"$\geq$", "–": "--", '"': "''", "`": r"\textasciigrave{}"}


def markdown(text: str) -> str:
    """`text` in one line of Markdown (CommonMark, GitHub's): no emphasis, code, link, HTML, formula or table cell."""
    escaped = "".join(_MARKDOWN.get(character, character) for character in visible(text))
    escaped = _UNDERSCORE.sub(r"\\_", escaped)
    return _LINKS.sub(lambda found: "&#58;" if found["scheme"] else "&#46;", escaped)


def csv_cell(value: object) -> object:
    """`value` in a cell of CSV: a text that a spreadsheet would take for a formula begins with an apostrophe."""
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
