"""SIGINT and SIGTERM stop a run in the same way: by `KeyboardInterrupt`, at once, from wherever the program is.

Python's own handler of SIGINT will not do: `asyncio.run` replaces it by one that waits until the running round
awaits something, and Ray puts its own for SIGTERM. What is recorded is safe at any moment (see `records.writer`).
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Let both signals raise `KeyboardInterrupt` here; the handlers before are put back at the end.

    Does nothing outside of the main thread, which is the only one that Python gives signals to.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    stop_on_signals()
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def stop_on_signals() -> None:
    """Put the handlers (again): some libraries replace them when they start."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # started with nohup or in the background: stay so
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt
