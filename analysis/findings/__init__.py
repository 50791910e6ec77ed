"""Findings: at most five lines that say which rows of a comparison do not mean what a reader would take them for."""

from analysis.findings.checks import findings
from analysis.findings.compared import MOST, Finding
from analysis.findings.rendering import block, line, lines, plain, render

__all__ = ["MOST", "Finding", "block", "findings", "line", "lines", "plain", "render"]
