"""The overhead table as text, Markdown, CSV, LaTeX or JSON.

Text, Markdown and LaTeX are for people: scaled units, the per-update columns only where a round has failed. CSV and
JSON are for programs: every column of `analysis.comparison.overhead.compare`, in seconds and bytes.
"""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.comparison import cells, target_table
from analysis.comparison.cells import Columns, CostColumn
from analysis.comparison.notes import notes
from analysis.tables import WIDTH, Table, csv, latex, markdown, require_format, to_json
from analysis.tables import render as render_table
from testbed.display import visible

__all__ = ["notes", "render"]

_SHORTEST_LABEL = 16


def render(
    frame: pd.DataFrame,
    format: str = "text",
    targets: pd.DataFrame | None = None,
    findings: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The table of `analysis.comparison.overhead.compare`, ending in a line feed; the same frame gives the same bytes.

    Below it stands that of the targets; CSV, which has room for one table, leaves it out.

    Args:
        frame: from `compare`, `analysis.comparison.overhead.compare_paired` or
            `analysis.comparison.seed_pairs.compare_seeds`.
        format: ``text`` (labels are wrapped where 118 columns do not suffice), ``markdown``, ``csv``, ``latex``
            (needs the package booktabs) or ``json`` (``{"baseline": label, or list of labels, "rows": [...],
            "targets": [...], "findings": [...]}``).
        targets: from `analysis.comparison.time_to_target.compare_targets`; None: not measured.
        findings: from `analysis.findings.plain`; JSON holds them, and the notes leave out what they say. The other
            formats have them from `analysis.findings.render`.

    Raises `ExperimentError` for another format.
    """
    require_format(format, "text", "markdown", "csv", "latex", "json")
    if format == "json":
        return _json(frame, targets, findings)
    if format == "csv":
        return csv(frame)
    renderers: dict[str, Callable[[pd.DataFrame, list[str]], str]]
    renderers = {"text": _text, "markdown": _markdown, "latex": _latex}
    found = renderers[format](frame, notes(frame, findings))
    below = "" if targets is None else target_table.render(targets, format)
    return f"{found}\n{below}" if below else found


def _text(frame: pd.DataFrame, sentences: list[str]) -> str:
    first = _in_columns(cells.costs(frame, cells.COSTS))
    counts = {**cells.pairs(frame), "Done/skip/abort": cells.round_counts(frame)}
    results = _in_columns(cells.costs(frame, cells.result_costs(frame)))
    quality = cells.quality(frame, aligned=True)
    labels = list(map(visible, frame["label"]))
    width = min(max(map(len, ["Protocol", *labels])), max(_SHORTEST_LABEL, WIDTH - _width(first)))
    together = {**counts, **results, **quality}
    groups = [first, *([together] if _width(together) <= WIDTH - width else [counts | quality, results])]
    differences = list(_fitting(_in_columns(cells.differences(frame)), WIDTH - width))
    tables = [
        Table(
            heads=["Protocol", *columns],
            rows=list(zip(labels, *columns.values(), strict=True)),
            left=[0],
            title=cells.DIFFERENCES if columns in differences else "",
            sections=cells.settings(frame),
            widths=[width, *(_widest(head, column) for head, column in columns.items())],
        )
        for columns in [*groups, *differences]
    ]
    lines = [line for note in sentences for line in textwrap.wrap(visible(note), WIDTH, break_on_hyphens=False)]
    return "\n".join([*(render_table(table, "text") for table in tables), *lines]) + "\n"


def _in_columns(costs: Sequence[CostColumn]) -> Columns:
    return {cost.heading: cost.in_columns() for cost in costs}


def _widest(head: str, column: Sequence[str]) -> int:
    return max(map(len, [head, *column]))


def _width(columns: Columns) -> int:
    """Of the columns, and the gap before each."""
    return sum(_widest(head, column) + 2 for head, column in columns.items())


def _fitting(columns: Columns, room: int) -> Iterator[Columns]:
    """The columns in as many tables as they need."""
    part: Columns = {}
    for head, column in columns.items():
        if part and _width(part | {head: column}) > room:
            yield part
            part = {}
        part[head] = column
    if part:
        yield part


def _markdown(frame: pd.DataFrame, sentences: list[str]) -> str:
    def laid_out(columns: Columns, title: str = "") -> str:
        several = frame["setting"].ne("").any()
        left: Columns = {"Setting": frame["setting"].tolist()} if several else {}
        left["Protocol"] = frame["label"].tolist()
        columns = left | columns
        rows = list(zip(*columns.values(), strict=True))
        return render_table(Table(list(columns), rows, left=range(len(left)), title=title), "markdown")

    found = cells.costs(frame, [*cells.COSTS, *cells.result_costs(frame)])
    columns = {cost.heading: cost.in_cells() for cost in found} | cells.pairs(frame)
    tables = [laid_out(columns | {"Done/skipped/aborted": cells.round_counts(frame), **cells.quality(frame)})]
    if differences := cells.differences(frame):
        tables.append(laid_out({cost.heading: cost.in_cells() for cost in differences}, cells.DIFFERENCES))
    return "\n".join([*tables, markdown(" ".join(sentences))]) + "\n"


def _json(frame: pd.DataFrame, targets: pd.DataFrame | None, findings: Sequence[Mapping[str, Any]]) -> str:
    names = cells.baselines(frame)
    below: list[Any] | pd.DataFrame = [] if targets is None else target_table.for_programs(targets)
    return to_json(
        {"baseline": names[0] if len(names) == 1 else names, "rows": frame, "targets": below} | {"findings": findings}
    )


def _latex(frame: pd.DataFrame, sentences: list[str]) -> str:
    """For a document that loads booktabs (UTF-8 labels): tables, one below the other, in one float.

    Time and traffic of server and client, as in Lotto's Table 2; then what the rounds gave.
    """
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table*}",
            r"\centering\footnotesize\setlength{\tabcolsep}{5pt}",
            rf"\caption{{Time and traffic of a round. {latex(' '.join(sentences))}}}",
            r"\label{tab:overhead}\smallskip",
            "\\par\\medskip\n".join(_tabulars(frame)) + r"\end{table*}",
            "",
        ]
    )


def _tabulars(frame: pd.DataFrame) -> Iterator[str]:
    first, second = cells.costs(frame, cells.COSTS), cells.costs(frame, cells.result_costs(frame))
    yield _tabular(
        frame,
        [f"{who} [{cost.symbol}]" for who, cost in zip(("Server", "Client") * 2, first, strict=True)],
        first,
        spans=(("", 1), ("Time", 4), ("Network", 4)),
    )
    quality = {head if len(head) > 1 else f"${head}$": column for head, column in cells.quality(frame).items()}
    yield _tabular(
        frame,
        [cost.heading for cost in second],
        second,
        before={**cells.pairs(frame), "Done/skip/abort": cells.round_counts(frame)},
        after=quality,
    )
    if differences := cells.differences(frame):
        heads = [cost.heading for cost in differences]
        yield rf"\emph{{{cells.DIFFERENCES}}}\par\smallskip" + "\n" + _tabular(frame, heads, differences)


def _tabular(
    frame: pd.DataFrame,
    heads: Sequence[str],
    costs: Sequence[CostColumn],
    spans: Sequence[tuple[str, int]] = (),
    before: Columns | None = None,
    after: Columns | None = None,
) -> str:
    """The costs under their heads, each in two columns: mean and half-width, and the ratio; between other columns."""
    before, after = before or {}, after or {}
    columns = []
    for cost in costs:
        columns.append([mean + (f" ± {half}" if half else "") for mean, half, _ in cost.cells])
        columns.append([ratio for _, _, ratio in cost.cells])
    rows = list(zip(frame["label"], *before.values(), *columns, *after.values(), strict=True))
    heads = ["Protocol", *before, *(rf"\multicolumn{{2}}{{c}}{{{head}}}" for head in heads), *after]
    return render_table(Table(heads, rows, left=[0], spans=spans, sections=cells.settings(frame)), "latex")
