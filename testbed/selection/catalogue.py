"""The built-in selection protocols, one line each; the experiment schema and the engine read this table."""

from testbed.selection.balls_in_bins import BallsInBinsParameters, BallsInBinsSelection
from testbed.selection.batch_partition import BatchPartitionParameters, BatchPartitionSelection, PartitionParameters
from testbed.selection.contract import SelectionParameters, SelectionProtocol
from testbed.selection.lotto.variants import (
    ClientCentricParameters,
    ClientCentricServer,
    ServerCentricParameters,
    ServerCentricServer,
)
from testbed.selection.min_separation import MinSeparationParameters, MinSeparationSelection
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

PROTOCOLS: dict[type[SelectionParameters], type[SelectionProtocol]] = {
    RandomParameters: RandomSelection,
    WeightedRandomParameters: WeightedRandomSelection,
    BernoulliParameters: BernoulliSelection,
    PartitionParameters: BatchPartitionSelection,
    BatchPartitionParameters: BatchPartitionSelection,
    OortParameters: OortSelection,
    ClientCentricParameters: ClientCentricServer,
    ServerCentricParameters: ServerCentricServer,
    VerifiableBatchPartitionParameters: VerifiableBatchServer,
    MinSeparationParameters: MinSeparationSelection,
    BallsInBinsParameters: BallsInBinsSelection,
}
"""Server class of each parameter class; the default of its ``protocol`` field is the name in an experiment."""

DEFAULT: type[SelectionParameters] = RandomParameters
"""The protocol of an experiment without `selection.protocol`."""
