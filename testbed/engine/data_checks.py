"""Check an experiment with its data before its first round."""

from testbed.engine.foresight import foreseeable
from testbed.engine.plan import RunPlan
from testbed.engine.privacy_recorder import warnings as privacy_warnings
from testbed.workload.client_accuracy import check_client_accuracy
from testbed.workload.contract import NotedWorkload, Workload


def notes_of(plan: RunPlan, workload: Workload) -> list[str]:
    """Check a plan against its workload.

    Returns:
        lines that a person should read before the run: of the workload, its privacy, its files, and of rounds that
        will not do what the experiment wants.

    Raises:
        ExperimentError: the two do not fit, or a file cannot be read.
        TraceError: a trace does not fit.
    """
    plan.check_sums(workload)
    section = plan.experiment.workload
    check_client_accuracy(section.client_accuracy, section.dataset, workload)
    notes = [*plan.read_files(workload), *privacy_warnings(plan, workload)]
    notes += workload.notes if isinstance(workload, NotedWorkload) else []
    return [*notes, *foreseeable(plan.experiment, plan, workload)]
