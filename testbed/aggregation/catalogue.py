"""The built-in aggregation protocols: a line each, from which the schema and the engine derive the rest."""

from testbed.aggregation.contract import AggregationParameters, AggregationProtocol
from testbed.aggregation.dp_sgd_random_participation import RandomParticipation, RandomParticipationParameters
from testbed.aggregation.e_seafl.parameters import ESeaflParameters
from testbed.aggregation.e_seafl.server import ESeafl
from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.aggregation.flamingo.server import Flamingo
from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.aggregation.lightsecagg.server import LightSecAgg
from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.aggregation.one_shot.server import OneShot
from testbed.aggregation.pine.parameters import PineParameters
from testbed.aggregation.pine.server import Pine
from testbed.aggregation.plain import Plain, PlainParameters
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.aggregation.secagg_plus.protocol import SecAggPlus

PROTOCOLS: dict[type[AggregationParameters], type[AggregationProtocol]] = {
    PlainParameters: Plain,
    SecAggParameters: SecAgg,
    SecAggPlusParameters: SecAggPlus,
    LightSecAggParameters: LightSecAgg,
    FlamingoParameters: Flamingo,
    OneShotParameters: OneShot,
    PineParameters: Pine,
    ESeaflParameters: ESeafl,
    RandomParticipationParameters: RandomParticipation,
}
"""Server of each class of parameters; the default of its ``protocol`` is the name in an experiment."""

DEFAULT: type[AggregationParameters] = SecAggParameters
"""The protocol of an experiment that names none."""
