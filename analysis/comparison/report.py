"""The overhead table as text, Markdown, CSV, LaTeX or JSON.

Text, Markdown and LaTeX are for people: scaled units, per-update columns only if a round failed. CSV and JSON are for
programs: every column of `analysis.comparison.overhead.compare`, in seconds and bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.comparison import cells, layout, target_table
from analysis.comparison.cells import Column
from analysis.comparison.columns import TARGET_COLUMNS, for_programs, of_interest, shown
from analysis.comparison.notes import notes
from analysis.tables import WIDTH, csv, latex_float, markdown, require_format, to_json

__all__ = ["notes", "render"]

_SHORTEST_LABEL = 16

Findings = Sequence[Mapping[str, Any]]
"""Findings as plain data, from `analysis.findings.plain`."""


def render(
    frame: pd.DataFrame,
    format: str = "text",
    targets: pd.DataFrame | None = None,
    findings: Findings = (),
    columns: Sequence[str] | None = None,
    *,
    narrow: bool = False,
) -> str:
    """Return the table of `analysis.comparison.overhead.compare`, ending in a line feed; equal frames give equal bytes.

    The table of the targets follows, except in CSV, which holds one table.

    Args:
        frame: from `compare`, `analysis.comparison.overhead.compare_paired` or
            `analysis.comparison.seed_pairs.compare_seeds`.
        format: ``text`` (labels are wrapped to fit 118 columns), ``markdown``, ``csv``, ``latex`` (needs the package
            booktabs) or ``json`` (``{"baseline": label, or list of labels, "rows": [...], "targets": [...], "findings":
            [...]}``).
        targets: from `analysis.comparison.time_to_target.compare_targets`; None: not measured.
        findings: from `analysis.findings.plain`. JSON includes them, and the notes do not repeat them. For the other
            formats `analysis.findings.render` adds them.
        columns: names of `analysis.comparison.columns.COLUMNS`, in the order of the table, which then includes the
            columns of targets. None: all columns with information.
        narrow: whether a LaTeX table is as wide as one column of a two-column page; otherwise as wide as two.

    Raises:
        ExperimentError: an unknown format, or a column that is not measured.
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
    table = renderers[format](frame, findings)
    below = "" if targets is None else target_table.render(targets, format)
    return f"{table}\n{below}" if below else table


def _text(frame: pd.DataFrame, findings: Findings) -> str:
    first = cells.costs(frame, cells.COSTS)
    counts = [*cells.pairs(frame), Column.of("Done/skip/abort", cells.round_counts(frame))]
    results = cells.costs(frame, cells.result_costs(frame))
    label_width = layout.label_width(frame, layout.width_of(first), _SHORTEST_LABEL)
    room = WIDTH - label_width
    together = [*counts, *results, *cells.quality(frame, short=False)]
    if layout.width_of(together) > room:
        together = [*counts, *results, *cells.quality(frame)]
    seconds = [together] if layout.width_of(together) <= room else [[*counts, *cells.quality(frame)], results]
    titled = [(part, "") for group in (first, *seconds) for part in layout.fitting(group, room)]
    titled += [(part, cells.DIFFERENCES) for part in layout.fitting(cells.differences(frame), room)]
    tables = [layout.text_table(frame, part, label_width, title) for part, title in titled]
    return "\n".join([*tables, *layout.wrapped(notes(frame, findings))]) + "\n"


def _markdown(frame: pd.DataFrame, findings: Findings) -> str:
    columns = cells.costs(frame, [*cells.COSTS, *cells.result_costs(frame)]) + cells.pairs(frame)
    columns += [Column.of("Done/skipped/aborted", cells.round_counts(frame)), *cells.quality(frame, short=False)]
    tables = [layout.markdown_table(frame, columns)]
    if differences := cells.differences(frame):
        tables.append(layout.markdown_table(frame, differences, cells.DIFFERENCES))
    return "\n".join([*tables, markdown(" ".join(notes(frame, findings)))]) + "\n"


def _baseline(frame: pd.DataFrame) -> Any:
    """Return the label of the baseline, or a list if there are several."""
    names = cells.baselines(frame)
    return names[0] if len(names) == 1 else names


def _json(frame: pd.DataFrame, targets: pd.DataFrame | None, findings: Findings) -> str:
    below: list[Any] | pd.DataFrame = [] if targets is None else target_table.for_programs(targets)
    return to_json({"baseline": _baseline(frame), "rows": frame, "targets": below, "findings": findings})


def _latex(frame: pd.DataFrame, findings: Findings) -> str:
    """Return the columns that vary or matter as LaTeX, as wide as two columns of a page."""
    columns = [*cells.pairs(frame), *shown(frame, None, of_interest(frame, None))]
    return _latex_of(frame, columns, None, findings, narrow=False)


def _chosen(
    frame: pd.DataFrame,
    format: str,
    targets: pd.DataFrame | None,
    findings: Findings,
    names: Sequence[str] | None,
    *,
    narrow: bool,
) -> str:
    """Return the table with the selected columns, or with the columns of a narrow table."""
    pairs = cells.pairs(frame) if names is None else []
    names = of_interest(frame, targets, narrow=narrow) if names is None else names
    if format in ("csv", "json"):
        selected = for_programs(frame, targets, names)
        return (
            csv(selected)
            if format == "csv"
            else to_json({"baseline": _baseline(frame), "rows": selected, "findings": findings})
        )
    columns = [*pairs, *shown(frame, targets, names)]
    if format == "latex":
        return _latex_of(frame, columns, targets, findings, narrow=narrow)
    sentences = _notes_of(frame, columns, targets, findings)
    if format == "markdown":
        return layout.markdown_table(frame, columns) + f"\n{markdown(' '.join(sentences))}\n"
    label_width = layout.label_width(frame, min(layout.width_of(columns), WIDTH // 2), _SHORTEST_LABEL)
    parts = layout.fitting(columns, WIDTH - label_width)
    tables = [layout.text_table(frame, part, label_width) for part in parts]
    return "\n".join([*tables, *layout.wrapped(sentences)]) + "\n"


def _notes_of(
    frame: pd.DataFrame,
    columns: Sequence[Column],
    targets: pd.DataFrame | None,
    findings: Findings,
    *,
    captioned: bool = False,
) -> list[str]:
    """Return the notes on these columns; without the first sentence if a caption has it."""
    names = [column.name for column in columns]
    sentences = notes(frame, findings, names)[captioned:]
    if targets is not None and any(name in TARGET_COLUMNS for name in names):
        sentences += target_table.notes(targets, [name for name in names if name in TARGET_COLUMNS])
    return sentences


_CAPTION = "Costs and results of the rounds"


def _latex_of(
    frame: pd.DataFrame,
    columns: Sequence[Column],
    targets: pd.DataFrame | None,
    findings: Findings,
    *,
    narrow: bool,
) -> str:
    """Return the columns as tables below each other, as many as the width requires."""
    tabulars = layout.tabulars(frame, columns, narrow=narrow)
    sentences = _notes_of(frame, columns, targets, findings, captioned=True)
    if differences := cells.differences(frame):
        tabulars += layout.tabulars(frame, differences, cells.DIFFERENCES, narrow=narrow)
    return latex_float(_caption(frame), "tab:overhead", tabulars, sentences, narrow=narrow)


def _caption(frame: pd.DataFrame) -> str:
    """Return the caption: its second half is the first note, which explains the means and the ratios."""
    first = notes(frame)[0]
    return f"{_CAPTION}: {first[0].lower()}{first[1:]}"
