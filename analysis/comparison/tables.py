"""The overhead table as text, Markdown, CSV, LaTeX or JSON.

Text, Markdown and LaTeX are for people: scaled units, the per-update columns only where a round has failed. CSV and
JSON are for programs: every column of `analysis.comparison.overhead.compare`, in seconds and bytes.
"""

import json
import textwrap
from collections.abc import Callable
from typing import Any, Literal

import pandas as pd

from analysis.comparison.cells import (
    COSTS,
    CostColumn,
    baselines,
    cost_columns,
    notes,
    pair_columns,
    quality_columns,
    result_costs,
    round_counts,
    settings,
)
from analysis.comparison.latex import latex_table
from analysis.markup import csv, markdown, markdown_table
from testbed.display import visible
from testbed.errors import ExperimentError

Format = Literal["text", "markdown", "csv", "latex", "json"]
_WIDTH = 118
_SHORTEST_LABEL = 16


def render(frame: pd.DataFrame, format: str = "text") -> str:
    """The table of `analysis.comparison.overhead.compare`, ending in a line feed; the same frame gives the same bytes.

    Args:
        frame: from `compare`, or `analysis.comparison.pairs.compare_paired`.
        format: ``text`` (labels are shortened where 118 columns do not suffice), ``markdown``, ``csv``, ``latex``
            (needs the package booktabs) or ``json`` (``{"baseline": label, or list of labels, "rows": [...]}``).

    Raises `ExperimentError` for another format.
    """
    renderers: dict[str, Callable[[pd.DataFrame], str]] = {
        "text": _text, "markdown": _markdown, "csv": csv, "latex": latex_table, "json": _json,
    }  # fmt: skip
    if format not in renderers:
        raise ExperimentError(f"--format {format}: unknown; allowed: {', '.join(renderers)}")
    return renderers[format](frame)


# -- text -----------------------------------------------------------------------------------------------------------


def _text(frame: pd.DataFrame) -> str:
    first = [_text_cost(cost) for cost in cost_columns(frame, list(COSTS))]
    second = [
        *(_aligned(heading, cells) for heading, cells in pair_columns(frame).items()),
        _aligned("Done/skip/abort", round_counts(frame)),
        *map(_text_cost, cost_columns(frame, result_costs(frame))),
        *(_aligned(heading, cells) for heading, cells in quality_columns(frame).items()),
    ]
    room = min(_WIDTH - sum(len(column[0]) + 2 for column in columns) for columns in (first, second))
    labels = [_shortened(label, max(room, _SHORTEST_LABEL)) for label in map(visible, frame["label"])]
    lines = [line for note in notes(frame) for line in textwrap.wrap(visible(note), _WIDTH, break_on_hyphens=False)]
    return "\n\n".join([_grid(frame, labels, first), _grid(frame, labels, second), "\n".join(lines)]) + "\n"


def _shortened(label: str, width: int) -> str:
    return label if len(label) <= width else label[: width - 1] + "…"


def _aligned(heading: str, cells: list[str]) -> list[str]:
    """Heading and cells, to the right."""
    width = max(map(len, [heading, *cells]))
    return [heading.rjust(width), *(cell.rjust(width) for cell in cells)]


def _text_cost(cost: CostColumn) -> list[str]:
    means, halves, ratios = (list(part) for part in zip(*cost.cells, strict=True))
    halves = [f"±{half}" if half else "" for half in halves]
    ratios = [f"{ratio}×" if ratio else "" for ratio in ratios]
    widths = [max(map(len, part)) for part in (means, halves, ratios)]
    cells = [
        " ".join(part.rjust(width) for part, width in zip(parts, widths, strict=True) if width)
        for parts in zip(means, halves, ratios, strict=True)
    ]
    return _aligned(cost.heading, cells)


def _grid(frame: pd.DataFrame, labels: list[str], columns: list[list[str]]) -> str:
    """Headings, a rule, and the rows, setting by setting."""
    width = max(map(len, ["Protocol", *labels]))
    lines = [
        "  ".join([head.ljust(width), *cells]).rstrip()
        for head, *cells in zip(["Protocol", *labels], *columns, strict=True)
    ]
    body = [lines[0], "─" * max(map(len, lines))]
    for setting, start, end in settings(frame):
        body += [visible(setting)] if setting else []
        body += lines[1 + start : 1 + end]
        body += [""] if setting and end < len(labels) else []
    return "\n".join(body)


# -- Markdown -------------------------------------------------------------------------------------------------------


def _markdown(frame: pd.DataFrame) -> str:
    several = frame["setting"].ne("").any()
    columns: dict[str, list[str]] = {"Setting": frame["setting"].tolist()} if several else {}
    columns["Protocol"] = frame["label"].tolist()
    for cost in cost_columns(frame, [*COSTS, *result_costs(frame)]):
        columns[cost.heading] = [
            mean + (f" ± {half}" if half else "") + (f" ({ratio}×)" if ratio else "")
            for mean, half, ratio in cost.cells
        ]
    columns |= pair_columns(frame)
    columns |= {"Done/skipped/aborted": round_counts(frame), **quality_columns(frame)}
    left = 2 if several else 1
    table = markdown_table(list(columns), list(zip(*columns.values(), strict=True)), left)
    return f"{table}\n{markdown(' '.join(notes(frame)))}\n"


# -- for programs ---------------------------------------------------------------------------------------------------


def _json(frame: pd.DataFrame) -> str:
    rows: list[dict[str, Any]] = [
        {str(key): None if pd.isna(value) else value for key, value in row.items()}
        for row in frame.astype(object).to_dict(orient="records")
    ]
    names = baselines(frame)
    baseline = names[0] if len(names) == 1 else names
    return json.dumps({"baseline": baseline, "rows": rows}, indent=2, ensure_ascii=False) + "\n"
