"""Running experiments into run directories: the library behind ``testbed run`` and notebooks.

`validation` checks an experiment before anything runs and without data. `preparation` chooses the directory of each
point and finds existing runs. `execution` runs the points, with `workers` in this process or on Ray. `open_runs` locks
run directories and writes their provenance. `observers` are notified of progress, and `status` reports the state of
runs.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.records.mirror import runs_below as runs_below
    from testbed.running.execution import run as run
    from testbed.running.execution import run_all as run_all
    from testbed.running.observers import Observer as Observer
    from testbed.running.preparation import PlannedRun as PlannedRun
    from testbed.running.preparation import default_directory as default_directory

_FROM = {
    "Observer": "testbed.running.observers",
    "PlannedRun": "testbed.running.preparation",
    "default_directory": "testbed.running.preparation",
    "run": "testbed.running.execution",
    "run_all": "testbed.running.execution",
    "runs_below": "testbed.records.mirror",
}
__all__ = sorted(_FROM)


def __getattr__(name: str) -> Any:
    """Import the names when they are first used: `execution` imports all protocols, which a table does not need."""
    if name not in _FROM:
        raise AttributeError(f"module 'testbed.running' has no attribute {name!r}")
    return getattr(importlib.import_module(_FROM[name]), name)


def __dir__() -> list[str]:
    """List the names before they are imported, too: for completion, and for the documentation."""
    return sorted({*globals(), *__all__})
