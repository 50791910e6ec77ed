"""Findings: the lines below a comparison that warn of rows that are easily misread, at most five."""

from analysis.findings.checks import findings
from analysis.findings.compared import MOST, Finding
from analysis.findings.rendering import block, line, lines, plain, render

__all__ = ["MOST", "Finding", "block", "findings", "line", "lines", "plain", "render"]
