"""Construction of the workload that an experiment describes, by services of the package with data and models."""

from typing import cast

from testbed.plugins.services import service
from testbed.workload.contract import Workload
from testbed.workload.section import WorkloadSection


def build(section: WorkloadSection, population: int, seed: int) -> Workload:
    """Build the workload that an experiment describes; called once in every process that trains or evaluates.

    Args:
        section: the experiment's ``workload``.
        population: number of clients, at least 1.
        seed: the experiment's seed, any non-negative integer.

    Raises:
        ExperimentError: data that cannot be read, clients without samples, a class that does not fit, or an extra that
            is not installed.
    """
    # A service: `testbed` imports none of the packages above it (data, models, torch).
    return cast(Workload, service("workload.build")(section, population, seed))


def check_own(section: WorkloadSection) -> None:
    """Import the user-defined classes that a section names, and check that they can be called, without reading data.

    Raises:
        ExperimentError: no such class, or options that the class does not take.
    """
    service("workload.check-own")(section)


def one_thread() -> None:
    """Limit numeric libraries to one thread in this process; call this before they are imported."""
    service("workload.one-thread")()


def import_training() -> None:
    """Import the libraries of the built-in workloads now (torch: about 1 s) instead of in `build`."""
    service("workload.training")
