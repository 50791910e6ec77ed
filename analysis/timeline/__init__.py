"""Rounds of a run as a trace that Perfetto and chrome://tracing show: `placed` in time, `events`, and the file."""

from analysis.timeline.rounds import numbered
from analysis.timeline.trace import Written, write

__all__ = ["Written", "numbered", "write"]
