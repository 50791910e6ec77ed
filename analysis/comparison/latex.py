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


def latex_table(frame: pd.DataFrame) -> str:
    """The table that `analysis.comparison.overhead.compare` made, for a document that loads booktabs (UTF-8 labels)."""
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table*}",
            r"\centering\footnotesize\setlength{\tabcolsep}{5pt}",
            rf"\caption{{Time and traffic of a round. {latex(' '.join(notes(frame)))}}}",
            r"\label{tab:overhead}\smallskip",
            *_costs(frame),
            r"\par\medskip",
            *_results(frame),
            r"\end{table*}",
            "",
        ]
    )


def _costs(frame: pd.DataFrame) -> list[str]:
    """Time and traffic of server and client, as in Lotto's Table 2."""
    columns = cost_columns(frame, list(COSTS))
    heads = zip(("Server", "Client", "Server", "Client"), columns, strict=True)
    heading = [
        r" & \multicolumn{4}{c}{Time} & \multicolumn{4}{c}{Network} \\",
        r"\cmidrule(lr){2-5}\cmidrule(lr){6-9}",
        "Protocol" + "".join(rf" & \multicolumn{{2}}{{c}}{{{who} [{c.unit.symbol}]}}" for who, c in heads) + r" \\",
    ]
    cells = [_pairs(column.cells) for column in columns]
    return _tabular(frame, heading, [column for pair in cells for column in pair])


def _results(frame: pd.DataFrame) -> list[str]:
    """What the rounds gave."""
    pairs = pair_columns(frame)
    heads, columns = ["Protocol", *pairs, "Done/skip/abort"], [*pairs.values(), round_counts(frame)]
    for cost in cost_columns(frame, result_costs(frame)):
        heads.append(rf"\multicolumn{{2}}{{c}}{{{cost.heading}}}")
        columns += _pairs(cost.cells)
    for head, column in quality_columns(frame).items():
        heads.append(head if len(head) > 1 else f"${head}$")
        columns.append([latex(cell) for cell in column])
    return _tabular(frame, [" & ".join(heads) + r" \\"], columns)


def _pairs(cells: list[tuple[str, str, str]]) -> tuple[list[str], list[str]]:
    """Mean and half-width in one column, the ratio in the next."""
    means = [latex(mean + (f" ± {half}" if half else "")) for mean, half, _ in cells]
    return means, [latex(f"{ratio}×" if ratio else "") for _, _, ratio in cells]


def _tabular(frame: pd.DataFrame, heading: list[str], columns: list[list[str]]) -> list[str]:
    lines = [rf"\begin{{tabular}}{{l{'r' * len(columns)}}}", r"\toprule", *heading, r"\midrule"]
    for setting, start, end in settings(frame):
        lines += [r"\midrule"] if start else []
        if setting:
            lines.append(rf"\multicolumn{{{1 + len(columns)}}}{{l}}{{\emph{{{latex(setting)}}}}} \\")
        for row in range(start, end):
            cells = [latex(frame["label"].iloc[row]), *(column[row] for column in columns)]
            lines.append(" & ".join(cells) + r" \\")
    return [*lines, r"\bottomrule", r"\end{tabular}"]
