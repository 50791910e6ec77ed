"""What a run's protocols mean for privacy, before anything runs: what its noise costs, and what clients may say."""

from math import sqrt

from testbed.aggregation.contract import AggregationProtocol
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.privacy.accounting.accountant import Accountant
from testbed.privacy.section import NEEDS_LOSSES, PrivacySection
from testbed.selection.contract import SelectionProtocol


def accountant_of(selection: SelectionProtocol, aggregation: AggregationProtocol, dimension: int) -> Accountant | None:
    """What the aggregation of a run says of its noise; None where it adds none."""
    most = selection.maximum_participants  # with more, the discrete Gaussian adds up less well
    if not aggregation.broadcasts_to_all:
        return aggregation.accountant(most, dimension)
    rate = selection.client_rate
    return aggregation.accountant(most, dimension, 1.0 if rate is None else rate)


def reports_training(
    experiment: Experiment, selection: SelectionProtocol, aggregation: AggregationProtocol, dimension: int
) -> bool:
    """Whether clients say what their mean loss was: not beside noise, unless the experiment says so.

    Raises `ExperimentError` where a selection, or a user-defined class that learns from reports, needs to know.
    """
    section = experiment.privacy or PrivacySection()
    if section.report_losses or accountant_of(selection, aggregation, dimension) is None:
        return True
    needs = experiment.selection.by_losses
    if ":" in experiment.selection.protocol and selection.by_losses:
        needs = f"protocol: {experiment.selection.protocol}"
    if needs:
        raise ExperimentError(f"privacy.report_losses: false, but selection.{needs} {NEEDS_LOSSES}")
    return False


_ONE_BY_ONE = 10_000
_STEP = 1.001


def least_noise(aggregation: AggregationProtocol, minimum: int, maximum: int) -> float:
    """The share of the planned noise that a sum has at least, however many of its participants drop out.

    The least over all sizes that a round may have, from `minimum` to `maximum`: as thresholds are rounded up, neither
    end of the range need have it.
    No larger round sums fewer, and noise that is kept when participants drop out changes so little with their number s
    that s^2 times the share does not fall either. So the share at one size bounds those at the next ones, and only
    sizes that may have less than was found are looked at; above 10,000 not each of them, but what lies between two that
    are is bounded from below, which costs at most two parts in a thousand.
    """
    least, size = 1.0, minimum
    while size <= maximum:
        try:
            share = float(aggregation.least_noise(size))
        except ValueError:  # there is no sum of so many
            size += 1
            continue
        least = min(least, share)
        following = size + 1
        if least > 0:
            following = max(following, int(size * sqrt(share / least)))  # up to there no share is below `least`
        if size > _ONE_BY_ONE and (further := int(size * _STEP)) > following:
            following = min(further, maximum + 1)
            least = min(least, share * (size / (following - 1)) ** 2)
        if size < maximum < following:
            following = maximum  # whose share is exact
        size = following
    return least
