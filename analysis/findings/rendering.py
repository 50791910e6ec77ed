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
    """Each finding as a mapping of its attributes, for JSON; all of them.

    Example:
        >>> plain([Finding("one-step", "clients take one gradient step", (), ("workload.epochs",))])
        [{'code': 'one-step', 'text': 'clients take one gradient step', 'rows': [], 'keys': ['workload.epochs']}]
    """
    return [{"code": one.code, "text": one.text, "rows": list(one.rows), "keys": list(one.keys)} for one in findings]


def rows_text(finding: Finding) -> str:
    """The rows that a finding holds for, shortened: the first few labels and how many more there are; empty: all."""
    shown: list[str] = []
    for at, label in enumerate(map(visible, finding.rows)):
        if shown and len(", ".join([*shown, label])) > _LONGEST_ROWS:
            return f"{', '.join(shown)} and {len(finding.rows) - at} more"
        shown.append(label if len(label) <= _LONGEST_ROWS else f"{label[: _LONGEST_ROWS - 1]}…")
    return ", ".join(shown)


def line(finding: Finding) -> str:
    """A finding as one sentence: its rows, what was found, and the keys to change in parentheses.

    Example:
        >>> line(Finding("waited-for-deadline", "4 of 5 rounds waited", ("random",), ("time.deadline_s",)))
        'random: 4 of 5 rounds waited (time.deadline_s)'
    """
    rows = rows_text(finding)
    keys = f" ({', '.join(finding.keys)})" if finding.keys else ""
    return f"{f'{rows}: ' if rows else ''}{visible(finding.text)}{keys}"


def lines(findings: Sequence[Finding]) -> list[str]:
    """The findings that are shown, a line each, and a line that says how many more there are."""
    shown = list(map(line, findings[:MOST]))
    if len(findings) > MOST:
        shown.append(f"and {len(findings) - MOST} more: {MORE}")
    return shown


def block(findings: Sequence[Finding], format: str = "text") -> str:
    """What stands below a table, ending in a line feed; empty where nothing was found.

    Args:
        findings: all of them.
        format: ``text`` (118 columns), ``markdown`` (a list) or ``latex`` (comments).
    """
    if not findings:
        return ""
    shown = lines(findings)
    if format == "latex":
        return "".join(f"% {one}\n" for one in [f"{HEADING}:", *shown])
    if format == "markdown":
        return f"**{HEADING}**\n\n" + "".join(f"- {markdown(one)}\n" for one in shown)
    wrapped = [
        textwrap.fill(one, WIDTH, initial_indent=_INDENT, subsequent_indent=2 * _INDENT, break_on_hyphens=False)
        for one in shown
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
    """The overhead table with its findings: below it for people, under ``findings`` in JSON; CSV has no room for them.

    Args:
        frame, format, targets, columns, narrow: as of `analysis.comparison.report.render`, which says what it raises.
        findings: from `analysis.findings.findings`, of the same runs.
    """
    shown = plain(findings if format == "json" else findings[:MOST])
    table = report.render(frame, format, targets, shown, columns, narrow=narrow)
    if format in ("json", "csv") or not findings:
        return table
    return f"{table}\n{block(findings, format)}"
