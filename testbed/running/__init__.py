"""Running experiments into run directories: the library behind ``testbed run``, and what notebooks call.

`validation` tells what is wrong with an experiment before anything runs and without data, `preparation` decides where
each point goes and what is there already, `execution` runs the points, `provenance` says where a run's numbers come
from, `locking` keeps two processes out of one directory, `stopping` turns signals into `KeyboardInterrupt`. This
package reaches up to `cluster`, `workloads` and `analysis`, and only when they are needed.
"""

from testbed.running.execution import compare, run, run_all, runs_below
from testbed.running.observers import Observer
from testbed.running.preparation import PlannedRun, default_directory

__all__ = ["Observer", "PlannedRun", "compare", "default_directory", "run", "run_all", "runs_below"]
