"""From the names in an experiment to the classes that they select, built in or the user's own."""

from typing import Any

from testbed.aggregation.combining import AggregationParameters, AggregationProtocol
from testbed.aggregation.plain import Plain, PlainParameters
from testbed.aggregation.secagg import SecAgg, SecAggParameters
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
from testbed.selection.random_selection import (
    BernoulliParameters,
    BernoulliSelection,
    RandomParameters,
    RandomSelection,
    WeightedRandomParameters,
    WeightedRandomSelection,
)

_SELECTION: dict[type[SelectionParameters], Any] = {
    RandomParameters: RandomSelection,
    WeightedRandomParameters: WeightedRandomSelection,
    BernoulliParameters: BernoulliSelection,
    PartitionParameters: BatchPartitionSelection,
    BatchPartitionParameters: BatchPartitionSelection,
    ClientCentricParameters: ClientCentricServer,
    ServerCentricParameters: ServerCentricServer,
}
_AGGREGATION: dict[type[AggregationParameters], Any] = {
    PlainParameters: Plain,
    SecAggParameters: SecAgg,
    SecAggPlusParameters: SecAggPlus,
}


def selection_protocol(parameters: SelectionParameters, population: int) -> SelectionProtocol:
    """The server side of the selection protocol that `parameters` belong to."""
    known = _SELECTION.get(type(parameters))
    name = getattr(parameters, "protocol", "")
    protocol: SelectionProtocol = (known or own_class(name, "selection.protocol"))(parameters, population)
    return protocol


def aggregation_protocol(parameters: AggregationParameters) -> AggregationProtocol:
    """The server side of the aggregation protocol that `parameters` belong to."""
    known = _AGGREGATION.get(type(parameters))
    name = getattr(parameters, "protocol", "")
    protocol: AggregationProtocol = (known or own_class(name, "aggregation.protocol"))(parameters)
    return protocol
