"""Running experiments into run directories: the library behind ``testbed run``, and what notebooks call.

`validation` tells what is wrong with an experiment before anything runs and without data, `preparation` decides where
each point goes and what is there already, `execution` runs the points, by the workers of a `worker_pool` in this
process or on Ray, `open_runs` keeps two processes out of one directory, `provenance` says where a run's numbers come
from, `status` how runs stand, and `results` what came of them.
"""

from testbed.running.execution import run, run_all
from testbed.running.observers import Observer
from testbed.running.preparation import PlannedRun, default_directory
from testbed.running.results import compare, runs_below

__all__ = ["Observer", "PlannedRun", "compare", "default_directory", "run", "run_all", "runs_below"]
