"""Running experiments into run directories: the library behind ``testbed run``, and what notebooks call.

`validation` tells what is wrong with an experiment before anything runs and without data, `preparation` decides where
each point goes and what is there already, `execution` runs the points, by `workers` of this process or on Ray,
and compares them, `open_runs` keeps two processes out of one directory, which says where its numbers come from,
`observers` are told how it goes, and `status` says how runs stand.
"""

from testbed.running.execution import compare, compare_targets, report, run, run_all, runs_below
from testbed.running.explained import findings
from testbed.running.observers import Observer
from testbed.running.preparation import PlannedRun, default_directory

__all__ = [
    "Observer",
    "PlannedRun",
    "compare",
    "compare_targets",
    "default_directory",
    "findings",
    "report",
    "run",
    "run_all",
    "runs_below",
]
