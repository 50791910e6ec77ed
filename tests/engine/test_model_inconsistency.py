"""A server that sends others than the victim a model that does not move, under every selection: refused, or it has it.

Pasquini, Francati, Ateniese (CCS 2022). The client code is the honest one, and nobody works for the server.
"""

import asyncio
from typing import Any

import numpy as np
import pytest

import workloads
from testbed.aggregation.secagg_plus.graph import RegularGraph
from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import RunPlan
from testbed.engine.registry import aggregation_protocol
from testbed.errors import ExperimentError
from testbed.experiment.schema import validated
from tests.messages_named import naming

CHECK = "aggregation.keys-or-model-mismatch"
STEP = 2 / 65535
SELECTIONS: dict[str, dict[str, Any]] = {
    "random": {"participants": 10},
    "batch-partition": {"participants": 10, "privacy": 5},
    "lotto-client-centric": {"participants": 10, "over_selection": 2},
    "lotto-server-centric": {"participants": 10, "over_selection": 2},
    "verifiable-batch-partition": {"participants": 10, "privacy": 5, "over_selection": 3},
}
AGGREGATIONS: dict[str, dict[str, Any]] = {
    "secagg": {"protocol": "secagg"},
    "secagg without signed survivors": {"protocol": "secagg", "consistency": "none"},
    "secagg-plus": {"protocol": "secagg-plus"},
    "lightsecagg": {"protocol": "lightsecagg"},
}


def _ring(aggregation: dict[str, Any]) -> dict[str, int]:
    """Wide enough for the weights; a field has one width."""
    return {} if aggregation["protocol"] == "lightsecagg" else {"bits": 40}


def one_round(selection: str, aggregation: dict[str, Any], **keys: Any) -> tuple[Any, Any, Any]:
    data = {
        "name": "inconsistent", "seed": 3, "rounds": 2, "population": 40,
        "workload": {"dataset": "digits", "model": "mlp", "epochs": 2},
        "selection": {"protocol": selection, **SELECTIONS[selection]},
        "aggregation": {**_ring(aggregation), **aggregation},
        "time": {"compute": "modelled"}, "adversary": {"dishonest": 0, "server": "send-different-models"},
    } | keys  # fmt: skip
    experiment = validated(data, "test")
    plan = RunPlan(experiment, 1)
    federation = federation_in_process(plan, workloads.build(experiment.workload, 40, plan.seed), None)
    before = federation.state.model
    return federation, before, asyncio.run(federation.run_next_round())


def refused(federation: Any) -> dict[int, str]:
    """Return the clients that refused, with the code of the refusal."""
    events = [event for event in federation.network.events if event.kind == "refusal"]
    return {int(event.party.removeprefix("client:")): event.detail.partition(":")[0] for event in events}


def victim_of(federation: Any) -> int:
    (detail,) = [event.detail for event in federation.network.events if event.kind == "attack"]
    assert detail.startswith("send-different-models: client ")
    return int(detail.split()[2])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_clients_that_sign_the_received_model_refuse_one_another(selection: str, aggregation: str) -> None:
    federation, before, outcome = one_round(selection, AGGREGATIONS[aggregation])
    assert outcome.state == "aborted"
    assert CHECK in outcome.reason
    assert np.array_equal(outcome.model, before)
    hurt = set(outcome.participants.tolist())
    if aggregation == "secagg-plus":  # the others share no secrets with the victim, and no masks
        chosen = federation.plan.experiment.aggregation.neighbourhood(len(hurt))
        graph = RegularGraph.of_round(federation.directory.public_seed, 1, sorted(hurt), chosen)
        hurt = set(graph.around(victim_of(federation)))
    assert refused(federation) == dict.fromkeys(hurt, CHECK)
    assert not any(stage.stage.endswith("/masked-input") for stage in federation.network.exchanges)


FLAMINGO = {"protocol": "flamingo", "committee": {"size": 5, "threshold": 3}}


@pytest.mark.parametrize("selection", SELECTIONS)
def test_masks_of_flamingo_cancel_among_those_alone_that_were_sent_the_same(selection: str) -> None:
    """Nobody refuses, as nobody sees it; the victim's masks stay in the sum, and the server has nothing."""
    federation, before, outcome = one_round(selection, FLAMINGO)
    assert outcome.state == "aborted"
    assert outcome.reason.startswith("implausible-sum")
    assert np.array_equal(outcome.model, before)
    assert refused(federation) == {}


@pytest.mark.parametrize("aggregation", [*AGGREGATIONS, "flamingo"])
@pytest.mark.parametrize("selection", SELECTIONS)
def test_without_that_the_sum_is_the_victims_update(selection: str, aggregation: str) -> None:
    section = AGGREGATIONS.get(aggregation, FLAMINGO)
    federation, before, outcome = one_round(selection, section | {"model_binding": "none"})
    assert outcome.state == "completed"
    assert refused(federation) == {}
    victim, workload = victim_of(federation), federation.workload
    true = workload.train(victim, before, 1).delta
    weight = float(workload.sample_counts[victim])
    error = np.abs(outcome.aggregate.mean * outcome.aggregate.weight / weight - true)
    assert len(outcome.survivors) == 10
    assert error.max() <= STEP * outcome.aggregate.weight / weight  # ten summands, each rounded to a step
    assert (error @ error) / (true @ true) < 1e-4


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_an_honest_round_is_the_same_with_it(aggregation: str) -> None:
    """The same bytes on the wire at every client, and the same model."""
    (bound, _, one), (free, _, other) = (
        one_round("random", AGGREGATIONS[aggregation] | {"model_binding": binding}, adversary=None)
        for binding in ("signed", "none")
    )
    assert one.state == other.state == "completed"
    assert np.array_equal(one.model, other.model)
    for left, right in zip(bound.network.exchanges, free.network.exchanges, strict=True):
        assert left.stage == right.stage
        assert (left.bytes_up == right.bytes_up).all()
        assert (left.bytes_down == right.bytes_down).all()
    assert [event.kind for event in bound.network.events] == []
    assert [event.kind for event in free.network.events] == ["weak-binding"]


def test_a_named_victim_and_rounds_that_are_left_alone() -> None:
    adversary = {"dishonest": 0, "server": {"send-different-models": {"victim": 7}}, "from_round": 2}
    federation, _, outcome = one_round(
        "random", AGGREGATIONS["secagg"], adversary=adversary, population=10,
    )  # fmt: skip
    assert outcome.state == "completed"
    second = asyncio.run(federation.run_next_round())
    assert (second.state, victim_of(federation)) == ("aborted", 7)


def test_accomplices_are_sent_the_victims_model() -> None:
    """They could be told to sign anything; three of ten are fewer than it takes to have a sum of their own."""
    adversary = {"dishonest": [0, 1, 2], "server": {"send-different-models": {"victim": 7}}}
    for binding, state in (("signed", "aborted"), ("none", "completed")):
        aggregation = AGGREGATIONS["secagg"] | {"model_binding": binding}
        federation, _, outcome = one_round("random", aggregation, adversary=adversary, population=10)
        assert outcome.state == state
        asked = [stage.clients.tolist() for stage in federation.network.exchanges if stage.stage == "train"]
        assert asked == [[0, 1, 2, 7], [3, 4, 5, 6, 8, 9]]


def test_one_crafted_model_for_all_is_not_detected() -> None:
    federation, _, outcome = one_round("random", AGGREGATIONS["secagg"], adversary={"server": "send-crafted-model"})
    assert outcome.state == "completed"
    assert refused(federation) == {}
    (attack,) = [event for event in federation.network.events if event.kind == "attack"]
    assert attack.stage == "train"
    assert attack.detail.startswith("send-crafted-model: 63 bins for ")


@pytest.mark.parametrize(
    ("server", "workload", "told"),
    [
        ("send-crafted-model", {"model": "logistic"}, "send-crafted-model needs a multilayer perceptron"),
        ("send-crafted-model", {"model": "cnn"}, r"set workload\.model to mlp, not cnn"),
        ("send-crafted-model", {"training": "simulated"}, r"needs gradients; set workload\.training to real"),
        ("send-different-models", {"training": "simulated"}, r"needs gradients; set workload\.training to real"),
    ],
)
def test_incompatible_settings_are_refused_before_data_are_read(
    server: str, workload: dict[str, Any], told: str
) -> None:
    data = {
        "workload": {"dataset": "digits", **workload}, "adversary": {"server": server},
        "aggregation": {"protocol": "secagg"}, "time": {"compute": "modelled"},
    }  # fmt: skip
    with pytest.raises(ExperimentError, match=told):
        RunPlan(validated(data, "test"), 1)


def test_a_workload_of_ones_own_of_which_nothing_is_known_is_refused_before_the_first_round() -> None:
    class Opaque:
        dimension, sample_counts = 5, np.ones(100, np.int64)

    plan = RunPlan(validated({"adversary": {"server": "send-crafted-model"}}, "test"), 1)
    with pytest.raises(ExperimentError, match=naming("parameter_shapes()")):
        plan.check_sums(Opaque())


def test_a_malicious_server_sees_single_updates_where_nothing_is_bound() -> None:
    """As the privacy ledger counts: no accomplice is needed."""
    for name in ("secagg", "secagg-plus", "one-shot", "e-seafl", "pine"):
        for binding in ("signed", "none"):
            keys: dict[str, object] = {"protocol": name, "model_binding": binding}
            keys |= {"helper": 0, "norm_bound": 1.0} if name == "pine" else {}
            experiment = validated({"selection": {"participants": 10}, "aggregation": keys}, "test")
            assert (aggregation_protocol(experiment.aggregation).guarantees(10).max_colluders == -1) == (
                binding == "none"
            )
