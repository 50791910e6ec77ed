"""What a run's protocols mean for privacy, before anything runs: what its noise costs, and what clients may say."""

from testbed.aggregation.contract import AggregationProtocol
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.privacy.noise_plan import NoisePlan
from testbed.privacy.section import NEEDS_LOSSES, PrivacySection
from testbed.selection.contract import SelectionProtocol


def noise_plan(selection: SelectionProtocol, aggregation: AggregationProtocol, dimension: int) -> NoisePlan | None:
    """The noise of a run's aggregation, for a model of so many parameters; None where it adds none."""
    sizes = selection.minimum_participants, selection.maximum_participants
    return aggregation.noise_plan(*sizes, dimension, selection.client_rate)


def reports_training(
    experiment: Experiment, selection: SelectionProtocol, aggregation: AggregationProtocol, dimension: int
) -> bool:
    """Whether clients say what their mean loss was: not beside noise, unless the experiment says so.

    Raises `ExperimentError` where a selection, or a user-defined class that learns from reports, needs to know.
    """
    section = experiment.privacy or PrivacySection()
    if section.report_losses or noise_plan(selection, aggregation, dimension) is None:
        return True
    needs = experiment.selection.by_losses
    if ":" in experiment.selection.protocol and selection.by_losses:
        needs = f"protocol: {experiment.selection.protocol}"
    if needs:
        raise ExperimentError(f"privacy.report_losses: false, but selection.{needs} {NEEDS_LOSSES}")
    return False
