"""Rounds of a run as a trace for Perfetto and chrome://tracing: `placed` in time, `events`, and the file."""

from analysis.timeline.trace import Written, numbered, write

__all__ = ["Written", "numbered", "write"]
