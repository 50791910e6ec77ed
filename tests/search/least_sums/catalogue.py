"""The searches for least sums, a line each; and the protocols of the catalogue that have to be among them."""

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from testbed.adversary.catalogue import kinds_of, names
from testbed.aggregation.catalogue import PROTOCOLS
from testbed.aggregation.contract import AggregationParameters, AggregationProtocol
from tests.search.least_sums.batches import BatchesSums
from tests.search.least_sums.contract import LeastSums
from tests.search.least_sums.flamingo import FlamingoSums
from tests.search.least_sums.holders import LightSecAggSums, OneShotSums, PineSums
from tests.search.least_sums.lists import ListsSums
from tests.search.least_sums.secagg import SecAggPlusSums, SecAggSums

SEARCHES: tuple[LeastSums, ...] = (
    SecAggSums(),
    SecAggPlusSums(),
    LightSecAggSums(),
    FlamingoSums(),
    OneShotSums(),
    PineSums(),
    BatchesSums(),
    ListsSums(),
)
PARTICIPANTS = 20
REQUIRED: dict[str, dict[str, Any]] = {"dp-sgd-random-participation": {"sample_rate": 0.1, "sigma": 1.0}}
"""By protocol, keys that have no default; any values do."""


def states_a_least_sum(parameters: AggregationParameters, protocol: type[AggregationProtocol]) -> bool:
    """Whether `guarantees` says of sums that they have two clients or more."""
    return protocol(parameters).guarantees(PARTICIPANTS).min_sum_size > 1


def missing(
    protocols: Iterable[tuple[type[AggregationParameters], type[AggregationProtocol]]] = tuple(PROTOCOLS.items()),
) -> list[str]:
    """List the gaps of protocols that state a least sum: a line each, with the class to add and its place."""
    searched, lines = {search.protocol for search in SEARCHES}, []
    for section, protocol in protocols:
        name = section.model_fields["protocol"].default
        try:
            parameters = section(**REQUIRED.get(name, {}))
        except ValidationError:
            lines.append(f"{name} has keys without a default: give them in REQUIRED of tests/search/least_sums")
            continue
        if not states_a_least_sum(parameters, protocol):
            continue
        if name not in searched:
            lines.append(
                f"{name} states a least sum, and nobody searches for a smaller one: add a class derived from LeastSums "
                "to tests/search/least_sums and an instance of it to SEARCHES in its catalogue.py"
            )
        if name not in NOT_SURVEYED and not surveyed(name):
            lines.append(
                f"{name} states a least sum, and the survey tries no attack on it: add a misbehaviour of its server "
                "that says when it has had an update (`update_recovered`) to testbed/adversary and its catalogue.py"
            )
    return lines


def surveyed(protocol: str) -> bool:
    """Whether the survey (`analysis.attacks.survey`) tries a misbehaviour that is after sums under this protocol."""
    aimed = [
        kind
        for name in names("server", {protocol})
        for kind in kinds_of("server", name)
        if protocol in kind.applies_to and (kind.update_recovered is not None or kind.name in AFTER_SUMS)
    ]
    return bool(aimed)


AFTER_SUMS = frozenset({"shrink-the-sum", "split-the-sharing", "parallel-lists"})
"""Misbehaviours that are after sums over few clients, and have had a sum where they succeed."""

NOT_SURVEYED = {
    "secagg-plus": "two stories about one client take 2t - (k + 1) accomplices in one neighbourhood; no misbehaviour "
    "looks for such a client, and the search here carries that out (SecAggPlusSums.client_by_client)"
}
"""Protocols that no misbehaviour attacks for sums, with the reason."""
