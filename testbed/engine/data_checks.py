"""Check an experiment with its data before its first round."""

from testbed.engine.foresight import foreseeable
from testbed.engine.plan import RunPlan
from testbed.engine.privacy_recorder import warnings as privacy_warnings
from testbed.workload.client_accuracy import check_client_accuracy
from testbed.workload.contract import NotedWorkload, Workload


def notes_of(plan: RunPlan, workload: Workload) -> list[str]:
    """Check a plan against its workload.

    Args:
        plan: the run's plan.
        workload: its workload.

    Returns:
        Lines that a person should read before the run: about the workload, its privacy, its files, and rounds that will
            not do what the experiment intends.

    Raises:
        ExperimentError: plan and workload do not fit, or a file cannot be read.
        TraceError: a trace does not fit.
    """
    plan.check_sums(workload)
    section = plan.experiment.workload
    check_client_accuracy(section.client_accuracy, section.dataset, workload)
    notes = [*plan.read_files(workload), *privacy_warnings(plan, workload)]
    notes += workload.notes if isinstance(workload, NotedWorkload) else []
    return [*notes, *foreseeable(plan.experiment, plan, workload)]
