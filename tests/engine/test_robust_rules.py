"""Federations with a server that combines updates by a robust rule."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from testbed.adversary.misbehaviour import ClientMisbehaviour
from testbed.aggregation.plain import PlainClient, SendUpdate, Update
from testbed.aggregation.robust_rules import Combined, RobustRule, RobustSection, robust_rule
from testbed.errors import ExperimentError
from testbed.experiment.inputs import plugin_classes
from testbed.experiment.schema import Experiment, validated
from testbed.messages import Vector
from testbed.parties.client import handles
from tests.engine.test_server_optimizers import PROTOCOLS
from tests.messages_named import naming

RULES: list[dict[str, Any]] = [
    {"rule": "median"},
    {"rule": "trimmed-mean", "max_dishonest": 2},
    {"rule": "krum", "max_dishonest": 2},
    {"rule": "multi-krum", "max_dishonest": 2},
    {"rule": "geometric-median"},
    {"rule": "norm-bound", "bound": 0.3},
    {"rule": f"{__name__}:Last"},
]
UNSTEADY = {
    "selection": {"participants": 14},
    "availability": {"dropout": {"rate": 0.2, "stage": "random"}},
    "rounds": 4,
}


class Last(RobustRule):
    """Of the client with the highest number."""

    def combine(self, updates: Any) -> Combined:
        return Combined(updates[-1].astype(np.float64), np.array([len(updates) - 1]))


def plain(rule: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"aggregation": {"protocol": "plain", "weights": "equal", "robust": rule} | more}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["rule"])
def test_the_model_moves_by_the_rules_result_for_the_arrived_updates(run: Callable, rule: dict[str, Any]) -> None:
    one = run(UNSTEADY | plain(rule), "run")
    chosen = robust_rule(RobustSection(**rule))
    model, sizes = one.workload.initial_model(), set()
    for number in range(1, 5):
        one.rounds(1)
        (stage,) = [stage for stage in one.exchanges[-1] if stage.stage == "plain/update"]
        arrived = stage.clients[np.isfinite(stage.received_s)]
        found = chosen.combine([one.workload.train(client, model, number).delta for client in arrived.tolist()])
        outcome = one.outcomes[-1]
        assert outcome.survivors.tolist() == arrived[found.used].tolist()
        assert outcome.aggregate.weight == len(found.used)
        model = (model + found.mean).astype(np.float32)
        assert one.federation.state.model.tobytes() == model.tobytes()
        sizes.add(len(arrived))
    assert len(sizes) > 1  # some have dropped out


@pytest.mark.parametrize("rule", RULES[:6], ids=lambda rule: rule["rule"])
def test_hosts_and_resumption_change_nothing(run: Callable, rule: dict[str, Any]) -> None:
    asked = UNSTEADY | plain(rule)
    whole = run(asked, "whole").rounds()
    run(asked, "stopped").rounds(2)
    resumed = run(asked, "stopped", resume=True, hosts=3).rounds()
    assert resumed.federation.state.model.tobytes() == whole.federation.state.model.tobytes()
    for table in ("rounds", "exchanges", "participation"):
        assert resumed.rows(table) == whole.rows(table)


def test_the_servers_work_takes_its_time(run: Callable) -> None:
    spent = []
    for rule in ({"rule": "median"}, {"rule": "krum", "max_dishonest": 2}):
        costs = {"sort.element": 1.0, "float.multiply": 0.01, "float.add.element": 0.0}
        time = {"compute": "modelled", "deadline_s": 20, "costs": costs}
        one = run({"selection": {"participants": 10}, "time": time} | plain(rule), rule["rule"]).rounds(1)
        spent.append(one.rows("rounds")[0]["server_compute_s"])
    assert spent[0] == pytest.approx(10 * 23, rel=1e-3)
    assert spent[1] == pytest.approx(0.01 * 10 * 10 * 23, rel=1e-3)


def test_too_few_updates_end_the_round(run: Callable) -> None:
    dropout = {"availability": {"dropout": {"rate": 0.5, "stage": "plain/update"}}}
    rule = {"rule": "krum", "max_dishonest": 5}
    one = run({"selection": {"participants": 14}, "rounds": 3} | dropout | plain(rule), "run").rounds()
    assert {outcome.state for outcome in one.outcomes} == {"aborted"}
    assert one.rows("rounds")[0]["reason"].startswith("too-few-updates: max_dishonest: 5 of ")
    assert one.federation.state.model.tobytes() == one.workload.initial_model().tobytes()


class SendNothingFinite(ClientMisbehaviour, PlainClient):
    """Numbers that are none."""

    name = "send-nothing-finite"
    extends = PlainClient

    @handles(SendUpdate)
    def on_send_update(self, message: SendUpdate) -> Update:
        honest = super().on_send_update(message)
        return Update(honest.weight, Vector(np.full(len(honest.delta), np.nan, np.float32), 0))


def test_an_update_that_is_not_finite_is_left_out(run: Callable) -> None:
    adversary = {"dishonest": [1, 2, 3], "clients": [f"{__name__}:SendNothingFinite"]}
    keys = {"selection": {"participants": 30}, "rounds": 1, "adversary": adversary}
    one = run(keys | plain({"rule": "median"}), "run").rounds()
    assert one.outcomes[0].survivors.tolist() == [0, *range(4, 30)]
    seen = [event for event in one.rows("events") if event["kind"] == "misbehaviour"]
    assert [event["party"] for event in seen] == ["client:1", "client:2", "client:3"]
    bare = run(keys | {"aggregation": {"protocol": "plain"}}, "bare").rounds()
    assert bare.outcomes[0].state == "aborted"  # the result of a mean
    keys["adversary"] = adversary | {"dishonest": 30}
    none = run(keys | plain({"rule": "median"}), "none").rounds()
    assert none.rows("rounds")[0]["reason"] == "too-few-updates: no update that is finite arrived"


class CountMore(ClientMisbehaviour, PlainClient):
    """As a thousand."""

    name = "count-more"
    extends = PlainClient

    @handles(SendUpdate)
    def on_send_update(self, message: SendUpdate) -> Update:
        return Update(1000, super().on_send_update(message).delta)


@pytest.mark.parametrize("robust", [{}, {"robust": {"rule": "median"}}], ids=["mean", "median"])
def test_equal_weights_give_equal_influence(run: Callable, robust: dict[str, Any]) -> None:
    adversary = {"dishonest": [1, 2, 3], "clients": [f"{__name__}:CountMore"]}
    keys = {"selection": {"participants": 30}, "rounds": 1, "adversary": adversary}
    one = run(keys | {"aggregation": {"protocol": "plain", "weights": "equal"} | robust}, "run").rounds()
    assert one.outcomes[0].survivors.tolist() == [0, *range(4, 30)]
    assert one.outcomes[0].aggregate.weight == 27
    seen = [event for event in one.rows("events") if event["kind"] == "misbehaviour"]
    assert [(event["party"], event["detail"]) for event in seen] == [
        (f"client:{client}", "sent weight 1000; all count 1") for client in (1, 2, 3)
    ]
    believed = run(keys | {"aggregation": {"protocol": "plain", "weights": "samples"}}, "samples").rounds()
    assert len(believed.outcomes[0].survivors) == 30


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"weights": "samples"}, "aggregation: weights: samples are reported by the clients"),
        (
            {"noise": {"clip": 1.0, "noise_multiplier": 1.0}},
            "aggregation: robust excludes noise",
        ),
        ({"compression": {"name": "top-k", "share": 0.1}}, "aggregation: robust excludes compression"),
        ({"robust": {"rule": "krum", "max_dishonest": 4}}, "aggregation.robust.max_dishonest: 4 of 10 updates"),
        ({"robust": {"rule": "krumm"}}, "aggregation.robust.rule: 'krumm' is unknown"),
    ],
)
def test_settings_incompatible_with_robust_rules(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ExperimentError) as error:
        validated(plain({"rule": "median"}, **keys) | {"selection": {"participants": 10}}, "mine.yaml")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_batches_and_drift_correction_are_refused() -> None:
    batches = {"selection": {"protocol": "batch-partition", "participants": 10, "privacy": 5}, "population": 30}
    with pytest.raises(ExperimentError, match=naming("aggregation.batches: whole", "robust")):
        validated(plain({"rule": "median"}) | batches, "mine.yaml")
    validated(plain({"rule": "median"}, batches="ignored") | batches, "mine.yaml")
    corrected = {"workload": {"momentum": 0, "drift_correction": {"name": "scaffold"}}}
    with pytest.raises(
        ExperimentError, match=r"aggregation\.robust: median excludes workload\.drift_correction: scaffold"
    ):
        validated(plain({"rule": "median"}) | corrected, "mine.yaml")


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name != "plain"])
def test_secure_aggregation_says_why_it_has_none(protocol: str) -> None:
    with pytest.raises(ExperimentError) as error:
        validated({"aggregation": PROTOCOLS[protocol] | {"robust": {"rule": "median"}}}, "mine.yaml")
    assert str(error.value) == (
        "mine.yaml: aggregation.robust: compares single updates, but with this protocol the server only sees sums; "
        "set protocol: plain, or leave robust out"
    )


def test_it_is_written_only_where_it_is_set_and_a_class_is_named_with_its_key() -> None:
    without = Experiment.model_validate({"aggregation": {"protocol": "plain"}})
    with_class = Experiment.model_validate(plain({"rule": "mine:Own"}))
    assert "robust" not in without.plain()["aggregation"]
    assert plugin_classes(without) == []
    assert plugin_classes(with_class) == [("aggregation.robust.rule", "mine:Own")]
