"""Where participants add noise, their losses and sample counts stay with them, unless the experiment says otherwise."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment, validated
from testbed.selection.contract import Selection, SelectionProtocol, SelectionRound
from testbed.training import Train
from tests.messages_named import naming
from tests.repository import ROOT

NOISE = {"noise_multiplier": 8.0, "scale": 64.0}
PROTOCOLS = {
    "plain": {"protocol": "plain"},
    "secagg": {"protocol": "secagg"},
    "xnoise": {"protocol": "secagg", "noise": NOISE | {"enforcement": {"tolerated_dropouts": 2}}},
    "secagg-plus": {"protocol": "secagg-plus"},
}
ALLOWED = {"privacy": {"report_losses": True}}
REFINED = {"protocol": "lotto-client-centric", "refine": {"by": ["loss"]}}


def keys(protocol: str = "secagg", **more: Any) -> dict[str, Any]:
    aggregation = {"weights": "equal", "bits": 32, "noise": NOISE} | PROTOCOLS[protocol]
    return {"seed": 3, "rounds": 2, "selection": {"participants": 8}, "aggregation": aggregation} | more


def told(done: Any) -> list[Any]:
    """All answers to `Train` of the rounds, which are run here."""
    ask = done.federation.network.ask
    said: list[Any] = []

    async def listening(recipients: Any, message: Any, **options: Any) -> Any:
        replies = await ask(recipients, message, **options)
        if isinstance(message, Train):
            said.extend(replies.valid().values())
        return replies

    done.federation.network.ask = listening
    done.rounds()
    assert {outcome.state for outcome in done.outcomes} == {"completed"}
    assert len(said) == 16
    return said


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_of_the_data_leaves_a_client_beside_its_noisy_update(protocol: str, run: Callable[..., Any]) -> None:
    done = run(keys(protocol))
    said = told(done)
    assert {answer.samples for answer in said} == {None}
    assert all(math.isnan(answer.loss) and answer.squared_loss is None for answer in said)
    assert [outcome.training_loss for outcome in done.outcomes] == [None, None]


@pytest.mark.parametrize("more", [ALLOWED, {"aggregation": {"protocol": "secagg"}}], ids=["allowed", "no noise"])
def test_they_do_where_the_experiment_says_so_or_nothing_is_private(
    more: dict[str, Any], run: Callable[..., Any]
) -> None:
    done = run(keys() | more)
    assert all(answer.samples > 0 and answer.loss > 0 for answer in told(done))
    assert all(outcome.training_loss > 0 for outcome in done.outcomes)


def test_counts_are_public_under_dp_sgd_and_losses_are_not(run: Callable[..., Any]) -> None:
    class WithGradients:
        dimension, sample_counts = 4, np.full(30, 6)

        def __init__(self, population: int) -> None:
            pass

        def initial_model(self) -> np.ndarray:
            return np.zeros(4, np.float32)

        def check_gradient_sum(self) -> None:
            pass

        def train(self, *of: Any) -> Any:
            raise NotImplementedError

        def gradient_sum(self, client: int, *of: Any) -> Any:
            from testbed.workload.contract import LocalUpdate

            return LocalUpdate(np.zeros(4, np.float32), 6, 0.25, 2)

        def evaluate(self, model: np.ndarray) -> None:
            return None

    dp_sgd = {"protocol": "dp-sgd-random-participation", "sample_rate": 0.1, "sigma": 1.0}
    section = {"selection": {"protocol": "bernoulli", "client_rate": 0.5}, "aggregation": dp_sgd, "rounds": 1}
    done = run({"seed": 3} | section, workload=WithGradients)
    ask = done.federation.network.ask
    said: list[Any] = []

    async def listening(recipients: Any, message: Any, **options: Any) -> Any:
        replies = await ask(recipients, message, **options)
        said.extend(replies.valid().values() if isinstance(message, Train) else [])
        return replies

    done.federation.network.ask = listening
    done.rounds()
    assert {answer.samples for answer in said} == {6}
    assert all(math.isnan(answer.loss) for answer in said)
    with pytest.raises(ExperimentError, match=naming("privacy.report_losses", "dp-sgd")):
        validated(section | ALLOWED, "test")


@pytest.mark.parametrize(
    "section",
    [{"selection": {"protocol": "oort"}}, {"selection": REFINED}],
    ids=["oort", "refined"],
)
def test_the_key_that_needs_losses_is_named(section: dict[str, Any]) -> None:
    with pytest.raises(ExperimentError) as error:
        validated(keys() | section, "test")
    (line,) = str(error.value).splitlines()
    assert line.startswith("test: privacy.report_losses: false, ")
    assert "set privacy.report_losses: true" in line
    assert RunPlan(validated(keys() | section | ALLOWED, "test"), 0)


def test_response_times_are_the_servers_own(run: Callable[..., Any]) -> None:
    selection = {"protocol": "lotto-client-centric", "participants": 8, "over_selection": 3.0}
    done = run(keys(selection=selection | {"refine": {"by": ["latency"]}}))
    assert len(told(done)) == 16


class Learns(SelectionProtocol):
    """A user-defined selection that learns from reports."""

    roles = ()

    async def select(self, round_: SelectionRound) -> Selection:
        """Not called."""
        raise NotImplementedError

    def learn(self, round_: Any, reports: Any) -> None:
        """From losses, for all that is known."""


class FromLatency(Learns):
    """Not from losses."""

    uses_reported_losses = False


@pytest.mark.parametrize(("kind", "refused"), [(Learns, True), (FromLatency, False)])
def test_a_selection_of_ones_own_that_learns_from_reports(kind: type, refused: bool, run: Callable[..., Any]) -> None:
    section = {"protocol": f"{__name__}:{kind.__name__}", "participants": 8}
    if not refused:
        run(keys(selection=section))
        return
    with pytest.raises(ExperimentError, match=r"selection\.protocol: .*Learns"):
        run(keys(selection=section))
    run(keys(selection=section) | ALLOWED)


def test_an_aggregation_of_ones_own_that_adds_noise(monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]) -> None:

    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    own = {"protocol": "own_noise:GaussianSums", "participants": 8, "noise_multiplier": 5.0}
    assert {answer.samples for answer in told(run(keys() | {"aggregation": own}))} == {None}
    with pytest.raises(ExperimentError, match=naming("oort", "losses")):
        run(keys() | {"aggregation": own, "selection": {"protocol": "oort", "participants": 8}})


def test_the_schema_knows_the_key() -> None:
    assert Experiment.model_validate(keys() | ALLOWED).privacy.report_losses
