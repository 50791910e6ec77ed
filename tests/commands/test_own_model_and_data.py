"""A model and data of the user's own under every way to select and sum, resumed, and validated."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed import run
from testbed.records import find_runs
from tests.observers import StopIn

Call = Callable[..., Any]
Written = Callable[..., Path]

MODULE = """
import numpy as np
from torch import nn


def load(count=160):
    labels = np.arange(count) % 2
    return np.random.normal(size=(count, 4)) + 2 * labels[:, None], labels


def values(count=160):
    x = np.random.normal(size=(count, 4))
    return x, x.sum(axis=1)


class Net(nn.Sequential):
    def __init__(self, outputs=2):
        super().__init__(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.1), nn.Linear(6, outputs))


class Int(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(3, 2)

    def forward(self, x):
        return self.embedding(x)
"""
OWN: dict[str, Any] = {"dataset": "own_net:load", "model": "own_net:Net", "learning_rate": 0.1, "batch_size": 5}
NO_DROPOUT = {"dropout": {"rate": 0.0}}


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_net.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_net", None)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"aggregation": {"protocol": "secagg", "threshold": 0.6}},
        {"selection": {"protocol": "lotto-client-centric", "participants": 4}, "aggregation": {"protocol": "secagg"}},
        {"workload": OWN | {"training": "simulated"}},
        {"workload": OWN | {"dataset": "own_net:values", "model_options": {"outputs": 1}, "loss": "mse"}},
        {
            "selection": {"protocol": "bernoulli", "client_rate": 0.6},
            "aggregation": {
                "protocol": "dp-sgd-random-participation",
                "sample_rate": 0.5,
                "clip": 1.0,
                "sigma": 0.5,
                "server": "trusted",
            },
        },
    ],
    ids=lambda changes: "-".join(str(part) for part in changes) or "plain",
)
def test_it_runs_and_resumes_to_the_same_model(changes: dict[str, Any], call: Call, written: Written, tmp_path: Path):
    file = written(**{"workload": OWN, "availability": NO_DROPOUT, **changes})
    ended = call("run", file, "--out", tmp_path / "whole", "--quiet")
    assert ended.code == 0, ended.err
    with pytest.raises(KeyboardInterrupt):
        run(file, out=tmp_path / "parts", observer=StopIn(2))
    run(file, out=tmp_path / "parts", resume=True)
    whole, parts = (find_runs(tmp_path / out)[0] for out in ("whole", "parts"))
    assert np.array_equal(whole.model, parts.model)
    assert whole.rounds["outcome"].eq("completed").any()
    assert whole.rounds["metrics"].isna().all()
    values = "values" in str(changes)
    assert whole.rounds["accuracy"].isna().all() == (values or "simulated" in str(changes))
    assert "own_net.py" in str(whole.experiment["provenance"])


def test_metrics_are_recorded_in_the_order_of_their_names(call: Call, written: Written, tmp_path: Path) -> None:
    file = written(workload=OWN | {"metrics": ["macro-f1", "sklearn.metrics:accuracy_score"]}, rounds=1)
    assert call("run", file, "--out", tmp_path / "out", "--quiet").code == 0
    (found,) = find_runs(tmp_path / "out")
    f1, accuracy = found.rounds["metrics"].iloc[-1]
    assert accuracy == found.rounds["accuracy"].iloc[-1]
    assert found.experiment["provenance"]["modules"]["sklearn"].startswith("version ")
    assert 0 < f1 <= 1


def test_validate_imports_what_is_named_only_when_asked(call: Call, written: Written) -> None:
    file = written(workload=OWN | {"loss": "torch.nn.functional:huber_loss"})
    said = call("validate", file)
    assert said.code == 0
    assert "not imported, so not checked: workload.dataset own_net:load, workload.model own_net:Net" in said.out
    assert "own_net" not in sys.modules
    said = call("validate", file, "--import-classes")
    assert (said.code, said.err) == (0, "")
    assert "workload.model: own_net:Net from" in said.out
    for key, value, says in (
        ("workload.options.cuont", 3, "workload.options.cuont: unknown option; did you mean 'count'?"),
        ("workload.model", "own_net:Gone", "workload.model: own_net:Gone: module own_net"),
        ("workload.model_options.output", 3, "model_options.output: unknown option; did you mean 'outputs'?"),
        ("workload.optimizer", "own_net:load", "workload.optimizer: own_net:load: must be a class like"),
        ("workload.loss", "own_net:Gone", "workload.loss: own_net:Gone: module own_net"),
        ("workload.metrics", "[own_net:gone]", "workload.metrics: own_net:gone: module own_net"),
    ):
        said = call("validate", file, "--import-classes", "--set", f"{key}={value}")
        assert (said.code, len(said.errors)) == (2, 1), said.err
        assert says in said.err


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"dataset": "own_net:values"}, "labels are float64, and cross_entropy takes whole numbers"),
        ({"options": {"count": 6}}, "own_net:load gave 6 training samples for 8 clients; lower population"),
        ({"model": "own_net:Int"}, "own_net:Int does not take samples"),
        ({"partition": {"scheme": "flwr_datasets.partitioner:IidPartitioner"}}, "sortition-testbed[flower-datasets]"),
    ],
)
def test_what_cannot_be_learned_is_one_line_and_no_run(
    keys: dict[str, Any], says: str, call: Call, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    ended = call("run", written(workload=OWN | keys), "--out", tmp_path / "out", "--quiet")
    assert (ended.code, len(ended.errors)) == (2, 1), ended.err
    assert says in ended.err
    assert find_runs(tmp_path / "out") == [] if (tmp_path / "out").exists() else True
