"""Workers that run points from one queue, here those of this process, and their threads.

Only the main thread receives signals. It therefore waits, and also does everything that takes long and cannot be
interrupted from elsewhere (summaries). `close` ends a worker, which makes the code that it runs raise.
"""

import asyncio
import contextlib
import functools
import gc
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Generic, Protocol, TypeVar

from testbed.engine.federation import RunProgress
from testbed.engine.in_process import run_in_process
from testbed.experiment.inputs import with_digests
from testbed.experiment.schema import Experiment
from testbed.experiment.sections import Cluster
from testbed.running.observers import Observer
from testbed.running.open_runs import OpenRun, name_point
from testbed.running.preparation import PlannedRun
from testbed.signals import raise_if_stopped
from testbed.workload import building

Item = TypeVar("Item")
Result = TypeVar("Result")
_Taken = TypeVar("_Taken", contravariant=True)
_Made = TypeVar("_Made", covariant=True)
OnProgress = Callable[[RunProgress], None]


class Worker(Protocol[_Taken, _Made]):
    """Does one item after the other, in one thread."""

    def run(self, item: _Taken) -> _Made:
        """Do `item`; raises soon when the worker is closed meanwhile."""

    def close(self) -> None:
        """Release the worker's resources and end its work. May be called from any thread, and several times."""


def run_all(
    items: Sequence[Item], workers: Sequence[Worker[Item, Result]], collect: Callable[[Item, Result], None]
) -> None:
    """Process all items, each in the worker that is free first, and pass every result to `collect` in this thread.

    With a single worker everything happens in this thread, and in order. In either case all workers are closed at the
    end, and their threads have ended.

    Args:
        items: the items, in the order in which they are begun.
        workers: at least one.
        collect: takes an item and its result; items are collected in the order in which they end.

    Raises:
        BaseException: the exception of the first worker that failed, of `collect`, or of a signal in this thread. The
            other workers are closed then: their current items are interrupted, and remaining items are not begun.
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
            # The main thread waits here: only this thread receives signals, and it summarises each run.
            for _ in range(self._count):
                made = self._made.get()
                if isinstance(made, BaseException):
                    raise made
                self._collect(*made)
        finally:
            with self._lock:
                self._stopped = True
            with contextlib.ExitStack() as ending:  # joins all threads even if a join raises
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
            worker.close()  # its resources are free for the remaining workers

    def _next(self) -> tuple[Item] | None:
        with self._lock:
            if self._stopped:
                return None
            return next(((item,) for item in self._left), None)


class PointWorker(ABC):
    """Runs points to their end, one after the other; see `testbed.running.workers.Worker`.

    Args:
        observer: told how it goes; its calls must not overlap (`testbed.running.observers.Serialised`).
        open_run: opens a point's run directory.
    """

    def __init__(self, observer: Observer, open_run: Callable[[PlannedRun], OpenRun]) -> None:
        self._observer = observer
        self._open_run = open_run
        self._closed = threading.Event()

    def run(self, run: PlannedRun) -> OpenRun:
        """Run (or resume) a point to its end; the run is left open, to be summarised."""
        opened = None
        try:
            self._prepare(run)  # first: without a cluster there is no run, and no directory
            opened = self._open_run(run)
            self._observer.started(run, opened.outcomes)
            if len(opened.outcomes) < run.point.experiment.rounds and not run.stopped:
                self._observer.doing("preparing the clients", run)
                self._run_rounds(run, opened, functools.partial(self._progressed, run))
            else:  # stopped between its last round and its summary
                opened.records.finish()
        except BaseException as error:
            if opened is not None:
                # A closed worker fails as a consequence of another failure: its log must not show a failure of its own.
                opened.end(error, stopped=self._closed.is_set())
            name_point(error, run)
            raise
        return opened

    def _progressed(self, run: PlannedRun, progress: RunProgress) -> None:
        raise_if_stopped()
        self._observer.progressed(run, progress)

    def close(self) -> None:
        self._closed.set()

    @abstractmethod
    def _prepare(self, run: PlannedRun) -> None:
        """Acquire the resources that the point runs on."""

    @abstractmethod
    def _run_rounds(self, run: PlannedRun, opened: OpenRun, on_progress: OnProgress) -> None:
        """Run the rounds that are left, and merge their records."""


class RemoteHosts(Protocol):
    """Hosts on a cluster that this process has joined, until the stack that it was joined with closes.

    The service ``hosts.ray`` joins one: ``join(address, stack, on_retry)``.
    """

    def start_checking(self, experiment: Experiment, points: int) -> None:
        """Start the hosts that check experiments with their data and then run the first of `points` points."""

    def notes_of(self, run: PlannedRun, name: str) -> list[str]:
        """Return the checking hosts' notes on a run; raises the same errors as a check in this process."""

    def workers(
        self, observer: Observer, open_run: Callable[[PlannedRun], OpenRun], cluster: Cluster, points: int
    ) -> Sequence[PointWorker]:
        """Return the workers for `points` points with one cluster section; the first takes over the checking hosts."""


class LocalWorker(PointWorker):
    """Runs points in this process."""

    has_run_points: ClassVar[bool] = False
    """Whether this process has run a point before, with any worker."""

    def _prepare(self, run: PlannedRun) -> None:
        """Do nothing: this process needs no preparation."""

    def _run_rounds(self, run: PlannedRun, opened: OpenRun, on_progress: OnProgress) -> None:
        experiment = with_digests(run.point.experiment, opened.files, opened.former_rounds)
        seed = run.simulation_seed if experiment.seed is None else experiment.seed
        workload = building.build(experiment.workload, experiment.population, seed)
        run_here = functools.partial(run_in_process, experiment, workload, run.simulation_seed, opened.records)
        # Clients and their roles refer to each other: the last point's vectors, which may be gigabytes, would stay
        # until Python happens to look for circles. It takes 0.4 s with torch, so not before the first point.
        if LocalWorker.has_run_points:
            gc.collect()
        LocalWorker.has_run_points = True
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            run_here(on_progress)
            return
        # In a notebook this thread has an event loop already, and a loop cannot run inside another: take a thread.
        with ThreadPoolExecutor(1) as thread, _stopped_with_this_thread(on_progress) as stoppable:
            thread.submit(run_here, stoppable).result()


@contextlib.contextmanager
def _stopped_with_this_thread(on_progress: OnProgress) -> Iterator[OnProgress]:
    """`on_progress`, raising `KeyboardInterrupt` in the thread that calls it once this one is interrupted."""
    stop = threading.Event()

    def stoppable(progress: RunProgress) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        on_progress(progress)

    try:
        yield stoppable
    except BaseException:
        stop.set()
        raise
