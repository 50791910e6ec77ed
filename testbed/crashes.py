"""Code that raises what it should not: where in whose file, so that one line says it, and the traceback for the rest.

A crash is a bug, most often in a user-defined class (a workload, a client's role, a server, a model of devices or
availability). It ends the run, unless the experiment says ``on_crash: drop``: then a client whose code crashes is
lost for the stage, and counted. A refusal (`ProtocolError`) is no crash, nor is a client that kills its whole process.
A crash that a live client reports over its connection counts as ``drop`` has it, unless its host confirms the crash.
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
"""What a crash in a client's code does: end the run; lose the client; come through as it is (unit tests)."""

_ROOT = Path(__file__).parents[1]
_OURS = tuple(f"{_ROOT / package}{os.sep}" for package in ("testbed", "cluster", "workloads", "analysis"))
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_WATCHING = str(_ROOT / "testbed" / "running" / "observers" / "contract.py")  # who watches a run is no part of it
_LONGEST_TRACEBACK = 10_000  # characters; the end says most


@dataclass(frozen=True)
class Crash:
    """What a client's code raised.

    Attributes:
        client: its number.
        error: type and text of the exception, one line.
        file, line, function: where: the innermost frame in code that is neither installed nor the testbed's own;
            where there is none, the innermost of the testbed.
        trace: the traceback as text.
        cause: the exception, in the process where it was raised.
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
        """The crash of `client` that `error` is."""
        frame = _own_frame(error) or _innermost_of_ours(error)
        file, line, function = ("", 0, "") if frame is None else (frame.filename, frame.lineno or 0, frame.name)
        return cls(client, _text(error), file, line, function, _trace(error), error)

    def __getstate__(self) -> dict[str, Any]:
        """What travels to another process: not every exception can."""
        return {**self.__dict__, "cause": None}

    @property
    def detail(self) -> str:
        """One line for the records: without folders, which differ from machine to machine."""
        return f"{self.error} ({Path(self.file).name}:{self.line})" if self.file else self.error

    def stopping(self, round_number: int, stage: str) -> CodeCrashed:
        """The error that ends the run."""
        lost = "on_crash: drop would count such clients as lost"
        line = f"client {self.client} crashed in round {round_number} at {stage}: {self.error}{_place(self)}"
        return CodeCrashed(line, self.trace, f"; fix it and rerun with --resume ({lost})")


def is_crash(error: BaseException) -> bool:
    """Whether it is a bug in somebody's code; not what is to end this process: Ctrl-C, and SIGTERM as Ray answers it.

    Code that calls ``sys.exit`` would end the run as though that were its end, with the exit code that it says.
    """
    if isinstance(error, SystemExit):
        frames = traceback.extract_tb(error.__traceback__)
        while frames and frames[-1].name == "exit":  # of libraries that put their own in place of `sys.exit`, as wandb
            frames.pop()
        return not (frames and "ray" in Path(frames[-1].filename).parts)
    return isinstance(error, Exception)


@contextmanager
def locating_crashes(what: str, then: str = "; fix it and rerun with --resume") -> Iterator[None]:
    """Make of what code of the user's own raises in the block a `CodeCrashed` that says where.

    Args:
        what: did it, e.g. "the server's side of round 3".
        then: what to do, at the end of the line.

    What the testbed and libraries raise by themselves comes through as it is.
    """
    try:
        yield
    except TestbedError:
        raise
    except BdbQuit as error:  # somebody has left the debugger: that stops the run, as Ctrl-C does
        raise KeyboardInterrupt from error
    except BaseException as error:
        if not is_crash(error) or _own_frame(error) is None:
            raise
        crash = Crash.of(-1, error)
        raise CodeCrashed(f"{what} crashed: {crash.error}{_place(crash)}", crash.trace, then) from error


def _place(crash: Crash) -> str:
    if not crash.file:
        return ""
    here = f"{os.getcwd()}{os.sep}"
    return f" ({crash.file.removeprefix(here)}, line {crash.line}, in {crash.function})"


def _own_frame(error: BaseException) -> traceback.FrameSummary | None:
    """The innermost frame of the user's own code; None: it was not involved."""
    frames = traceback.extract_tb(error.__traceback__)
    if any(frame.filename == _WATCHING for frame in frames):
        return None
    return next((frame for frame in reversed(frames) if _is_own(frame.filename)), None)


def _is_own(file: str) -> bool:
    return not file.startswith((*_OURS, *_LIBRARIES, "<")) and _INSTALLED.isdisjoint(Path(file).parts)


def _innermost_of_ours(error: BaseException) -> traceback.FrameSummary | None:
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame for frame in reversed(frames) if frame.filename.startswith(_OURS)), None)


def _text(error: BaseException) -> str:
    return reason("".join(traceback.format_exception_only(error)).rstrip())


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-_LONGEST_TRACEBACK:]
