"""Selection by the losses that clients report of their training, and workloads whose clients report none."""

from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.selection.contract import SelectionProtocol
from testbed.workload.contract import LossReportingWorkload, Workload


def needing_losses(experiment: Experiment, selection: SelectionProtocol) -> str:
    """The key of ``selection`` that chooses by the losses that clients report, with its value; empty: none does."""
    protocol = experiment.selection.protocol
    if ":" in protocol and selection.by_losses:
        return f"protocol: {protocol}"
    return experiment.selection.by_losses


def check_losses(experiment: Experiment, selection: SelectionProtocol, workload: Workload) -> None:
    """Raise `ExperimentError` where selection chooses by losses, and the workload's clients report none."""
    needs = needing_losses(experiment, selection)
    if needs and isinstance(workload, LossReportingWorkload) and not workload.reports_losses:
        raise ExperimentError(
            f"selection.{needs} chooses by the losses of training, and the clients report none; choose another "
            "selection, or name their metric (workload.flower.train_loss)"
        )
