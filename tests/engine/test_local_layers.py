"""Layers that stay with the clients: against the paper written out, under every aggregation, resumed, and in torch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from benchmarks.floors import plain_network
from testbed.errors import ExperimentError, RunError
from testbed.experiment.schema import Experiment
from testbed.messages import Vector, encode
from testbed.training import StateReference, TrainWithState
from tests.engine.federations import Run
from tests.engine.quadratics import Quadratics
from tests.engine.test_clients_at_once import learned
from tests.engine.test_drift_correction import quadratics, said, total
from tests.engine.test_server_optimizers import PROTOCOLS, UNSTEADY
from tests.thoroughness import each_value

LAYERS: dict[str, dict[str, int]] = {"fedper": {"last": 2}, "lg-fedavg": {"first": 2}, "both": {"first": 1, "last": 1}}
DIGITS = {
    "dataset": "digits", "model": "mlp", "partition": {"scheme": "label-shards"}, "batch_size": 10, "epochs": 3,
    "momentum": 0,
}  # fmt: skip


def keys(layers: dict[str, int] | None, **more: Any) -> dict[str, Any]:
    workload = {"learning_rate": 0.2, "epochs": 2, "local_layers": layers}
    return {
        "population": 12, "rounds": 8, "selection": {"participants": 6}, "aggregation": {"protocol": "plain"},
        "workload": workload,
    } | more  # fmt: skip


class Paper:
    """FedPer, Algorithm 1: each client's personal layers in a dictionary."""

    def __init__(self, workload: Quadratics, local: np.ndarray) -> None:
        self.workload, self.local = workload, local
        self.model = workload.initial_model()
        self.own: dict[int, np.ndarray] = {}

    def round(self, number: int, survivors: np.ndarray) -> None:
        moved = np.zeros(self.workload.dimension)
        weights = self.workload.sample_counts[survivors] / self.workload.sample_counts[survivors].sum()
        for weight, client in zip(weights, survivors.tolist(), strict=True):
            model = self.model.copy()
            model[self.local] = self.own.get(client, self.workload.initial_model()[self.local])
            delta = self.workload.train(client, model, number).delta
            self.own[client] = (model + delta)[self.local]
            moved += weight * delta
        self.model = np.where(self.local, self.model, self.model + moved).astype(np.float32)

    def loss(self) -> float:
        losses = []
        for client in range(len(self.workload.sample_counts)):
            model = self.model.copy()
            if client in self.own:
                model[self.local] = self.own[client]
            evaluation = self.workload.evaluate_for(client, model)
            assert evaluation is not None
            losses.append(evaluation.loss)
        return float(np.mean(losses))


@pytest.mark.parametrize(
    ("protocol", "layers"),
    each_value([name for name in PROTOCOLS if name != "pine"], LAYERS),  # pine weighs all alike
)
def test_it_equals_the_papers_over_the_remaining_clients(run: Callable[..., Run], protocol: str, layers: str) -> None:
    given = {"clip": 2.0, "levels_bits": 20} if protocol != "plain" else {}
    asked = keys(
        LAYERS[layers], population=24, selection={"participants": 14}, aggregation=PROTOCOLS[protocol] | given,
        availability={"dropout": {"rate": 0.15, "stage": "random"}},
    )  # fmt: skip
    one = quadratics(run, asked, name="run").rounds()
    paper = Paper(
        one.workload, one.workload.local_numbers(LAYERS[layers].get("first", 0), LAYERS[layers].get("last", 0))
    )
    losses = []
    for number, outcome in enumerate(one.outcomes, 1):
        if outcome.state == "completed":
            paper.round(number, outcome.survivors)
        losses.append(paper.loss())
    assert min(len(outcome.survivors) for outcome in one.outcomes) < 14
    assert one.federation.state.model == pytest.approx(paper.model, abs=1e-5 if protocol == "plain" else 1e-4)
    assert [row["loss"] for row in one.rows("rounds")] == pytest.approx(losses, abs=1e-3)
    assert losses[-1] < 0.9 * losses[0]


def test_of_many_clients_some_are_measured_always_the_same(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int]] = [[], []]
    monkeypatch.setattr("testbed.engine.federation.MOST_EVALUATED", 5)
    one = quadratics(run, keys({"last": 1}))
    for found in asked:
        monkeypatch.setattr(one.workload, "evaluate_for", lambda client, model, found=found: found.append(client))
        one.rounds(1)
    assert len(set(asked[0])) == 5
    assert asked[0] == asked[1]


def test_local_layers_are_not_sent(run: Callable[..., Run]) -> None:
    one = quadratics(run, keys({"last": 2}), name="run").rounds(1)
    shared = one.workload.dimension - 2
    question = len(encode(TrainWithState(1, Vector(np.zeros(shared, np.float32), 0)))) + len(encode(StateReference(0)))
    assert total(one, "train", "bytes_down") == 6 * question
    without = quadratics(run, keys(None), name="without").rounds(1)
    assert total(without, "plain/update", "bytes_up") - total(one, "plain/update", "bytes_up") == 6 * 4 * 2


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param(name, marks=() if name in ("plain", "secagg", "flamingo") else pytest.mark.slow)
        for name in PROTOCOLS
    ],
)
def test_resumed_on_other_hosts_it_is_the_run_in_one_go(run: Callable[..., Run], protocol: str) -> None:
    asked = UNSTEADY | {"workload": DIGITS | {"local_layers": {"last": 1}}, "aggregation": PROTOCOLS[protocol]}
    whole = learned(run, asked, name="whole").rounds()
    learned(run, asked, name="stopped").rounds(3)
    resumed = learned(run, asked, name="stopped", resume=True, hosts=2).rounds()
    assert resumed.federation.state.model.tobytes() == whole.federation.state.model.tobytes()
    for table in ("exchanges", "rounds"):
        assert resumed.rows(table) == whole.rows(table)


def test_on_clients_with_few_labels_each_its_own_last_layer_is_better(run: Callable[..., Run]) -> None:
    """Both measured on held-out samples as each client has them."""
    found = []
    for layers in ({"last": 1}, None):
        asked = {"workload": DIGITS | {"local_layers": layers, "learning_rate": 0.05}, "rounds": 10}
        asked |= {"selection": {"participants": 15}, "aggregation": {"protocol": "plain"}}
        one = learned(run, asked, name=f"run-{layers is None}").rounds()
        if layers is None:
            model = one.federation.state.model
            found.append(np.mean([one.workload.evaluate_for(client, model).accuracy for client in range(30)]))
        else:
            found.append(one.rows("rounds")[-1]["accuracy"])
    assert found[0] > found[1] + 0.05


def test_a_client_is_measured_on_its_own_labels(run: Callable[..., Run]) -> None:
    one = learned(run, {"workload": DIGITS})
    workload: Any = one.workload
    model = workload.initial_model()
    images, labels = workload.data.held_out()
    network = plain_network("mlp", images.shape[1], images.shape[2], 10)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(model.copy()), network.parameters())
    with torch.no_grad():
        outputs = network(images.float().flatten(1))
    counts = workload.label_counts()
    for client in (0, 7):
        share = counts[client] / counts[client].sum()
        right, losses = (
            (outputs.argmax(1) == labels).double(),
            cross_entropy(outputs, labels, reduction="none").double(),
        )
        by_label = [[float(values[labels == label].mean()) for label in range(10)] for values in (right, losses)]
        evaluation = workload.evaluate_for(client, model)
        assert evaluation.accuracy == pytest.approx(share @ by_label[0])
        assert evaluation.loss == pytest.approx(share @ by_label[1], rel=1e-4)


def test_a_layer_is_a_module_with_parameters(run: Callable[..., Run]) -> None:
    workload: Any = learned(run, {"workload": DIGITS}).workload
    shapes = workload.parameter_shapes()
    assert workload.local_numbers(0, 1).sum() == sum(int(np.prod(shape)) for shape in shapes[-2:])
    assert not workload.local_numbers(0, 1)[: -sum(int(np.prod(shape)) for shape in shapes[-2:])].any()
    assert workload.local_numbers(1, 0)[: int(np.prod(shapes[0]))].all()
    line = said(lambda: workload.local_numbers(2, 1), ExperimentError)
    assert line == (
        "workload.local_layers: 3 of the 3 layers of mlp; at least one layer must be shared, and no parameter sent "
        "twice: choose fewer layers or another model"
    )


def test_a_checkpoint_of_other_layers(run: Callable[..., Run]) -> None:
    quadratics(run, keys({"last": 2}), name="run").rounds(2)
    for other in ({"last": 1}, None):
        asked = keys(other)
        line = said(partial(quadratics, run, asked, name="run", resume=True), RunError)
        assert "resume with the experiment that began the run" in line


def test_it_is_written_only_where_it_is_set() -> None:
    without, with_it = (Experiment.model_validate({"workload": {"local_layers": one}}) for one in (None, {"last": 1}))
    assert "local_layers" not in without.plain()["workload"]
    assert with_it.plain()["workload"]["local_layers"] == {"last": 1, "first": 0}
