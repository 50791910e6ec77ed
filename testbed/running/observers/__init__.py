"""Observers of runs: the interface, the built-in observers, and estimates of the remaining time.

`contract` defines an observer's events. `export` is the base of observers that write each round elsewhere, exactly
once, even if runs are interrupted and resumed. `catalogue` has the observers that an experiment can name. All observers
run in the process that called `run`, never on Ray's workers.
"""

from testbed.running.observers.contract import Guarded, Observer, Serialised
from testbed.running.observers.export import Exporter
from testbed.running.observers.pace import Pace, WaitingRun, in_lanes, time_left

__all__ = ["Exporter", "Guarded", "Observer", "Pace", "Serialised", "WaitingRun", "in_lanes", "time_left"]
