"""Several threads take items from one queue, and what they make comes back to the thread that asked.

Only the main thread hears signals, so it is the one that waits, and everything that takes long and cannot be
broken off from elsewhere belongs there too (summaries). A worker is ended by its `close`, which makes what runs in it
raise.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_Taken = TypeVar("_Taken", contravariant=True)
_Made = TypeVar("_Made", covariant=True)


class Worker(Protocol[_Taken, _Made]):
    """Does one item after the other, in one thread."""

    def run(self, item: _Taken) -> _Made:
        """Do `item`; raises soon when the worker is closed meanwhile."""

    def close(self) -> None:
        """Give up what the worker holds and end what runs in it. Called from any thread, and perhaps several times."""


def run_all(
    items: Sequence[Item], workers: Sequence[Worker[Item, Result]], collect: Callable[[Item, Result], None]
) -> None:
    """Do all items, each in the worker that is free first, and hand every result to `collect`, in this thread.

    With a single worker everything happens in this thread, and in order. Either way all workers are closed at the
    end, and their threads have ended.

    Args:
        items: what to do, in the order in which it is begun.
        workers: at least one.
        collect: takes an item and its result; items are collected in the order in which they end.

    Raises:
        BaseException: what the first worker that failed has raised, or `collect`, or a signal in this thread. The other
            workers are closed then: what they were doing is broken off, and what was not begun is left.
    """
    if len(workers) > 1:
        _Threads(items, workers, collect).run_all()
        return
    try:
        for item in items:
            collect(item, workers[0].run(item))
    finally:
        workers[0].close()


class _Threads(Generic[Item, Result]):
    """The threads of one call of `run_all`."""

    def __init__(
        self, items: Sequence[Item], workers: Sequence[Worker[Item, Result]], collect: Callable[[Item, Result], None]
    ) -> None:
        self._left = iter(items)
        self._count = len(items)
        self._workers = workers
        self._collect = collect
        self._lock = threading.Lock()
        self._stopped = False
        self._made: queue.SimpleQueue[tuple[Item, Result] | BaseException] = queue.SimpleQueue()

    def run_all(self) -> None:
        # Daemons: a second Ctrl-C, which breaks off the waiting below, ends the process at once.
        threads = [
            threading.Thread(target=self._work, args=(worker,), name=f"worker-{number}", daemon=True)
            for number, worker in enumerate(self._workers, 1)
        ]
        try:
            for thread in threads:
                thread.start()
            for _ in range(self._count):
                made = self._made.get()
                if isinstance(made, BaseException):
                    raise made
                self._collect(*made)
        finally:
            with self._lock:
                self._stopped = True
            with contextlib.ExitStack() as ending:  # all of it, whatever one of them raises
                for thread in threads:
                    if thread.ident is not None:
                        ending.callback(thread.join)
                for worker in self._workers:
                    ending.callback(worker.close)

    def _work(self, worker: Worker[Item, Result]) -> None:
        try:
            while (item := self._next()) is not None:
                self._made.put((item[0], worker.run(item[0])))
        except BaseException as error:  # a KeyboardInterrupt of an observer's, too: the thread that waits raises it
            self._made.put(error)
        else:
            worker.close()  # what it holds is free for the workers that still run

    def _next(self) -> tuple[Item] | None:
        with self._lock:
            if self._stopped:
                return None
            return next(((item,) for item in self._left), None)
