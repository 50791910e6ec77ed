"""The overhead table as text, Markdown, CSV, LaTeX or JSON.

Text, Markdown and LaTeX are for people: scaled units, the per-update columns only where a round has failed. CSV and
JSON are for programs: every column of `analysis.comparison.overhead.compare`, in seconds and bytes.
"""

import textwrap
from collections.abc import Callable
from typing import Literal

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
from analysis.markup import markdown
from analysis.tables import WIDTH, Table, csv, require_format, to_json
from analysis.tables import render as render_table
from testbed.display import visible

Format = Literal["text", "markdown", "csv", "latex", "json"]
_SHORTEST_LABEL = 16


def render(frame: pd.DataFrame, format: str = "text") -> str:
    """The table of `analysis.comparison.overhead.compare`, ending in a line feed; the same frame gives the same bytes.

    Args:
        frame: from `compare`, or `analysis.comparison.pairs.compare_paired`.
        format: ``text`` (labels are shortened where 118 columns do not suffice), ``markdown``, ``csv``, ``latex``
            (needs the package booktabs) or ``json`` (``{"baseline": label, or list of labels, "rows": [...]}``).

    Raises `ExperimentError` for another format.
    """
    renderers: dict[str, Callable[[pd.DataFrame], str]] = {"text": _text, "markdown": _markdown, "csv": csv}
    renderers |= {"latex": latex_table, "json": _json}
    require_format(format, *renderers)
    return renderers[format](frame)


def _text(frame: pd.DataFrame) -> str:
    first = _text_costs(cost_columns(frame, list(COSTS)))
    second = {
        **pair_columns(frame),
        "Done/skip/abort": round_counts(frame),
        **_text_costs(cost_columns(frame, result_costs(frame))),
        **quality_columns(frame),
    }
    room = min(
        WIDTH - sum(max(map(len, [heading, *cells])) + 2 for heading, cells in columns.items())
        for columns in (first, second)
    )
    labels = [_shortened(label, max(room, _SHORTEST_LABEL)) for label in map(visible, frame["label"])]
    grids = [
        Table(
            heads=["Protocol", *columns],
            rows=list(zip(labels, *columns.values(), strict=True)),
            left=[0],
            sections=settings(frame),
        )
        for columns in (first, second)
    ]
    lines = [line for note in notes(frame) for line in textwrap.wrap(visible(note), WIDTH, break_on_hyphens=False)]
    return "\n".join([*(render_table(grid, "text") for grid in grids), *lines]) + "\n"


def _shortened(label: str, width: int) -> str:
    return label if len(label) <= width else label[: width - 1] + "…"


def _text_costs(costs: list[CostColumn]) -> dict[str, list[str]]:
    """Each with its means, half-widths and ratios one below the other."""
    return {cost.heading: _text_cost(cost) for cost in costs}


def _text_cost(cost: CostColumn) -> list[str]:
    means, halves, ratios = (list(part) for part in zip(*cost.cells, strict=True))
    halves = [f"±{half}" if half else "" for half in halves]
    ratios = [f"{ratio}×" if ratio else "" for ratio in ratios]
    widths = [max(map(len, part)) for part in (means, halves, ratios)]
    return [
        " ".join(part.rjust(width) for part, width in zip(parts, widths, strict=True) if width)
        for parts in zip(means, halves, ratios, strict=True)
    ]


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
    table = Table(list(columns), list(zip(*columns.values(), strict=True)), left=[0, 1] if several else [0])
    return f"{render_table(table, 'markdown')}\n{markdown(' '.join(notes(frame)))}\n"


def _json(frame: pd.DataFrame) -> str:
    names = baselines(frame)
    return to_json({"baseline": names[0] if len(names) == 1 else names, "rows": frame})
