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
    """Base of all exceptions that the testbed raises on purpose.

    Example:
        >>> from testbed import Experiment, TestbedError
        >>> try:
        ...     Experiment(rounds=0)
        ... except TestbedError as error:
        ...     print(error)
        Experiment: rounds: should be greater than 0, not 0
    """

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
    """An experiment that cannot be run as written (exit code 2).

    Example:
        >>> from testbed import Experiment
        >>> Experiment(populaton=50)
        Traceback (most recent call last):
        testbed.errors.ExperimentError: Experiment: populaton: unknown key; did you mean 'population'? ...
    """


class RunError(TestbedError):
    """A run that cannot go on: its directory is in use, the disk is full, a record is damaged (exit code 3).

    Example:
        >>> from testbed import find_runs
        >>> find_runs("runs/nowhere")
        Traceback (most recent call last):
        testbed.errors.RunError: runs/nowhere: no such directory
    """


class CodeCrashed(RunError):
    """An unexpected exception of user code, or of a client's handler.

    Args:
        line: one line with file and line.
        trace: the traceback as text, also of another process.
        advice: end of the message, e.g. how to resume the run.

    Attributes:
        line, trace: as in Args.

    Example:
        >>> crash = CodeCrashed("mine.py, line 3: ZeroDivisionError", advice="; mend it, then add --resume")
        >>> print(crash)
        mine.py, line 3: ZeroDivisionError; mend it, then add --resume
        >>> isinstance(crash, RunError)
        True
    """

    def __init__(self, line: str, trace: str = "", advice: str = "") -> None:
        super().__init__(f"{line}{advice}")
        self.line = line
        self.trace = trace


class TraceError(TestbedError):
    """A trace file that cannot be used.

    Example:
        >>> from pathlib import Path
        >>> from testbed.emulation.traces.series import BANDWIDTH, read_series
        >>> read_series(Path("missing.csv"), BANDWIDTH)
        Traceback (most recent call last):
        testbed.errors.TraceError: missing.csv: cannot be read: No such file or directory
    """


class ClusterError(TestbedError):
    """A problem with Ray: not reachable, too few resources, or a loss that the run cannot replace.

    Example:
        >>> from testbed import ClusterError, run
        >>> def run_anyway(experiment):
        ...     try:
        ...         return run(experiment)
        ...     except ClusterError:
        ...         return run(experiment, network="in-process")
    """


class InstallationError(TestbedError):
    """An installed library that cannot be used; the message names the installation that is needed.

    Example:
        >>> try:
        ...     raise InstallationError("torch: cannot be imported; install it again with pip install torch")
        ... except TestbedError as error:
        ...     print(type(error).__name__)
        InstallationError
    """


class ProtocolError(TestbedError):
    """A message that does not decode, or a step out of order.

    Attributes:
        candidates, participants: from the selection that the error has ended, for the record of the round; None:
            unknown.

    Example:
        >>> from testbed.messages import decode
        >>> from testbed.training import TrainingReport
        >>> decode(TrainingReport, b"no report")
        Traceback (most recent call last):
        testbed.errors.ProtocolError: not a TrainingReport: ...
    """

    candidates: int | None = None
    participants: Any = None


class Refusal(ProtocolError):
    """Misbehaviour that a party has detected, or a request for data that it must not give.

    A refusal is a result: it is sent back as the answer and recorded as an event, never a crash.

    Args:
        check: name of the failed check, e.g. ``"lotto.population-below-minimum"``.
        detail: one line for people, without secrets.

    Attributes:
        check, detail: as in Args.

    Example:
        >>> refusal = Refusal("mine.too-few-participants", "3 of at least 5")
        >>> refusal.check
        'mine.too-few-participants'
        >>> print(refusal)
        mine.too-few-participants: 3 of at least 5
    """

    def __init__(self, check: str, detail: str = "") -> None:
        super().__init__(f"{check}: {detail}" if detail else check)
        self.check = check
        self.detail = detail


class RoundAborted(ProtocolError):
    """End of a round without an update; the model stays unchanged.

    Args:
        reason: short machine-readable reason, e.g. ``"too-few-candidates"``.
        detail: one line for people.
        candidates: number of candidates, if a selection ends the round; None: unknown.

    Attributes:
        reason, detail, candidates: as in Args.

    Example:
        >>> aborted = RoundAborted("below-threshold", "4 of 6 survivors")
        >>> aborted.reason, str(aborted)
        ('below-threshold', 'below-threshold: 4 of 6 survivors')
    """

    def __init__(self, reason: str, detail: str = "", *, candidates: int | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
        self.candidates = candidates


class RoundSkipped(RoundAborted):
    """End of a round before it began: selection has no admissible participants (e.g. no whole batch is online).

    Args:
        reason, detail, candidates: see `RoundAborted`.

    Example:
        >>> skipped = RoundSkipped("too-few-available", "7 available, 10 wanted", candidates=7)
        >>> skipped.reason, skipped.candidates
        ('too-few-available', 7)
    """
