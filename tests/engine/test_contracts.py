"""The contracts of protocols: inherited methods of user-defined classes, and checks before a run."""

from typing import Any

import pytest

from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.contract import Aggregate, AggregationProtocol, AggregationRound
from testbed.aggregation.kit.ring_elements import NoisyProtocol
from testbed.aggregation.plain import Plain, PlainClient, PlainParameters
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.parties.client import RoleSpec
from testbed.plugins.classes import check_subclass
from testbed.selection import catalogue as selections
from testbed.selection.contract import Selection, SelectionProtocol, SelectionRound
from testbed.selection.oort import OortSelection
from testbed.selection.random_selection import RandomSelection


class Smallest(SelectionProtocol):
    """All that must be there, and no more."""

    roles = ()

    async def select(self, round_: SelectionRound) -> Selection:
        return Selection(round_.everyone, round_.population)


class Listens(Smallest):
    """Learns, and says that it does not go by losses; the next one does not say."""

    uses_reported_losses = False

    def learn(self, round_: Any, reports: Any) -> None:
        """Nothing."""


class ListensToLosses(Smallest):
    def learn(self, round_: Any, reports: Any) -> None:
        """Nothing."""


class Duck:
    stages = ()
    roles = ()

    async def select(self, round_: SelectionRound) -> Selection:
        raise NotImplementedError


class WithoutSelect(SelectionProtocol):
    roles = ()


class Misspelt(Smallest):
    max_participants = 7


class Forgetful(Smallest):
    def __init__(self, parameters: Any, population: int) -> None:
        self.required = parameters.participants


class OtherParameters(Plain):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.parameters: Any = {"weights": "equal"}


class SumsNoise(AggregationProtocol):
    """Sums like `Plain`, with noise, but states no privacy cost: its privacy ledger would be missing."""

    Parameters = PlainParameters

    @property
    def roles(self) -> list[RoleSpec]:
        return [RoleSpec(PlainClient, self.parameters)]

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        return await Plain(self.parameters).aggregate(round_)


class SumsNoiseAtACost(NoisyProtocol, SumsNoise):
    """The same class with the privacy cost of the noise section."""


def plan(kind: type, section: str = "selection") -> RunPlan:
    return RunPlan(Experiment.model_validate({section: {"protocol": f"{__name__}:{kind.__name__}"}}), 0)


def test_the_defaults_are_those_of_a_protocol_that_needs_nothing() -> None:
    made = plan(Smallest).selection
    assert (made.minimum_participants, made.maximum_participants, made.client_rate) == (2, 10, None)
    assert (made.stages, made.needs_registration, made.participants_agree, made.batches) == ((), False, False, None)
    assert (made.beacon_latency_s, made.uses_reported_losses) == (None, False)


def test_a_selection_that_learns_counts_as_using_losses_unless_it_declares_otherwise() -> None:
    found = [kind.uses_reported_losses for kind in (Smallest, Listens, ListensToLosses, RandomSelection, OortSelection)]
    assert found == [False, False, True, False, True]


@pytest.mark.parametrize(
    ("kind", "section", "line"),
    [
        (Duck, "selection", r"must be a class that inherits from testbed\.selection\.contract\.SelectionProtocol"),
        (Smallest, "aggregation", r"inherits from testbed\.aggregation\.contract\.AggregationProtocol"),
        (WithoutSelect, "selection", r"lacks select; see testbed\.selection\.contract\.SelectionProtocol"),
        (Misspelt, "selection", "max_participants has no effect; did you mean 'maximum_participants'"),
        (Forgetful, "selection", r"its __init__ must call super\(\).__init__, and does not"),
        (
            OtherParameters,
            "aggregation",
            r"parameters must be of testbed\.aggregation\.contract\.AggregationParameters",
        ),
    ],
)
def test_a_class_that_breaks_the_contract_is_refused(kind: type, section: str, line: str) -> None:
    with pytest.raises(ExperimentError, match=rf"^{section}\.protocol: \S+:{kind.__name__}: .*{line}"):
        plan(kind, section)


def test_noise_without_an_accountant_is_refused() -> None:
    def planned(kind: type, **noise: Any) -> RunPlan:
        section = {"protocol": f"{__name__}:{kind.__name__}", "weights": "equal", "bits": 24, **noise}
        return RunPlan(Experiment.model_validate({"aggregation": section}), 0)

    noise = {"mechanism": "skellam", "clip": 0.5, "noise_multiplier": 2.0}
    with pytest.raises(ExperimentError, match=r"SumsNoise: .*override accountant, or inherit from \S+NoisyProtocol$"):
        planned(SumsNoise, noise=noise)
    assert planned(SumsNoise).noise_plan(10) is None
    assert planned(SumsNoiseAtACost, noise=noise).noise_plan(10) is not None


def test_no_built_in_protocol_misspells_anything() -> None:
    for servers, base in ((selections.PROTOCOLS, SelectionProtocol), (aggregations.PROTOCOLS, AggregationProtocol)):
        for server in servers.values():
            check_subclass(server, base, server.__name__, "protocol")
