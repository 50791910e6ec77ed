"""What runs points, one after the other, to their end; here: in this process."""

import asyncio
import contextlib
import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import workloads
from testbed.engine.federation import Progress
from testbed.engine.in_process import run_in_process
from testbed.records import RunDirectory
from testbed.running.observers import Observer
from testbed.running.open_runs import OpenRun, name_point
from testbed.running.preparation import PlannedRun

OnProgress = Callable[[Progress], None]


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
                self._run_rounds(run, opened.records, lambda progress: self._observer.progressed(run, progress))
            else:  # stopped between its last round and its summary
                opened.records.finish()
        except BaseException as error:
            if opened is not None:
                opened.end(error, stopped=self._closed.is_set())
            name_point(error, run)
            raise
        return opened

    def close(self) -> None:
        """See `testbed.running.workers.Worker`."""
        self._closed.set()

    @abstractmethod
    def _prepare(self, run: PlannedRun) -> None:
        """Get hold of what the point runs on."""

    @abstractmethod
    def _run_rounds(self, run: PlannedRun, records: RunDirectory, on_progress: OnProgress) -> None:
        """Run the rounds that are left, and merge their records."""


class LocalWorker(PointWorker):
    """Runs points in this process."""

    def _prepare(self, run: PlannedRun) -> None:
        """Nothing: this process is there."""

    def _run_rounds(self, run: PlannedRun, records: RunDirectory, on_progress: OnProgress) -> None:
        experiment = run.point.experiment
        seed = run.simulation_seed if experiment.seed is None else experiment.seed
        workload = workloads.build(experiment.workload, experiment.population, seed)
        run_here = functools.partial(run_in_process, experiment, workload, run.simulation_seed, records)
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

    def stoppable(progress: Progress) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        on_progress(progress)

    try:
        yield stoppable
    except BaseException:
        stop.set()
        raise
