"""The overhead table for a paper: two booktabs tables, one below the other, in one float."""

import pandas as pd

from analysis.comparison.cells import (
    COSTS,
    cost_columns,
    notes,
    pair_columns,
    quality_columns,
    result_costs,
    round_counts,
    settings,
)
from analysis.markup import latex
from analysis.tables import Table, render


def latex_table(frame: pd.DataFrame) -> str:
    """The table that `analysis.comparison.overhead.compare` made, for a document that loads booktabs (UTF-8 labels)."""
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table*}",
            r"\centering\footnotesize\setlength{\tabcolsep}{5pt}",
            rf"\caption{{Time and traffic of a round. {latex(' '.join(notes(frame)))}}}",
            r"\label{tab:overhead}\smallskip",
            _costs(frame) + r"\par\medskip",
            _results(frame) + r"\end{table*}",
            "",
        ]
    )


def _costs(frame: pd.DataFrame) -> str:
    """Time and traffic of server and client, as in Lotto's Table 2."""
    costs = cost_columns(frame, list(COSTS))
    heads = [_two_columns(f"{who} [{c.unit.symbol}]") for who, c in zip(("Server", "Client") * 2, costs, strict=True)]
    columns = [column for cost in costs for column in _pairs(cost.cells)]
    return _tabular(frame, heads, columns, spans=(("", 1), ("Time", 4), ("Network", 4)))


def _results(frame: pd.DataFrame) -> str:
    """What the rounds gave."""
    pairs = pair_columns(frame)
    heads, columns = [*pairs, "Done/skip/abort"], [*pairs.values(), round_counts(frame)]
    for cost in cost_columns(frame, result_costs(frame)):
        heads.append(_two_columns(cost.heading))
        columns += _pairs(cost.cells)
    for head, column in quality_columns(frame).items():
        heads.append(head if len(head) > 1 else f"${head}$")
        columns.append(column)
    return _tabular(frame, heads, columns)


def _two_columns(head: str) -> str:
    return rf"\multicolumn{{2}}{{c}}{{{head}}}"


def _pairs(cells: list[tuple[str, str, str]]) -> tuple[list[str], list[str]]:
    """Mean and half-width in one column, the ratio in the next."""
    means = [mean + (f" ± {half}" if half else "") for mean, half, _ in cells]
    return means, [f"{ratio}×" if ratio else "" for _, _, ratio in cells]


def _tabular(
    frame: pd.DataFrame, heads: list[str], columns: list[list[str]], spans: tuple[tuple[str, int], ...] = ()
) -> str:
    rows = list(zip(frame["label"], *columns, strict=True))
    return render(Table(["Protocol", *heads], rows, left=[0], spans=spans, sections=settings(frame)), "latex")
