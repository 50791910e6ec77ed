"""Sortition testbed: emulate secure participant selection in federated learning.

The same things as the ``testbed`` command, for notebooks and scripts::

    from testbed import Experiment, run, compare, report

    experiment = Experiment.load("examples/quickstart.yaml")
    directory = run(experiment, out="runs/quickstart")
    table = compare(directory)          # a pandas frame
    report(directory, "report.html")    # a page for the browser

This package is the federation (`engine` and what it is made of), what runs it (`running`) and the command (`commands`).
Only the last two use Ray and torch, through `cluster` and `workloads`; what runs no clients does without them.
"""

import importlib
from typing import TYPE_CHECKING, Any

from testbed.version import VERSION as __version__

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.running import compare, compare_targets, report, run

_RUNNING = ("compare", "compare_targets", "report", "run")
__all__ = ["Experiment", "__version__", "compare", "compare_targets", "report", "run"]

_FROM = {"Experiment": "testbed.experiment", **dict.fromkeys(_RUNNING, "testbed.running")}


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used, so that importing a part stays cheap."""
    if name not in _FROM:
        raise AttributeError(f"module 'testbed' has no attribute {name!r}")
    return getattr(importlib.import_module(_FROM[name]), name)
