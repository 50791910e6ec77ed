"""Findings as text and Markdown for people, as plain data for programs, and below the overhead table."""

import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.comparison import report
from analysis.findings.compared import MOST, Finding
from analysis.tables import WIDTH, markdown
from testbed.display import visible

HEADING = "Findings"
MORE = "testbed compare --format json"

_LONGEST_ROWS = 70  # characters of the rows' labels
_INDENT = "  "


def plain(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return all findings as mappings of their attributes, for JSON.

    Example:
        >>> plain([Finding("one-step", "clients take one gradient step", (), ("workload.epochs",))])
        [{'code': 'one-step', 'text': 'clients take one gradient step', 'rows': [], 'keys': ['workload.epochs']}]
    """
    return [
        {"code": finding.code, "text": finding.text, "rows": list(finding.rows), "keys": list(finding.keys)}
        for finding in findings
    ]


def rows_text(finding: Finding) -> str:
    """Return the labels of the rows that a finding holds for; empty: all rows.

    Long lists are cut to the first labels and the number of further rows.
    """
    shown: list[str] = []
    for at, label in enumerate(map(visible, finding.rows)):
        if shown and len(", ".join([*shown, label])) > _LONGEST_ROWS:
            return f"{', '.join(shown)} and {len(finding.rows) - at} more"
        shown.append(label if len(label) <= _LONGEST_ROWS else f"{label[: _LONGEST_ROWS - 1]}…")
    return ", ".join(shown)


def line(finding: Finding) -> str:
    """Return a finding as one sentence: its rows, the text, and the keys to change in parentheses.

    Example:
        >>> line(Finding("waited-for-deadline", "4 of 5 rounds waited", ("random",), ("time.deadline_s",)))
        'random: 4 of 5 rounds waited (time.deadline_s)'
    """
    rows = rows_text(finding)
    keys = f" ({', '.join(finding.keys)})" if finding.keys else ""
    return f"{f'{rows}: ' if rows else ''}{visible(finding.text)}{keys}"


def lines(findings: Sequence[Finding]) -> list[str]:
    """Return the displayed findings, one line each, and a line with the number of further findings."""
    shown = list(map(line, findings[:MOST]))
    if len(findings) > MOST:
        shown.append(f"and {len(findings) - MOST} more, listed by {MORE}")
    return shown


def block(findings: Sequence[Finding], format: str = "text") -> str:
    """Return the text that stands below a table, ending in a line feed; empty if there are no findings.

    Args:
        findings: all findings.
        format: ``text`` (118 columns), ``markdown`` (a list) or ``latex`` (comments).
    """
    if not findings:
        return ""
    shown = lines(findings)
    if format == "latex":
        return "".join(f"% {text}\n" for text in [f"{HEADING}:", *shown])
    if format == "markdown":
        return f"**{HEADING}**\n\n" + "".join(f"- {markdown(text)}\n" for text in shown)
    wrapped = [
        textwrap.fill(text, WIDTH, initial_indent=_INDENT, subsequent_indent=2 * _INDENT, break_on_hyphens=False)
        for text in shown
    ]
    return "\n".join([HEADING, *wrapped]) + "\n"


def render(
    frame: pd.DataFrame,
    findings: Sequence[Finding],
    format: str = "text",
    targets: pd.DataFrame | None = None,
    columns: Sequence[str] | None = None,
    *,
    narrow: bool = False,
) -> str:
    """Return the overhead table with its findings.

    The findings follow the table in text, Markdown and LaTeX, and stand under ``findings`` in JSON. CSV has none.

    Args:
        frame, format, targets, columns, narrow: as for `analysis.comparison.report.render`, which also lists errors.
        findings: from `analysis.findings.findings`, of the same runs.
    """
    shown = plain(findings if format == "json" else findings[:MOST])
    table = report.render(frame, format, targets, shown, columns, narrow=narrow)
    if format in ("json", "csv") or not findings:
        return table
    return f"{table}\n{block(findings, format)}"
