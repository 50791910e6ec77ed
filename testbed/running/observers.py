"""What runs tell those who watch them: progress displays, notebooks, tests."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.engine.federation import Progress
from testbed.running.preparation import PlannedRun


class Observer:
    """What runs tell those who watch them. Here every method does nothing: override what you want to hear.

    Points of a sweep may run at the same time, so what happens to one run comes with the run, and runs take turns.
    No two calls overlap, but they come from different threads. An exception that a method raises ends all runs.
    """

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """These will be run (or are finished already)."""

    def doing(self, what: str, run: PlannedRun | None = None) -> None:
        """Something begins that may take seconds, e.g. "summarising"; `run` is None for what concerns all of them."""

    def warned(self, run: PlannedRun, line: str) -> None:
        """Something about a run is not as it should be, and it will run all the same; before it starts or goes on."""

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        """A run starts or goes on; `outcomes` are those of its recorded rounds."""

    def progressed(self, run: PlannedRun, progress: Progress) -> None:
        """The run stands there now. On Ray the same progress may come several times."""

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        """A run has ended, and this is its summary."""


class Serialised(Observer):
    """Hands on to another observer, one call at a time.

    Args:
        observer: who watches.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._turn = threading.RLock()

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """See `Observer`."""
        with self._turn:
            self._observer.planned(runs)

    def doing(self, what: str, run: PlannedRun | None = None) -> None:
        """See `Observer`."""
        with self._turn:
            self._observer.doing(what, run)

    def warned(self, run: PlannedRun, line: str) -> None:
        """See `Observer`."""
        with self._turn:
            self._observer.warned(run, line)

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        """See `Observer`."""
        with self._turn:
            self._observer.started(run, outcomes)

    def progressed(self, run: PlannedRun, progress: Progress) -> None:
        """See `Observer`."""
        with self._turn:
            self._observer.progressed(run, progress)

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        """See `Observer`."""
        with self._turn:
            self._observer.ended(run, summary)
