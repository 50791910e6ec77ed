"""Errors of the testbed.

A message names the problem, the place and the remedy; the command line prints it as one line.
"""

import os
import traceback
from typing import Any


def reason(error: Exception | str, longest: int = 200) -> str:
    """Return another library's error as one line of at most `longest` characters.

    Args:
        error: the error or its text.
        longest: largest number of characters.
    """
    return " ".join(str(error).split())[:longest]


LEAVE_ONE_OUT = "leave out one of the two"


def excludes(option: str, other: str, why: str, advice: str = LEAVE_ONE_OUT) -> ValueError:
    """Return the error for two options that exclude each other.

    Args:
        option, other: their keys, with the chosen values if the keys alone do not name them.
        why: the reason, without a full stop.
        advice: the change that makes the experiment valid.
    """
    return ValueError(f"{option} excludes {other}: {why}; {advice}")


class TestbedError(Exception):
    """Base of all exceptions that the testbed raises on purpose."""

    __test__ = False  # the name begins with "Test": keep pytest from collecting it
    with_traceback_shown = False
    """Whether a notebook shows the traceback, too (``run(..., debug=True)``)."""

    def _render_traceback_(self) -> list[str]:
        """Return IPython's display: the command's error lines, or the traceback if ``TESTBED_DEBUG`` is set."""
        if self.with_traceback_shown or os.environ.get("TESTBED_DEBUG"):
            return "".join(traceback.format_exception(self)).splitlines()
        # Escaped as in the command: a message may quote control characters of a foreign file.
        lines = str(self).splitlines() or [type(self).__name__]
        return [
            "error: " + "".join(character if character.isprintable() else ascii(character)[1:-1] for character in line)
            for line in lines
        ]


class ExperimentError(TestbedError):
    """An experiment that cannot be run as written (exit code 2)."""


class RunError(TestbedError):
    """A run that could not go on: its directory is in use, the disk is full, a record is damaged (exit code 3)."""


class CodeCrashed(RunError):
    """User code, or a client's handler, raised an unexpected exception.

    Args:
        line: one line with file and line.
        trace: the traceback as text, also of another process.
        advice: end of the message, e.g. how to resume the run.
    """

    def __init__(self, line: str, trace: str = "", advice: str = "") -> None:
        super().__init__(f"{line}{advice}")
        self.line = line
        self.trace = trace


class TraceError(TestbedError):
    """A trace file that cannot be used."""


class ClusterError(TestbedError):
    """Ray is not reachable, lacks resources, or lost more than the run can replace."""


class InstallationError(TestbedError):
    """An installed library that cannot be used; the message names the installation that is needed."""


class ProtocolError(TestbedError):
    """A message that does not decode, or a step out of order.

    Attributes:
        candidates, participants: from the selection that the error has ended, for the record of the round; None:
            unknown.
    """

    candidates: int | None = None
    participants: Any = None


class Refusal(ProtocolError):
    """A party detected misbehaviour, or was asked for data that it must not give.

    A refusal is a result: it is sent back as the answer and recorded as an event, never a crash.

    Args:
        check: name of the failed check, e.g. ``"lotto.population-below-minimum"``.
        detail: one line for people, without secrets.
    """

    def __init__(self, check: str, detail: str = "") -> None:
        super().__init__(f"{check}: {detail}" if detail else check)
        self.check = check
        self.detail = detail


class RoundAborted(ProtocolError):
    """The round ends without an update; the model stays unchanged.

    Args:
        reason: short machine-readable reason, e.g. ``"too-few-candidates"``.
        detail: one line for people.
        candidates: number of candidates, if a selection ends the round; None: unknown.
    """

    def __init__(self, reason: str, detail: str = "", *, candidates: int | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
        self.candidates = candidates


class RoundSkipped(RoundAborted):
    """The selection found no admissible participants (e.g. no whole batch online), so the round did not begin."""
