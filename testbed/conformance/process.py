"""The check in a separate process, as a class may block or end its process."""

import multiprocessing
import os
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection

from testbed.conformance.protocols import results_of
from testbed.conformance.results import Result
from testbed.conformance.subjects import subject
from testbed.errors import CodeCrashed, TestbedError, reason
from testbed.signals import stopping_on_signals

_END = "end"
_RUNNING = "The class leaves its process running"


def results_apart(name: str, overrides: Sequence[str] = ()) -> Iterator[Result]:
    """Check the properties of a protocol in another process, which ends when a signal ends this one.

    Args:
        name: see `testbed.conformance.subjects.subject`.
        overrides: see `testbed.conformance.subjects.subject`.

    Yields:
        The results; the last one is a failure if the class has ended its process.

    Raises:
        TestbedError: as `subject` and `results_of`.
    """
    context = multiprocessing.get_context("fork")  # safe: the parent has imported everything and runs no threads
    results, sender = context.Pipe(duplex=False)
    child = context.Process(target=_check, args=(sender, name, overrides))
    with stopping_on_signals():
        child.start()
        # The child's copy is then the only one, so its end is noticed as EOFError.
        sender.close()
        try:
            while (received := _received(results)) != _END:
                if isinstance(received, BaseException):
                    raise received
                if received is None:
                    child.join()
                    detail = f"the class ended its process (exit code {child.exitcode}); return or raise instead"
                    yield Result(_RUNNING, "failed", detail)
                    return
                assert isinstance(received, Result)
                yield received
        finally:
            # Not terminate: the class may ignore SIGTERM.
            child.kill()
            child.join()


def _received(results: "Connection[object, object]") -> object:
    """Return the next message of the other process; None if it has ended."""
    try:
        return results.recv()
    except EOFError:
        return None


def _check(sender: "Connection[object, object]", name: str, overrides: Sequence[str]) -> None:
    os.setsid()  # a terminal then sends Ctrl-C only to the parent, which ends this process
    try:
        for result in results_of(subject(name, overrides)):
            sender.send(result)
        sender.send(_END)
    except TestbedError as error:
        sender.send(error)
    except Exception as error:  # a module that cannot be imported
        line = f"testbed check: {name}: {type(error).__name__}: {reason(str(error))}"
        sender.send(CodeCrashed(line, "".join(traceback.format_exception(error)), "; --debug prints the traceback"))
    except BaseException as error:  # raised by the class, as this process gets no Ctrl-C
        detail = f"the class raised {type(error).__name__}, which ends a process; raise an Exception instead"
        sender.send(Result(_RUNNING, "failed", detail, "".join(traceback.format_exception(error))))
        sender.send(_END)
