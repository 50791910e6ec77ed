"""The overhead table as text, Markdown, CSV, LaTeX or JSON.

Text, Markdown and LaTeX are for people: scaled units, the per-update columns only where a round has failed. CSV and
JSON are for programs: every column of `analysis.comparison.overhead.compare`, in seconds and bytes.
"""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.comparison import cells, latex_parts, target_table
from analysis.comparison.cells import Columns, CostColumn, ShownColumn
from analysis.comparison.columns import TARGET_COLUMNS, for_programs, of_interest, shown
from analysis.comparison.notes import notes
from analysis.tables import (
    WIDTH,
    Table,
    csv,
    latex_float,
    longest_word,
    markdown,
    require_format,
    to_json,
)
from analysis.tables import render as render_table
from testbed.display import visible

__all__ = ["notes", "render"]

_SHORTEST_LABEL = 16

Findings = Sequence[Mapping[str, Any]]
"""Of `analysis.findings.plain`."""


def render(
    frame: pd.DataFrame,
    format: str = "text",
    targets: pd.DataFrame | None = None,
    findings: Findings = (),
    columns: Sequence[str] | None = None,
    *,
    narrow: bool = False,
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
        columns: names of `analysis.comparison.columns.COLUMNS`, in the order that is wanted; those of targets stand in
            the same table. None: all that say something.
        narrow: LaTeX one column of a two-column page wide, else two.

    Raises `ExperimentError` for another format, or a column that is not measured.
    """
    require_format(format, "text", "markdown", "csv", "latex", "json")
    if columns is not None or (narrow and format == "latex"):
        return _chosen(frame, format, targets, findings, columns, narrow=narrow)
    if format == "json":
        return _json(frame, targets, findings)
    if format == "csv":
        return csv(frame)
    renderers: dict[str, Callable[[pd.DataFrame, Findings], str]]
    renderers = {"text": _text, "markdown": _markdown, "latex": _latex}
    found = renderers[format](frame, findings)
    below = "" if targets is None else target_table.render(targets, format)
    return f"{found}\n{below}" if below else found


def _text(frame: pd.DataFrame, findings: Findings) -> str:
    first = _in_columns(cells.costs(frame, cells.COSTS))
    counts = {**cells.pairs(frame), "Done/skip/abort": cells.round_counts(frame)}
    results = _in_columns(cells.costs(frame, cells.result_costs(frame)))
    quality = cells.quality(frame, aligned=True)
    labels = list(map(visible, frame["label"]))
    width = _label_width(labels, _width(first))
    together = {**counts, **results, **cells.quality(frame, aligned=True, short=False)}
    if _width(together) > WIDTH - width:
        together = {**counts, **results, **quality}
    seconds = [together] if _width(together) <= WIDTH - width else [counts | quality, results]
    groups = [part for group in (first, *seconds) for part in _fitting(group, WIDTH - width)]
    differences = list(_fitting(_in_columns(cells.differences(frame)), WIDTH - width))
    titled = [*((columns, "") for columns in groups), *((columns, cells.DIFFERENCES) for columns in differences)]
    tables = [_text_table(frame, labels, columns, width, title) for columns, title in titled]
    return "\n".join([*(render_table(table, "text") for table in tables), *_wrapped(notes(frame, findings))]) + "\n"


def _label_width(labels: Sequence[str], others: int) -> int:
    """The width of the labels' column beside columns of a width: labels are wrapped, but not within a word."""
    word = max(map(longest_word, labels), default=0)
    return min(max(map(len, ["Protocol", *labels])), max(_SHORTEST_LABEL, word, WIDTH - others))


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


def _markdown(frame: pd.DataFrame, findings: Findings) -> str:
    found = cells.costs(frame, [*cells.COSTS, *cells.result_costs(frame)])
    columns = {cost.heading: cost.in_cells() for cost in found} | cells.pairs(frame)
    columns |= {"Done/skipped/aborted": cells.round_counts(frame), **cells.quality(frame, short=False)}
    tables = [_markdown_table(frame, columns)]
    if differences := cells.differences(frame):
        more = {cost.heading: cost.in_cells() for cost in differences}
        tables.append(_markdown_table(frame, more, cells.DIFFERENCES))
    return "\n".join([*tables, markdown(" ".join(notes(frame, findings)))]) + "\n"


def _markdown_table(frame: pd.DataFrame, columns: Columns, title: str = "") -> str:
    several = frame["setting"].ne("").any()
    left: Columns = {"Setting": frame["setting"].tolist()} if several else {}
    left["Protocol"] = frame["label"].tolist()
    columns = left | columns
    rows = list(zip(*columns.values(), strict=True))
    return render_table(Table(list(columns), rows, left=range(len(left)), title=title), "markdown")


def _baseline(frame: pd.DataFrame) -> Any:
    """The label of the baseline, or the list of them where there are several."""
    names = cells.baselines(frame)
    return names[0] if len(names) == 1 else names


def _json(frame: pd.DataFrame, targets: pd.DataFrame | None, findings: Findings) -> str:
    below: list[Any] | pd.DataFrame = [] if targets is None else target_table.for_programs(targets)
    return to_json({"baseline": _baseline(frame), "rows": frame, "targets": below, "findings": findings})


def _latex(frame: pd.DataFrame, findings: Findings) -> str:
    """The columns that vary or matter, two columns of a page wide."""
    columns = [*_pairs(frame), *shown(frame, None, of_interest(frame, None))]
    return _latex_of(frame, columns, None, findings, narrow=False)


def _pairs(frame: pd.DataFrame) -> list[ShownColumn]:
    """The numbers of pairs, where rounds or seeds are paired."""
    return [ShownColumn("", head, [(cell, "", "") for cell in column]) for head, column in cells.pairs(frame).items()]


def _chosen(
    frame: pd.DataFrame,
    format: str,
    targets: pd.DataFrame | None,
    findings: Findings,
    names: Sequence[str] | None,
    *,
    narrow: bool,
) -> str:
    """The table with the columns that somebody chose, or those of a narrow table."""
    pairs = _pairs(frame) if names is None else []
    names = of_interest(frame, targets, narrow=narrow) if names is None else names
    if format in ("csv", "json"):
        found = for_programs(frame, targets, names)
        return (
            csv(found)
            if format == "csv"
            else to_json({"baseline": _baseline(frame), "rows": found, "findings": findings})
        )
    columns = [*pairs, *shown(frame, targets, names)]
    if format == "latex":
        return _latex_of(frame, columns, targets, findings, narrow=narrow)
    said = _notes_of(frame, columns, targets, findings)
    if format == "markdown":
        return (
            _markdown_table(frame, {one.heading: one.in_cells() for one in columns}) + f"\n{markdown(' '.join(said))}\n"
        )
    cells_of = {
        one.heading: [cell.ljust(width) for cell in column] if one.is_text else column
        for one in columns
        for column, width in [(one.in_columns(), len(one.heading))]
    }
    labels = list(map(visible, frame["label"]))
    width = _label_width(labels, min(_width(cells_of), WIDTH // 2))
    tables = [_text_table(frame, labels, part, width) for part in _fitting(cells_of, WIDTH - width)]
    return "\n".join([*(render_table(table, "text") for table in tables), *_wrapped(said)]) + "\n"


def _notes_of(
    frame: pd.DataFrame,
    columns: Sequence[ShownColumn],
    targets: pd.DataFrame | None,
    findings: Findings,
    *,
    captioned: bool = False,
) -> list[str]:
    """What a reader needs to know about these columns; without the first sentence where a caption has it."""
    names = [one.name for one in columns]
    said = notes(frame, findings, names)[captioned:]
    if targets is not None and any(name in TARGET_COLUMNS for name in names):
        said += target_table.notes(targets, [name for name in names if name in TARGET_COLUMNS])
    return said


def _text_table(frame: pd.DataFrame, labels: Sequence[str], columns: Columns, width: int, title: str = "") -> Table:
    return Table(
        heads=["Protocol", *columns],
        rows=list(zip(labels, *columns.values(), strict=True)),
        left=[0],
        title=title,
        sections=cells.settings(frame),
        widths=[width, *(_widest(head, column) for head, column in columns.items())],
    )


def _wrapped(said: Sequence[str]) -> list[str]:
    return [line for note in said for line in textwrap.wrap(visible(note), WIDTH, break_on_hyphens=False)]


_CAPTION = "What a round costs and what the rounds gave"


def _latex_of(
    frame: pd.DataFrame,
    columns: Sequence[ShownColumn],
    targets: pd.DataFrame | None,
    findings: Findings,
    *,
    narrow: bool,
) -> str:
    """The columns in as many tables, one below the other, as the width needs."""
    labels, sections = frame["label"].tolist(), cells.settings(frame)
    tabulars = latex_parts.tabulars(labels, columns, sections, narrow=narrow)
    said = _notes_of(frame, columns, targets, findings, captioned=True)
    if differences := cells.differences(frame):
        more = [ShownColumn("", cost.heading, cost.cells) for cost in differences]
        tabulars += latex_parts.tabulars(labels, more, sections, cells.DIFFERENCES, narrow=narrow)
    return latex_float(_caption(frame), "tab:overhead", tabulars, said, narrow=narrow)


def _caption(frame: pd.DataFrame) -> str:
    """One sentence: the first of the notes, which says what the means are over and what the ratios are to."""
    first = notes(frame)[0]
    return f"{_CAPTION}: {first[0].lower()}{first[1:]}"
