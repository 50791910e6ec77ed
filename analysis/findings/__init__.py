"""Findings: at most five lines that say which rows of a comparison do not mean what a reader would take them for."""

from analysis.findings.finding import MOST, Finding

__all__ = ["MOST", "Finding"]
