"""Those who watch runs: the contract, what comes with it, and how long runs will take.

`contract` says what an observer is told, `export` is the base of those that write each round somewhere once, whatever
is interrupted and resumed; `catalogue` has those that an experiment can name. All of them run in the process that
called `run`, never on Ray's workers.
"""

from testbed.running.observers.contract import Guarded, Observer, Serialised
from testbed.running.observers.export import Exporter
from testbed.running.observers.pace import Pace, WaitingRun, in_lanes, time_left

__all__ = ["Exporter", "Guarded", "Observer", "Pace", "Serialised", "WaitingRun", "in_lanes", "time_left"]
