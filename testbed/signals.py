"""SIGINT, SIGTERM and SIGHUP stop a run in the same way: by `KeyboardInterrupt`, at once, from wherever the program is.

Python's own handler of SIGINT will not do: `asyncio.run` replaces it by one that waits until the running round
awaits something, and Ray puts its own for SIGTERM. What is recorded is safe at any moment (see `records.writer`).

An exception that is raised in a callback, of a library or of Python's garbage collector, is dropped there, and the
signal with it. So a signal is remembered, too, and `raise_if_stopped` raises for it again where work has a natural
pause. In the midst of Python's import system it must not be raised at all: the lock of all imports would stay locked,
and another thread's import wait for ever (importlib's `_get_module_lock` takes it before its `try`). So it waits.
"""

import contextlib
import os
import signal
import stat
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_CODES = tuple(128 + number for number in _SIGNALS)
"""The exit codes of a command that a signal has stopped: 130 (SIGINT), 143 (SIGTERM), 129 (SIGHUP)."""
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
_LATER_S = 0.02
_received = threading.Event()
_last = signal.SIGINT


@contextlib.contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Let the signals raise `KeyboardInterrupt` here; the handlers before are put back at the end.

    Does nothing outside of the main thread, which is the only one that Python gives signals to.
    """
    global _last
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    outermost = _interrupt not in before.values()
    if outermost:
        _last = signal.SIGINT
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # started with nohup or in the background: stay so
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        if outermost:  # it has been answered
            _received.clear()
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def raise_if_stopped() -> None:
    """Raise `KeyboardInterrupt` where a signal has come, in any thread; between `stopping_on_signals`'s two ends."""
    if _received.is_set():
        raise KeyboardInterrupt


def stop_code() -> int:
    """The exit code of a command that has been stopped: 128 and the number of the last signal, SIGINT's without any."""
    return 128 + _last


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _last
    if not _received.is_set():  # the first is the reason: who closes a terminal may send SIGHUP and SIGTERM
        _last = signal.Signals(number)
    _received.set()
    if number == signal.SIGHUP:
        _leave_terminal()
    if frame is not None and frame.f_code.co_filename == _IMPORT_SYSTEM:
        again = threading.Timer(_LATER_S, _send_again, (number,))
        again.daemon = True
        again.start()
        return
    raise KeyboardInterrupt


def _leave_terminal() -> None:
    """Let output that would go to a terminal go nowhere: it has gone, and to write to it is an error from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # closed
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _send_again(number: int) -> None:
    if _received.is_set():
        os.kill(os.getpid(), number)
