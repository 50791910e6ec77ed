"""The events of runs for observers (progress displays, notebooks, exporters, tests)."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed.engine.federation import RunProgress
from testbed.running.preparation import PlannedRun


class Observer:
    """An observer of runs. Here every method does nothing: override the events of interest.

    Points of a sweep may run at the same time, so events of a run carry the run, and events of several runs may
    alternate. No two calls overlap, but they come from different threads, always of the process that called `run`. An
    exception from a method ends all runs if the observer was passed to `run`. Exceptions of an observer that the
    experiment (or `--observe`) names are only counted and reported as warnings, see `Guarded`.

    Example:
        >>> from testbed import Experiment, Observer, run
        >>> class Outcomes(Observer):
        ...     def progressed(self, run, progress):
        ...         if progress.outcome:
        ...             print(progress.round_number, progress.outcome)
        >>> experiment = Experiment(rounds=2, population=6, selection={"participants": 3})
        >>> _ = run(experiment, out="runs/observed", network="in-process", observer=Outcomes())
        1 completed
        2 completed
    """

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """Handle the list of runs to execute (some may be finished already)."""

    def doing(self, what: str, run: PlannedRun | None = None) -> None:
        """Handle the start of an activity that may take seconds, e.g. "summarising"; `run` is None for all runs."""

    def warned(self, run: PlannedRun, line: str) -> None:
        """Something about a run is not as it should be, and it runs all the same."""

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        """Handle the start or resumption of a run; `outcomes` are those of its recorded rounds."""

    def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
        """Handle a run's progress. On Ray the same progress may be reported several times."""

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        """Handle the end of a run, with its summary."""

    def stopped(self, run: PlannedRun) -> None:
        """Handle a started run that stops early (a signal, an error); its finished rounds stay."""


class _Handing(Observer):
    """An observer that passes every call on, as the name of the method and its arguments."""

    def _hand(self, method: str, arguments: tuple[Any, ...]) -> None:
        raise NotImplementedError


def _handing(method: str) -> Any:
    def tell(self: _Handing, *arguments: Any) -> None:
        self._hand(method, arguments)

    return tell


METHODS = tuple(name for name in vars(Observer) if not name.startswith("_"))
"""The names of an observer's events."""
for _name in METHODS:
    setattr(_Handing, _name, _handing(_name))


class Serialised(_Handing):
    """An observer that passes events on to other observers, in their order and one call at a time.

    Args:
        observers: the other observers.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        # Re-entrant: an observer may cause another event, such as a warning, within its call.
        self._turn = threading.RLock()

    def _hand(self, method: str, arguments: tuple[Any, ...]) -> None:
        with self._turn:
            for observer in self._observers:
                getattr(observer, method)(*arguments)


class Guarded(_Handing):
    """An observer whose failures end no run: they are counted, logged and reported as warnings.

    Args:
        observer: the observer to guard.
        name: its name in the experiment.
        failed: called on each failure, with the name, the run (None: all runs), the exception and the number of earlier
            failures.

    Attributes:
        name: its name in the experiment.
        failures: number of failures.
    """

    def __init__(
        self, observer: Observer, name: str, failed: Callable[[str, PlannedRun | None, Exception, int], None]
    ) -> None:
        self._observer = observer
        self.name = name
        self._failed = failed
        self.failures = 0

    def _hand(self, method: str, arguments: tuple[Any, ...]) -> None:
        try:
            try:
                getattr(self._observer, method)(*arguments)
            except SystemExit as error:  # a store's library may not end the run either
                raise RuntimeError(f"SystemExit: {error}") from error
        except Exception as error:
            run = next((argument for argument in arguments if isinstance(argument, PlannedRun)), None)
            self._failed(self.name, run, error, self.failures)
            self.failures += 1
