"""A reproduction's outcome as text, Markdown or JSON, and as files beside its figures.

Numbers are rounded for people (text, Markdown) and whole for programs (JSON, CSV).
"""

import json
import math
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from analysis.reproduction.contract import Reproduction, ReproductionResult, Scale
from testbed.errors import ExperimentError, RunError
from testbed.files.atomic import atomic_write

Format = Literal["text", "markdown", "json"]
FILES = ("result.md", "result.json", "table.csv")
_WIDTH = 118
_UNDECIDED = "cannot tell"
_NOTHING = "–"


def render(one: Reproduction, result: ReproductionResult, scale: Scale, format: str = "text") -> str:
    """The outcome, ending in a line feed.

    Args:
        one: what was reproduced.
        result: the outcome.
        scale: at which it was run.
        format: ``text`` (at most 118 columns wide where the table's own cells allow it), ``markdown`` or ``json``.

    Raises `ExperimentError` for another format.
    """
    renderers: dict[str, Callable[[Reproduction, ReproductionResult, Scale], str]] = {
        "text": _text, "markdown": _markdown, "json": _json,
    }  # fmt: skip
    if format not in renderers:
        raise ExperimentError(f"--format {format}: unknown; allowed: {', '.join(renderers)}")
    return renderers[format](one, result, scale)


def refuse_foreign(one: Reproduction, scale: Scale, directory: Path) -> None:
    """Raise `ExperimentError` when `write` would overwrite what is not an earlier outcome of the same at this scale."""
    there = [name for name in FILES if (directory / name).exists()]
    if not there:
        return
    try:
        before = json.loads((directory / "result.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        before = None
    if not isinstance(before, dict) or (before.get("name"), before.get("scale")) != (one.name, scale):
        raise ExperimentError(
            f"--out: {directory / there[0]} is not of {one.name} at scale {scale}; give another --out, or move the file"
        )


def write(one: Reproduction, result: ReproductionResult, scale: Scale, directory: Path) -> list[Path]:
    """Write `FILES` into `directory`, each completely or not at all; returns what was written.

    ``table.csv`` is left out when there is no table. Raises `RunError` when a file cannot be written.
    """
    contents = [render(one, result, scale, "markdown"), render(one, result, scale, "json")]
    if not result.table.empty:
        contents.append(str(result.table.to_csv(index=False, lineterminator="\n")))
    paths = [directory / name for name in FILES[: len(contents)]]
    for path, text in zip(paths, contents, strict=True):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{path.parent}: cannot be made: {error.strerror}") from None
        with atomic_write(path, lambda why, path=path: RunError(f"{path}: cannot be written: {why}")) as file:
            file.write(text.encode())
    return paths


# -- for people -----------------------------------------------------------------------------------------------------


def _text(one: Reproduction, result: ReproductionResult, scale: Scale) -> str:
    parts = [f"{one.title}\n{one.source}; scale {scale}"]
    if not result.table.empty:
        parts += _grids(result.table)
    if result.claims:
        rows = [[claim.claim, claim.measured, claim.agrees or _UNDECIDED] for claim in result.claims]
        parts.append(_wrapped(["claim in the paper", "what we measured", "agrees?"], rows, [46, 55, 11]))
    if result.figures:
        parts.append("\n".join(["figures:", *(f"  {path}" for path in result.figures)]))
    if result.remarks:
        notes = [
            textwrap.fill(remark, _WIDTH, initial_indent="- ", subsequent_indent="  ") for remark in result.remarks
        ]
        parts.append("\n".join(["remarks:", *notes]))
    return "\n\n".join(parts) + "\n"


def _grids(table: pd.DataFrame) -> list[str]:
    """The table in as many grids, one below the other, as its width needs; the names of the rows in each."""
    columns = _columns(table)
    keys = _keys(table)
    widths = {heading: max(map(len, [heading, *cells])) for heading, cells in columns.items()}
    room = _WIDTH - sum(widths[key] + 2 for key in keys)
    grids: list[list[str]] = [[]]
    left = room
    for heading in [heading for heading in columns if heading not in keys]:
        if widths[heading] + 2 > left and grids[-1]:
            grids.append([])
            left = room
        grids[-1].append(heading)
        left -= widths[heading] + 2
    return [_grid({heading: columns[heading] for heading in [*keys, *grid]}, keys) for grid in grids]


def _grid(columns: dict[str, list[str]], keys: Sequence[str]) -> str:
    """Aligned: keys to the left, all else to the right; a line between rows that differ in more than the last key."""
    aligned = []
    for heading, cells in columns.items():
        width = max(map(len, [heading, *cells]))
        align = str.ljust if heading in keys else str.rjust
        aligned.append([align(cell, width) for cell in (heading, *cells)])
    lines = ["  ".join(row).rstrip() for row in zip(*aligned, strict=True)]
    groups = list(zip(*(columns[key] for key in keys[:-1]), strict=True))
    body = [lines[0], "─" * max(map(len, lines))]
    for row, line in enumerate(lines[1:]):
        body += [""] if groups and row and groups[row] != groups[row - 1] else []
        body.append(line)
    return "\n".join(body)


def _wrapped(headings: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    """A table whose cells may take several lines."""
    lines = ["  ".join(heading.ljust(width) for heading, width in zip(headings, widths, strict=True)).rstrip()]
    lines.append("─" * (sum(widths) + 2 * (len(widths) - 1)))
    for row in rows:
        cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
        for line in range(max(map(len, cells))):
            parts = [cell[line] if line < len(cell) else "" for cell in cells]
            lines.append("  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip())
    return "\n".join(lines)


def _markdown(one: Reproduction, result: ReproductionResult, scale: Scale) -> str:
    parts = [f"## {one.name}: {one.title}", f"{one.source}. Scale: {scale}."]
    if not result.table.empty:
        columns, keys = _columns(result.table), _keys(result.table)
        rules = ["---" if heading in keys else "---:" for heading in columns]
        parts.append(_markdown_table(list(columns), rules, list(zip(*columns.values(), strict=True))))
    if result.claims:
        rows = [(claim.claim, claim.measured, claim.agrees or _UNDECIDED) for claim in result.claims]
        parts.append(_markdown_table(["Claim in the paper", "What we measured", "Agrees?"], ["---"] * 3, rows))
    if result.figures:
        parts.append("\n".join(f"![{path.stem}]({path.name})" for path in result.figures if path.suffix == ".png"))
    if result.remarks:
        parts.append("\n".join(f"- {remark}" for remark in result.remarks))
    return "\n\n".join(parts) + "\n"


def _markdown_table(headings: Sequence[str], rules: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, rules, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _keys(table: pd.DataFrame) -> list[str]:
    """The columns that name the rows: those before the first measure, which is a column of floats or a paper's."""
    names = [str(name) for name in table.columns]
    ends = [
        place
        for place, name in enumerate(names)
        if pd.api.types.is_float_dtype(table.iloc[:, place]) or name.endswith("(paper)")
    ]
    return names[: max(1, ends[0] if ends else 1)]


def _columns(table: pd.DataFrame) -> dict[str, list[str]]:
    return {str(name): [_cell(value) for value in table[name]] for name in table.columns}


def _cell(value: Any) -> str:
    """Four figures, for a person."""
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return _NOTHING
    if isinstance(value, float):
        if value == 0 or 1e-3 <= abs(value) < 1e5:
            decimals = 0 if value == 0 else max(0, 3 - math.floor(math.log10(abs(value))))
            return f"{value:.{decimals}f}"
        return f"{value:.2e}"
    return str(value)


# -- for programs ---------------------------------------------------------------------------------------------------


def _json(one: Reproduction, result: ReproductionResult, scale: Scale) -> str:
    rows: list[dict[str, Any]] = [
        {str(name): _plain(value) for name, value in row.items()}
        for row in result.table.astype(object).to_dict(orient="records")
    ]
    document = {
        "name": one.name,
        "title": one.title,
        "source": one.source,
        "scale": scale,
        "table": rows,
        "claims": [
            {"claim": claim.claim, "measured": claim.measured, "agrees": claim.agrees} for claim in result.claims
        ],
        "figures": [str(path) for path in result.figures],
        "remarks": list(result.remarks),
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """A JSON value; what is not there, or not finite, is null."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return None if value is pd.NA or value is pd.NaT else value
