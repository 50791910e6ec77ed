"""The searches for least sums, and the protocols that no misbehaviour attacks for sums."""

from collections.abc import Iterable
from typing import Any

from testbed.adversary.catalogue import kinds_of, names
from testbed.aggregation.catalogue import PROTOCOLS
from testbed.aggregation.contract import AggregationParameters, AggregationProtocol
from tests.search.least_sums.contract import LeastSums
from tests.search.least_sums.flamingo import FlamingoSums
from tests.search.least_sums.secagg import SecAggPlusSums, SecAggSums

SEARCHES: tuple[LeastSums, ...] = (SecAggSums(), SecAggPlusSums(), FlamingoSums())
PARTICIPANTS = 20
REQUIRED: dict[str, dict[str, Any]] = {"dp-sgd-random-participation": {"sample_rate": 0.1, "sigma": 1.0}}
"""By protocol, keys that have no default; any values do."""
AFTER_SUMS = frozenset({"shrink-the-sum", "split-the-sharing", "parallel-lists"})
"""Misbehaviours that are after sums over few clients, and have had a sum where they succeed."""


def unattacked(
    protocols: Iterable[tuple[type[AggregationParameters], type[AggregationProtocol]]] = tuple(PROTOCOLS.items()),
) -> list[str]:
    """List the protocols that state a least sum and that neither a search nor a misbehaviour attacks for sums."""
    searched, found = {search.protocol for search in SEARCHES}, []
    for section, protocol in protocols:
        name = section.model_fields["protocol"].default
        guarantees = protocol(section(**REQUIRED.get(name, {}))).guarantees(PARTICIPANTS)
        if guarantees.min_sum_size > 1 and name not in searched and not is_surveyed(name):
            found.append(name)
    return found


def is_surveyed(protocol: str) -> bool:
    """Whether the survey (`analysis.attacks.survey`) tries a misbehaviour that is after sums under this protocol."""
    return any(
        protocol in kind.applies_to and (kind.update_recovered is not None or kind.name in AFTER_SUMS)
        for name in names("server", {protocol})
        for kind in kinds_of("server", name)
    )
