"""SIGINT, SIGTERM and SIGHUP stop a run alike: they raise `KeyboardInterrupt` immediately, at any point of the program.

Python's own handler of SIGINT does not suffice: `asyncio.run` replaces it by one that waits until the running round
awaits, and Ray installs its own for SIGTERM. Records are safe at any moment (see `records.writer`).

A signal is also stored, and `raise_if_stopped` raises again at natural pauses of the work.
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
"""Exit codes of a command stopped by a signal: 130 (SIGINT), 143 (SIGTERM), 129 (SIGHUP)."""
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
_LATER_S = 0.02  # delay of a signal that arrives within an import
_received = threading.Event()
_last = signal.SIGINT


@contextlib.contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Let the signals raise `KeyboardInterrupt` within the block; the former handlers are restored at its end.

    Does nothing outside of the main thread, which is the only one that receives signals in Python.
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
        if handler is not signal.SIG_IGN:  # ignored under nohup or in the background: keep ignoring
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        if outermost:  # the signal has been handled
            _received.clear()
        for number, handler in before.items():
            if handler is not None:  # None: set by a library in C; Python cannot restore such a handler
                signal.signal(number, handler)


def raise_if_stopped() -> None:
    """Raise `KeyboardInterrupt` if a signal has arrived within `stopping_on_signals`, in any thread."""
    if _received.is_set():
        raise KeyboardInterrupt


def stop_code() -> int:
    """Return the exit code of a stopped command: 128 plus the number of the last signal, SIGINT's without any."""
    return 128 + _last


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _last
    if not _received.is_set():  # the first signal counts: closing a terminal may send SIGHUP and SIGTERM
        _last = signal.Signals(number)
    # Stored, too: an exception raised in a callback or in the garbage collector is dropped there (`raise_if_stopped`).
    _received.set()
    if number == signal.SIGHUP:
        _leave_terminal()
    # Never raise here: importlib's `_get_module_lock` takes the lock of all imports before its `try`. The lock would
    # stay taken, and the next import of another thread would wait forever. Send the signal again a little later.
    if frame is not None and frame.f_code.co_filename == _IMPORT_SYSTEM:
        again = threading.Timer(_LATER_S, _send_again, (number,))
        again.daemon = True  # does not keep an exiting process alive
        again.start()
        return
    raise KeyboardInterrupt


def _leave_terminal() -> None:
    """Redirect output for a closed terminal to nowhere, as writing to the terminal would be an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # closed
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _send_again(number: int) -> None:
    if _received.is_set():
        os.kill(os.getpid(), number)
