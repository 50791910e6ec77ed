"""Text from elsewhere as it may be shown: what a terminal would obey, or nobody would see, becomes visible.

Names of experiments, labels, details of refusals, names of stages and file names are chosen by whoever wrote an
experiment, or sent a message, and records keep them as they are. Where they are printed, escape sequences (C0 and C1
controls), marks that reorder text (bidirectional controls) and characters without a width are written as JSON writes
them, e.g. ``\\u001b``. JSON that is treated so still says the same.
"""

import re
import unicodedata

_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")  # "letters" and "marks" that show nothing
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def visible(text: str) -> str:
    """`text` in one line in which every character is seen as what it is: line feeds are escaped, too."""
    if text.isprintable() and _UNSEEN.isdisjoint(text):
        return text
    return "".join(character if _is_visible(character) else _escaped(character) for character in text)


def visible_lines(text: str) -> str:
    """The same for text that has been laid out: line feeds and tabs stay."""
    if "\t" in text:
        return "\t".join(visible_lines(part) for part in text.split("\t"))
    return "\n".join(map(visible, text.split("\n")))


def csv_cell(value: object) -> object:
    """`value` in a cell of CSV: a text that a spreadsheet would take for a formula begins with an apostrophe."""
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
