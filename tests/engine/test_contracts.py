"""The contracts of protocols: what a user-defined class inherits, and what is refused before a run."""

import importlib.util
import inspect
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from testbed.adversary.misbehaviour import ClientMisbehaviour, SelectionMisbehaviour
from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.contract import Aggregate, AggregationProtocol, AggregationRound
from testbed.aggregation.kit.ring_elements import NoisyProtocol
from testbed.aggregation.plain import Plain, PlainClient, PlainParameters
from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.server import SecAgg
from testbed.engine.plan import Plan
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.former_names import IMPORTED, MODULES, NAMES, hint
from testbed.parties.client import RoleSpec
from testbed.plugins.classes import check_subclass
from testbed.selection import catalogue as selections
from testbed.selection.contract import Selection, SelectionProtocol, SelectionRound
from testbed.selection.lotto.variants import ClientCentricServer
from testbed.selection.oort import OortSelection
from testbed.selection.random_selection import RandomSelection
from testbed.training import Trainer


class Smallest(SelectionProtocol):
    """All that must be there, and no more."""

    roles = ()

    async def select(self, round_: SelectionRound) -> Selection:
        return Selection(round_.everyone, round_.population)


class Listens(Smallest):
    """Learns, and says that it does not go by losses; the next one does not say."""

    by_losses = False

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
        self.wanted = parameters.participants


class FormerName(Plain):
    asks_everybody = True


class FormerGuarantee(Plain):
    def least_noise(self, participants: int) -> float:
        return 1.0


class FormerParameters(PlainParameters):
    def tolerated(self, participants: int) -> int:
        return 3


class WithFormerParameters(Plain):
    Parameters = FormerParameters


class FormerAttribute(Plain):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.asks_everybody = True


class OtherParameters(Plain):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.parameters: Any = {"weights": "equal"}


class SumsNoise(AggregationProtocol):
    """Sums what `Plain` sums, noise too, and says of no cost: its privacy ledger would be missing."""

    Parameters = PlainParameters

    @property
    def roles(self) -> list[RoleSpec]:
        return [RoleSpec(PlainClient, self.parameters)]

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        return await Plain(self.parameters).aggregate(round_)


class SumsNoiseAtACost(NoisyProtocol, SumsNoise):
    """The same, with what the section costs."""


class FormerStep(SecAgg):
    async def collect_inputs(self, *given: Any) -> None:
        """Nothing."""


class FormerDecision(ClientCentricServer):
    def refined(self, round_: SelectionRound) -> None:
        """Nothing."""


class FormerHandling(SecAggClient):
    def noise_shares(self, *given: Any) -> None:
        """Nothing."""


class WithFormerRole(SecAgg):
    @property
    def roles(self) -> list[RoleSpec]:
        return [RoleSpec(FormerHandling, self.parameters)]


class FormerAttack(SelectionMisbehaviour):
    name = "former"
    applies_to = ("lotto-client-centric",)

    def enough(self, *given: Any) -> None:
        """Nothing."""


class FormerTrainer(ClientMisbehaviour):
    name = "former-trainer"
    extends = Trainer

    def instead_of_not_finite(self, *given: Any) -> None:
        """Nothing."""


def plan(kind: type, section: str = "selection") -> Plan:
    return Plan(Experiment.model_validate({section: {"protocol": f"{__name__}:{kind.__name__}"}}), 0)


def test_the_defaults_are_those_of_a_protocol_that_needs_nothing() -> None:
    made = plan(Smallest).selection
    assert (made.minimum_participants, made.maximum_participants, made.client_rate) == (2, 10, None)
    assert (made.stages, made.needs_registration, made.participants_agree, made.batches) == ((), False, False, None)
    assert (made.beacon_latency_s, made.by_losses) == (None, False)


def test_who_learns_chooses_by_losses_unless_it_says_otherwise() -> None:
    found = [kind.by_losses for kind in (Smallest, Listens, ListensToLosses, RandomSelection, OortSelection)]
    assert found == [False, False, True, False, True]


@pytest.mark.parametrize(
    ("kind", "section", "line"),
    [
        (Duck, "selection", r"must be a class that inherits from testbed\.selection\.contract\.SelectionProtocol"),
        (Smallest, "aggregation", r"inherits from testbed\.aggregation\.contract\.AggregationProtocol"),
        (WithoutSelect, "selection", r"lacks select; see testbed\.selection\.contract\.SelectionProtocol"),
        (Misspelt, "selection", "max_participants has no effect; did you mean 'maximum_participants'"),
        (Forgetful, "selection", r"its __init__ must call super\(\).__init__, and does not"),
        (FormerName, "aggregation", "asks_everybody is now called broadcasts_to_all"),
        (FormerGuarantee, "aggregation", "least_noise is now called guarantees"),
        (FormerAttribute, "aggregation", "asks_everybody is now called broadcasts_to_all"),
        (
            OtherParameters,
            "aggregation",
            r"parameters must be of testbed\.aggregation\.contract\.AggregationParameters",
        ),
    ],
)
def test_what_does_not_keep_the_contract_is_refused(kind: type, section: str, line: str) -> None:
    with pytest.raises(ExperimentError, match=rf"^{section}\.protocol: \S+:{kind.__name__}: .*{line}"):
        plan(kind, section)


def test_parameters_with_names_of_a_former_contract_are_refused() -> None:
    with pytest.raises(ExperimentError, match=r"FormerParameters\.Parameters: tolerated is now called guarantees"):
        plan(WithFormerParameters, "aggregation")


def test_noise_without_an_accountant_is_refused() -> None:
    def planned(kind: type, **noise: Any) -> Plan:
        section = {"protocol": f"{__name__}:{kind.__name__}", "weights": "equal", "bits": 24, **noise}
        return Plan(Experiment.model_validate({"aggregation": section}), 0)

    noise = {"mechanism": "skellam", "clip": 0.5, "noise_multiplier": 2.0}
    with pytest.raises(ExperimentError, match=r"SumsNoise: .*override accountant, or inherit from \S+NoisyProtocol$"):
        planned(SumsNoise, noise=noise)
    assert planned(SumsNoise).noise_plan(10) is None
    assert planned(SumsNoiseAtACost, noise=noise).noise_plan(10) is not None


@pytest.mark.parametrize(
    ("kind", "section", "line"),
    [
        (FormerStep, "aggregation", "collect_inputs has no effect: it is now collect_masked_inputs"),
        (FormerDecision, "selection", "refined has no effect: it is now refined_population"),
        (WithFormerRole, "aggregation", "FormerHandling: noise_shares has no effect: it is now noise_to_add"),
    ],
)
def test_what_overrides_a_decision_by_its_former_name_is_refused(kind: type, section: str, line: str) -> None:
    with pytest.raises(ExperimentError, match=line):
        plan(kind, section)


@pytest.mark.parametrize(
    ("adversary", "line"),
    [
        ({"server": [f"{__name__}:FormerAttack"]}, "FormerAttack: enough has no effect: it is now require_candidates"),
        ({"clients": [f"{__name__}:FormerTrainer"]}, "instead_of_not_finite has no effect: it is now handle_non_fin"),
    ],
)
def test_misbehaviours_by_former_names_are_refused(adversary: dict[str, Any], line: str) -> None:
    keys = {"selection": {"protocol": "lotto-client-centric"}, "adversary": {"dishonest": 2, **adversary}}
    with pytest.raises(ExperimentError, match=line):
        Plan(Experiment.model_validate(keys), 0)


def test_what_is_looked_for_under_a_former_name_is_said_to_be_elsewhere() -> None:
    for error, line in (
        (AttributeError("no coin", name="coin", obj=object.__new__(SelectionRound)), "; it is now rng"),
        (AttributeError("no toss", name="toss", obj=object.__new__(SelectionRound)), ""),
        (
            FrozenInstanceError("cannot assign to field 'candidates'"),
            "; it is now Selection.candidates and RoundAborted.candidates",
        ),
        (
            ModuleNotFoundError("no module", name="testbed.links.rates"),
            "; testbed.links is now testbed.emulation.links",
        ),
        (
            ModuleNotFoundError("no module", name="testbed.links.building"),
            "; testbed.links.building is now testbed.emulation.links.factory",
        ),
        (ModuleNotFoundError("no module", name="testbed.linksmiths"), ""),
        (
            ImportError("cannot import name 'Attendant' from 'x'", name="testbed.selection.check_in"),
            "; it is now CheckInRole",
        ),
    ):
        assert hint(error) == line


def test_former_names_are_gone_and_the_present_ones_are_there() -> None:
    kinds = {kind.__name__: kind for kind in _subclasses(object) if str(kind.__module__).startswith("testbed.")}
    for name, renamed in NAMES.items():
        for former, now in renamed.items():
            assert not hasattr(kinds[name], former), (name, former)
            for one in now.split(" and "):
                place, _, attribute = one.rpartition(".")  # without a place: of the same class
                kind = kinds[place or name]
                assert hasattr(kind, attribute) or _set_in_init(kind, attribute), (name, former, one)
    for modules in (MODULES.values(), IMPORTED):
        for module in modules:
            assert importlib.util.find_spec(module) is not None, module
    for module in MODULES:
        assert not _there(module), module


def _subclasses(kind: type) -> Iterator[type]:
    found: list[type] = type.__subclasses__(kind)
    for one in found:
        yield one
        yield from _subclasses(one)


def _set_in_init(kind: type, name: str) -> bool:
    return any(
        name in inspect.get_annotations(one) or f"self.{name} = " in inspect.getsource(one) for one in kind.__mro__[:-1]
    )


def _there(module: str) -> bool:
    """Whether there is code: what is left of a folder in a working copy has no loader."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return False
    return found is not None and found.loader is not None


def test_no_built_in_protocol_misspells_anything() -> None:
    for servers, base in ((selections.PROTOCOLS, SelectionProtocol), (aggregations.PROTOCOLS, AggregationProtocol)):
        for server in servers.values():
            check_subclass(server, base, server.__name__, "protocol")
