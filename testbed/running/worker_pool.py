"""Which points share workers, how many of these there are, and where they are: in this process or on Ray.

Points with the same cluster section share workers. A point that keeps a real clock (`time.clock: wall`) has the machine
to itself, because what it measures would be the others' work too; so has one that runs in this process.
"""

import contextlib
from collections.abc import Callable, Sequence

from testbed.experiment.schema import Cluster, Experiment
from testbed.running.observers import Observer
from testbed.running.open_runs import OpenRun
from testbed.running.point_workers import LocalWorker, PointWorker
from testbed.running.preparation import PlannedRun


def group_by_resources(runs: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
    """The runs in groups that share workers: those with the same cluster section and clock, in their order."""
    groups: dict[tuple[Cluster, str], list[PlannedRun]] = {}
    for run in runs:
        experiment = run.point.experiment
        groups.setdefault((experiment.cluster, experiment.time.clock), []).append(run)
    return list(groups.values())


def requires_exclusive_access(experiment: Experiment) -> bool:
    """Whether nothing else may run beside it."""
    return experiment.cluster.network == "in-process" or experiment.time.clock == "wall"


class WorkerPool:
    """Makes the workers for groups of points, and keeps the connection to Ray that they share; a context manager.

    Args:
        observer, open_run: see `PointWorker`.
    """

    def __init__(self, observer: Observer, open_run: Callable[[PlannedRun], OpenRun]) -> None:
        self._observer = observer
        self._open_run = open_run
        self._connected = False
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def workers_for(self, group: Sequence[PlannedRun]) -> Sequence[PointWorker]:
        """Workers for a group of `group_by_resources`.

        Raises:
            ClusterError: Ray cannot be reached or started.
        """
        first = group[0].point.experiment
        if first.cluster.network == "in-process":
            return [LocalWorker(self._observer, self._open_run)]
        # Ray takes seconds to import, and in-process runs do without it.
        from testbed.running import ray_workers

        if not self._connected:
            address = first.cluster.address
            self._observer.doing("starting Ray" if address is None else f"joining Ray at {address}")
            ray_workers.join(address, self._stack)
            self._connected = True
            self._observer.doing("starting the hosts")
        exclusive = requires_exclusive_access(first)
        return ray_workers.for_points(self._observer, self._open_run, first.cluster, 1 if exclusive else len(group))
