"""What runs tell those who watch them (progress displays, notebooks, exporters, tests)."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed.engine.federation import RunProgress
from testbed.running.preparation import PlannedRun


class Observer:
    """What runs tell those who watch them. Here every method does nothing: override what you want to hear.

    Points of a sweep may run at the same time, so what happens to one run comes with the run, and runs take turns.
    No two calls overlap, but they come from different threads, always of the process that called `run`. An exception
    that a method raises ends all runs if the observer was given to `run`; one of an observer that the experiment (or
    `--observe`) names is counted and warned of instead, see `Guarded`.
    """

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """These will be run (or are finished already)."""

    def doing(self, what: str, run: PlannedRun | None = None) -> None:
        """Something begins that may take seconds, e.g. "summarising"; `run` is None for what concerns all of them."""

    def warned(self, run: PlannedRun, line: str) -> None:
        """Something about a run is not as it should be, and it runs all the same."""

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        """A run starts or goes on; `outcomes` are those of its recorded rounds."""

    def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
        """The run stands there now. On Ray the same progress may come several times."""

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        """A run has ended, and this is its summary."""

    def stopped(self, run: PlannedRun) -> None:
        """A run that had started is given up before its end (a signal, an error); its finished rounds stay."""


class _Handing(Observer):
    """Hands every call on, as the name of the method and what was told."""

    def _hand(self, method: str, told: tuple[Any, ...]) -> None:
        raise NotImplementedError


def _handing(method: str) -> Any:
    def tell(self: _Handing, *told: Any) -> None:
        self._hand(method, told)

    return tell


METHODS = tuple(name for name in vars(Observer) if not name.startswith("_"))
"""What an observer can be told."""
for _name in METHODS:
    setattr(_Handing, _name, _handing(_name))


class Serialised(_Handing):
    """Hands on to other observers, in their order and one call at a time.

    Args:
        observers: who watches.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self._turn = threading.RLock()

    def _hand(self, method: str, told: tuple[Any, ...]) -> None:
        with self._turn:
            for observer in self._observers:
                getattr(observer, method)(*told)


class Guarded(_Handing):
    """Hands on to an observer whose failures lose no run: they are counted, logged, and warned of.

    Args:
        observer: who watches.
        name: as it was asked for.
        failed: told of each failure: the run that it concerns (None: all), and how many there were before.

    Attributes:
        name: as above.
        failures: how many there were.
    """

    def __init__(
        self, observer: Observer, name: str, failed: Callable[[str, PlannedRun | None, Exception, int], None]
    ) -> None:
        self._observer = observer
        self.name = name
        self._failed = failed
        self.failures = 0

    def _hand(self, method: str, told: tuple[Any, ...]) -> None:
        try:
            try:
                getattr(self._observer, method)(*told)
            except SystemExit as error:  # a store's library may not end the run either
                raise RuntimeError(f"SystemExit: {error}") from error
        except Exception as error:
            run = next((one for one in told if isinstance(one, PlannedRun)), None)
            self._failed(self.name, run, error, self.failures)
            self.failures += 1
