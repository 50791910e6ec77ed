"""Whether clients may report their losses beside noise: ``privacy.report_losses`` with the rest of an experiment."""

from testbed.adversary.section import AdversarySection, name_of
from testbed.aggregation.contract import AggregationParameters
from testbed.aggregation.kit.ring_elements import noise_of
from testbed.privacy.section import NEEDS_LOSSES
from testbed.selection.contract import SelectionParameters


def check_reported_losses(
    allowed: bool,
    selection: SelectionParameters,
    aggregation: AggregationParameters,
    adversary: AdversarySection | None,
) -> None:
    """Raise `ValueError` where losses and counts would leave the clients beside noise without permission.

    Args:
        allowed: ``privacy.report_losses``.
        selection: may need reported losses.
        aggregation: may add noise.
        adversary: may have clients that lie about their losses; None: everybody is honest.
    """
    if not aggregation.reports_losses:
        if allowed:
            raise ValueError(f"report_losses: clients never report any under {aggregation.protocol}; leave it out")
        return
    if allowed or noise_of(aggregation) is None:
        return
    if needs := selection.by_losses:
        raise ValueError(f"report_losses: false, but selection.{needs} {NEEDS_LOSSES}")
    named = [] if adversary is None else [name_of(one) for one in adversary.clients]
    if "inflate-utility" in named:
        raise ValueError(
            "report_losses: false, so that no losses leave the clients, and adversary.clients: inflate-utility has "
            "none to lie about; set privacy.report_losses: true, or leave it out"
        )
