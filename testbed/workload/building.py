"""Build the workload that an experiment describes: services of the package that has data, models and training."""

from typing import cast

from testbed.plugins.services import service
from testbed.workload.contract import Workload
from testbed.workload.section import WorkloadSection


def build(section: WorkloadSection, population: int, seed: int) -> Workload:
    """Build the workload that an experiment describes; call this once in every process that trains or evaluates.

    Args:
        section: the experiment's ``workload``.
        population: number of clients, at least 1.
        seed: the experiment's seed, any non-negative integer.

    Raises:
        ExperimentError: data that cannot be read, clients without samples, a class that does not fit, or an extra that
            is not installed.
    """
    return cast(Workload, service("workload.build")(section, population, seed))


def check_own(section: WorkloadSection) -> None:
    """Import the user's own classes that a section names, and check that they can be called; no data are read.

    Raises:
        ExperimentError: no such class, or options that it does not take.
    """
    service("workload.check-own")(section)


def one_thread() -> None:
    """Let arithmetic take one thread in this process, before the libraries for training are imported."""
    service("workload.one-thread")()


def import_training() -> None:
    """Import the libraries that the built-in workloads need (torch: a second); `build` would do so, later."""
    service("workload.training")
