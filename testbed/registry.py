"""From the names in an experiment to the classes that they select, built in or the user's own."""

from collections.abc import Callable
from typing import Any

from testbed.aggregation.combining import AggregationParameters, AggregationProtocol
from testbed.aggregation.dp_sgd_random_participation import RandomParticipation, RandomParticipationParameters
from testbed.aggregation.plain import Plain, PlainParameters
from testbed.aggregation.secagg import SecAgg
from testbed.aggregation.secagg_parameters import SecAggParameters
from testbed.aggregation.secagg_plus import SecAggPlus, SecAggPlusParameters
from testbed.own_class import own_class
from testbed.selection.batch_partition import (
    BatchPartitionParameters,
    BatchPartitionSelection,
    PartitionParameters,
)
from testbed.selection.choosing import SelectionParameters, SelectionProtocol
from testbed.selection.lotto_client_centric import ClientCentricParameters, ClientCentricServer
from testbed.selection.lotto_server_centric import ServerCentricParameters, ServerCentricServer
from testbed.selection.oort import OortParameters, OortSelection
from testbed.selection.random_selection import (
    BernoulliParameters,
    BernoulliSelection,
    RandomParameters,
    RandomSelection,
    WeightedRandomParameters,
    WeightedRandomSelection,
)
from testbed.selection.verifiable_batch_partition import VerifiableBatchPartitionParameters, VerifiableBatchServer

_SELECTION: dict[type[SelectionParameters], Any] = {
    RandomParameters: RandomSelection,
    WeightedRandomParameters: WeightedRandomSelection,
    BernoulliParameters: BernoulliSelection,
    PartitionParameters: BatchPartitionSelection,
    BatchPartitionParameters: BatchPartitionSelection,
    OortParameters: OortSelection,
    ClientCentricParameters: ClientCentricServer,
    ServerCentricParameters: ServerCentricServer,
    VerifiableBatchPartitionParameters: VerifiableBatchServer,
}
_AGGREGATION: dict[type[AggregationParameters], Any] = {
    PlainParameters: Plain,
    SecAggParameters: SecAgg,
    SecAggPlusParameters: SecAggPlus,
    RandomParticipationParameters: RandomParticipation,
}


Corrupting = Callable[[Any, set[str]], Any]
"""From the class of an honest server, and the names of the protocols that it is, to the class that runs."""


def _as_it_is(honest: Any, protocols: set[str]) -> Any:
    return honest


def built_in_stages(parameters: SelectionParameters | AggregationParameters) -> tuple[str, ...] | None:
    """The stages of the built-in protocol that `parameters` belong to; None for a class of the user's own."""
    if isinstance(parameters, AggregationParameters):
        aggregation = _AGGREGATION.get(type(parameters))
        return None if aggregation is None else tuple(aggregation(parameters).stages)
    selection = _SELECTION.get(type(parameters))
    return None if selection is None else tuple(selection.stages)


def selection_protocol(
    parameters: SelectionParameters, population: int, corrupted: Corrupting = _as_it_is
) -> SelectionProtocol:
    """The server side of the selection protocol that `parameters` belong to, as the adversary has `corrupted` it."""
    protocol: SelectionProtocol = _server("selection", parameters, _SELECTION, corrupted)(parameters, population)
    return protocol


def aggregation_protocol(parameters: AggregationParameters, corrupted: Corrupting = _as_it_is) -> AggregationProtocol:
    """The server side of the aggregation protocol that `parameters` belong to, as the adversary has `corrupted` it."""
    protocol: AggregationProtocol = _server("aggregation", parameters, _AGGREGATION, corrupted)(parameters)
    return protocol


def _server(section: str, parameters: Any, known: dict[Any, Any], corrupted: Corrupting) -> Any:
    """A class of one's own counts as the built-in protocols too that it derives from."""
    name: str = getattr(parameters, "protocol", "")
    honest = known.get(type(parameters)) or own_class(name, f"{section}.protocol")
    names = {name}
    if ":" in name and isinstance(honest, type):
        names |= {str(kind.model_fields["protocol"].default) for kind in known if issubclass(honest, known[kind])}
    return corrupted(honest, names)
