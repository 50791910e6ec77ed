r"""Safe display of foreign text: control characters and invisible characters are escaped.

Names of experiments, labels, details of refusals, names of stages and file names come from the author of an experiment
or from a message, and records keep them unchanged. In output, escape sequences (C0 and C1 controls), marks that reorder
text (bidirectional controls) and characters without a width are written as in JSON, e.g. ``\\u001b``. JSON that is
treated so keeps its meaning.
"""

import re
import unicodedata

_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")  # "letters" and "marks" that show nothing
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def visible(text: str) -> str:
    r"""Return `text` in one line, with invisible characters and line feeds escaped.

    Example:
        >>> visible("a\x1b[31m")
        'a\\u001b[31m'
    """
    if text.isprintable() and _UNSEEN.isdisjoint(text):
        return text
    return "".join(character if _is_visible(character) else _escaped(character) for character in text)


def visible_lines(text: str) -> str:
    """Return `text` with invisible characters escaped, except line feeds and tabs."""
    if "\t" in text:
        return "\t".join(visible_lines(part) for part in text.split("\t"))
    return "\n".join(map(visible, text.split("\n")))


def csv_cell(value: object) -> object:
    """Return `value` for a cell of CSV, with an apostrophe before text that a spreadsheet would run as a formula.

    Example:
        >>> csv_cell("=1+1"), csv_cell("-1.5"), csv_cell(2)
        ("'=1+1", '-1.5', 2)
    """
    if not isinstance(value, str):
        return value
    acts = value.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(value)
    return ("'" if acts else "") + visible(value)


def _is_visible(character: str) -> bool:
    if character.isprintable():
        return character not in _UNSEEN
    return unicodedata.category(character) == "Zs"  # spaces of other widths


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
