"""Rounds of a run as a trace that Perfetto and chrome://tracing show: `placed` in time, `events`, and the file."""

from analysis.timeline.trace import Written, numbered, write

__all__ = ["Written", "numbered", "write"]
