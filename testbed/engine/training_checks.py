"""Check that a workload, and the protocols' clients, can train as the ``workload`` section says."""

from collections.abc import Sequence

from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.parties.client import RoleSpec
from testbed.selection.contract import SelectionProtocol
from testbed.training import Trainer
from testbed.workload.client_algorithm import ClientAlgorithm
from testbed.workload.contract import BatchedWorkload, LossReportingWorkload, ProximalWorkload, Workload


def check_training(
    experiment: Experiment, roles: Sequence[RoleSpec], algorithm: ClientAlgorithm, workload: Workload
) -> None:
    """Raise `ExperimentError` for batched, proximal or stateful training that workload or clients do not support.

    Args:
        experiment: one point.
        roles: the client sides of all protocols of the run.
        algorithm: the clients' training algorithm.
        workload: the training task.
    """
    section, protocol = experiment.workload, experiment.aggregation.protocol
    if section.proximal and (not isinstance(workload, ProximalWorkload) or workload.proximal != section.proximal):
        raise ExperimentError(
            f"workload.proximal: {section.dataset} trains without it; leave the key out, or see ProximalWorkload "
            "in testbed/workload/contract.py"
        )
    if algorithm.keeps_state:
        key = "drift_correction" if section.local_layers is None else "local_layers"
        _check_trainers(roles, protocol, key, "trains without it")
    if section.clients_at_once == 1:
        return
    if not isinstance(workload, BatchedWorkload) or workload.clients_at_once != section.clients_at_once:
        raise ExperimentError(
            f"workload.clients_at_once: {section.dataset} trains one client at a time; leave the key out, or see "
            "BatchedWorkload in testbed/workload/contract.py"
        )
    _check_trainers(roles, protocol, "clients_at_once", "trains each client by itself")


def _check_trainers(roles: Sequence[RoleSpec], protocol: str, key: str, how: str) -> None:
    """Raise `ExperimentError` where a protocol's clients train in a way of their own, which does not know a key."""
    for spec in roles:
        # Misbehaving clients (`only`) may train as they like.
        if spec.only is None and issubclass(spec.role, Trainer) and spec.role.learn is not Trainer.learn:
            raise ExperimentError(f"workload.{key}: in {protocol} {spec.role.__name__} {how}; leave the key out")


def needing_losses(experiment: Experiment, selection: SelectionProtocol) -> str:
    """Return the key of ``selection`` that chooses by reported losses, with its value; empty if there is none.

    Args:
        experiment: one point.
        selection: its selection protocol.
    """
    protocol = experiment.selection.protocol
    if ":" in protocol and selection.uses_reported_losses:
        return f"protocol: {protocol}"
    return experiment.selection.uses_reported_losses


def check_losses(experiment: Experiment, selection: SelectionProtocol, workload: Workload) -> None:
    """Raise `ExperimentError` if selection uses losses that the workload's clients do not report.

    Args:
        experiment: one point.
        selection: its selection protocol.
        workload: the training task.
    """
    needs = needing_losses(experiment, selection)
    if needs and isinstance(workload, LossReportingWorkload) and not workload.reports_losses:
        raise ExperimentError(
            f"selection.{needs} chooses by the losses of training, and the clients report none; choose another "
            "selection, or name their metric (workload.flower.train_loss)"
        )
