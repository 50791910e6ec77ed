"""Crashes: unexpected exceptions of user code, located for a message of one line, and kept with their traceback.

A crash is a bug, most often in a user-defined class (a workload, a client's role, a server, a model of devices or
availability). It ends the run, unless the experiment has ``on_crash: drop``: then a client with a crash drops out of
the stage and is counted. A refusal (`ProtocolError`) is no crash, nor is a client that kills its whole process. A crash
that a live client reports over its connection counts as with ``drop``, unless its host confirms the crash.
"""

import os
import sysconfig
import traceback
from bdb import BdbQuit
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from testbed.errors import CodeCrashed, TestbedError, reason

OnCrash = Literal["stop", "drop", "raise"]
"""Effect of a crash in a client's code: end the run, drop the client, or raise the exception (unit tests)."""

_ROOT = Path(__file__).parents[1]
_OURS = tuple(f"{_ROOT / package}{os.sep}" for package in ("testbed", "cluster", "workloads", "analysis"))
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_INSTALLED = frozenset({"site-packages", "dist-packages"})  # Debian's Python installs into the second
_WATCHING = str(_ROOT / "testbed" / "running" / "observers" / "contract.py")  # observers are not part of a run
_LONGEST_TRACEBACK = 10_000  # characters, from the end


@dataclass(frozen=True)
class Crash:
    """An unexpected exception in a client's code.

    Attributes:
        client: the client's number.
        error: type and text of the exception, one line.
        file, line, function: the innermost frame in code that is neither installed nor the testbed's; without one, the
            innermost frame of the testbed.
        trace: traceback as text.
        cause: the exception, in the process in which it was raised.
    """

    client: int
    error: str
    file: str
    line: int
    function: str
    trace: str = field(repr=False)
    cause: BaseException | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, client: int, error: BaseException) -> "Crash":
        """Return the crash of a client with this exception."""
        # The user's own line helps more than a line in a library that it called.
        frame = _own_frame(error) or _innermost_of_ours(error)
        file, line, function = ("", 0, "") if frame is None else (frame.filename, frame.lineno or 0, frame.name)
        return cls(client, _text(error), file, line, function, _trace(error), error)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, without the exception, which may not be picklable."""
        return {**self.__dict__, "cause": None}

    @property
    def detail(self) -> str:
        """One line for the records, without folders, which differ between machines."""
        return f"{self.error} ({Path(self.file).name}:{self.line})" if self.file else self.error

    def stopping(self, round_number: int, stage: str) -> CodeCrashed:
        """Return the error that ends the run."""
        lost = "on_crash: drop would count such clients as dropouts"
        line = f"client {self.client} crashed in round {round_number} at {stage}: {self.error}{_place(self)}"
        return CodeCrashed(line, self.trace, f"; fix it and rerun with --resume ({lost})")


def is_crash(error: BaseException) -> bool:
    """Return whether an exception is a bug, not a request to end this process (Ctrl-C, or SIGTERM as Ray handles it).

    ``sys.exit`` in user code is a crash, too: it would end the run with an exit code of its choice.
    """
    if isinstance(error, SystemExit):
        frames = traceback.extract_tb(error.__traceback__)
        while frames and frames[-1].name == "exit":  # libraries such as wandb replace `sys.exit` by their own function
            frames.pop()
        return not (frames and "ray" in Path(frames[-1].filename).parts)
    return isinstance(error, Exception)


@contextmanager
def locating_crashes(what: str, then: str = "; fix it and rerun with --resume") -> Iterator[None]:
    """Turn exceptions of user code in the block into `CodeCrashed` with file and line; pass others on unchanged.

    Args:
        what: the crashing part, e.g. "the server's side of round 3".
        then: advice, at the end of the message.
    """
    try:
        yield
    # A refusal, an abort or bad input is a result with its own message, not a bug.
    except TestbedError:
        raise
    except BdbQuit as error:  # leaving the debugger stops the run, as Ctrl-C does
        raise KeyboardInterrupt from error
    except BaseException as error:
        if not is_crash(error) or _own_frame(error) is None:
            raise
        crash = Crash.of(-1, error)  # -1: no client
        raise CodeCrashed(f"{what} crashed: {crash.error}{_place(crash)}", crash.trace, then) from error


def _place(crash: Crash) -> str:
    if not crash.file:
        return ""
    here = f"{os.getcwd()}{os.sep}"
    return f" ({crash.file.removeprefix(here)}, line {crash.line}, in {crash.function})"


def _own_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost frame of user code; None if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    if any(frame.filename == _WATCHING for frame in frames):
        return None
    return next((frame for frame in reversed(frames) if _is_own(frame.filename)), None)


def _is_own(file: str) -> bool:
    # "<" begins the names of generated code ("<string>", "<frozen ...>"), which has no file to show.
    return not file.startswith((*_OURS, *_LIBRARIES, "<")) and _INSTALLED.isdisjoint(Path(file).parts)


def _innermost_of_ours(error: BaseException) -> traceback.FrameSummary | None:
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame for frame in reversed(frames) if frame.filename.startswith(_OURS)), None)


def _text(error: BaseException) -> str:
    return reason("".join(traceback.format_exception_only(error)).rstrip())


def _trace(error: BaseException) -> str:
    # The end has the innermost frames; recursion makes the beginning arbitrarily long.
    return "".join(traceback.format_exception(error))[-_LONGEST_TRACEBACK:]
