"""Sequence diagrams, drawn while the site is built: the part of Mermaid's language that the pages use, as SVG.

Where a page is read in the repository, Mermaid draws the same text.
"""

import re
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _ROW, _MARGIN, _BOX = 760, 34, 16, 44
_PARTICIPANT = re.compile(r"participant (\w+)(?: as (.+))?$")
_NOTE = re.compile(r"Note over (\w+)(?:,\s*(\w+))?: (.+)$")
_ARROW = re.compile(r"(\w+)(-->>|->>)(\w+): (.+)$")


class NotADiagram(ValueError):
    """A line that is not understood here."""


@dataclass
class _Row:
    kind: str  # note, solid, dashed
    start: int
    end: int
    text: str


def svg(source: str) -> str:
    """A ``sequenceDiagram`` as an SVG element that takes its colours from the page.

    Raises `NotADiagram` for anything else.
    """
    names: dict[str, str] = {}
    rows: list[_Row] = []
    lines = [line.strip() for line in source.strip().splitlines()]
    if not lines or lines[0] != "sequenceDiagram":
        raise NotADiagram(f"{lines[0] if lines else ''!r}: only sequenceDiagram is drawn")
    for line in filter(None, lines[1:]):
        if match := _PARTICIPANT.match(line):
            names[match[1]] = match[2] or match[1]
        elif match := _NOTE.match(line):
            rows.append(_Row("note", _at(names, match[1]), _at(names, match[2] or match[1]), match[3]))
        elif match := _ARROW.match(line):
            kind = "dashed" if match[2].startswith("--") else "solid"
            rows.append(_Row(kind, _at(names, match[1]), _at(names, match[3]), match[4]))
        else:
            raise NotADiagram(f"{line!r}: not understood")
    return _drawn(list(names.values()), rows)


def _at(names: dict[str, str], name: str) -> int:
    if name not in names:
        raise NotADiagram(f"{name!r}: no participant of that name")
    return list(names).index(name)


def _drawn(names: list[str], rows: list[_Row]) -> str:
    step = _WIDTH / len(names)
    middle = [step * (at + 0.5) for at in range(len(names))]
    top = _MARGIN + _BOX
    height = top + _ROW * (len(rows) + 1) + _MARGIN
    parts = [f'<line class="life" x1="{x:g}" y1="{top}" x2="{x:g}" y2="{height - _MARGIN}"/>' for x in middle]
    for x, name in zip(middle, names, strict=True):
        wide = min(step - 2 * _MARGIN, 300)
        parts.append(
            f'<rect class="party" x="{x - wide / 2:g}" y="{_MARGIN}" width="{wide:g}" height="{_BOX}" rx="6"/>'
        )
        parts.append(_text(x, _MARGIN + _BOX / 2 + 5, name, "name"))
    for at, row in enumerate(rows):
        y = top + _ROW * (at + 1)
        left, right = middle[row.start], middle[row.end]
        if row.kind == "note":
            x, wide = min(left, right) - _MARGIN, abs(right - left) + 2 * _MARGIN
            if wide < 200:
                x, wide = left - 100, 200
            parts.append(f'<rect class="note" x="{x:g}" y="{y - 16:g}" width="{wide:g}" height="24" rx="4"/>')
            parts.append(_text(x + wide / 2, y + 1, row.text, "label"))
            continue
        head = -8 if right > left else 8
        parts.append(f'<line class="{row.kind}" x1="{left:g}" y1="{y:g}" x2="{right:g}" y2="{y:g}"/>')
        parts.append(f'<path class="head" d="M {right:g} {y:g} l {head} -5 v 10 z"/>')
        parts.append(_text((left + right) / 2, y - 6, row.text, "label"))
    title = escape(" and ".join(names))
    return (
        f'<svg class="sequence" viewBox="0 0 {_WIDTH} {height:g}" role="img" xmlns="http://www.w3.org/2000/svg">'
        f"<title>Messages between {title}</title>{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="middle">{escape(text)}</text>'
