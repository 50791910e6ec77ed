"""Sortition testbed: emulate secure participant selection in federated learning.

The same things as the ``testbed`` command, for notebooks and scripts::

    from testbed import Experiment, run, compare

    experiment = Experiment.load("examples/quickstart.yaml")
    directory = run(experiment, out="runs/quickstart")
    table = compare(directory)          # a pandas frame

This package is the federation itself: experiment schema, messages, parties, selection, aggregation,
cryptography, links, devices, availability, rounds and records. It imports neither Ray nor torch; `running`
and the command reach up for them when they are needed.
"""

from typing import Any

__version__ = "0.1.0"
__all__ = ["Experiment", "__version__", "compare", "run"]


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used, so that importing a part stays cheap."""
    if name == "Experiment":
        from testbed.experiment import Experiment

        return Experiment
    if name in ("run", "compare"):
        from testbed import running

        return getattr(running, name)
    raise AttributeError(f"module 'testbed' has no attribute {name!r}")
