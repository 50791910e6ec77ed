"""Flower apps, and the interpreter of an environment that has flwr (`make test` makes one, and says which)."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from testbed.experiment.schema import Experiment
from testbed.workload.section import WorkloadSection
from workloads.flower.app import FlowerWorkload

AppWriter = Callable[[str], dict[str, Any]]

OLDER = '''
import numpy as np
from flwr.client import ClientApp, NumPyClient
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg

class Client(NumPyClient):
    """Adds the rate of the round, and evaluates to a loss of its number."""
    def __init__(self, number): self.number = number
    def get_parameters(self, config): return [np.zeros((3, 4)), np.zeros(2, np.float32)]
    def fit(self, parameters, config):
        return [array + config["rate"] * self.number for array in parameters], 5 + self.number, {"loss": 2.0}
    def evaluate(self, parameters, config): return float(self.number), 10, {"accuracy": self.number / 10}

client = ClientApp(lambda context: Client(context.node_config["partition-id"]).to_client())

def server_fn(context):
    strategy = FedAvg(fraction_fit=0.5, on_fit_config_fn=lambda number: {"rate": 0.5 * number})
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))

server = ServerApp(server_fn=server_fn)
'''
"""In the older API: clients of numpy, a rate that depends on the round, the first model from a client."""

NEWER = """
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

client, server = ClientApp(), ServerApp()

@client.train()
def train(message, context):
    number = context.node_config["partition-id"]
    arrays = {key: np.array(value.numpy()) for key, value in message.content["arrays"].items()}
    {train}
    content = RecordDict({"arrays": ArrayRecord({key: Array(np.asarray(value)) for key, value in arrays.items()}),
                          "metrics": MetricRecord({metrics})})
    return Message(content, reply_to=message)

{evaluate}

@server.main()
def main(grid, context):
    arrays = ArrayRecord({name: Array(np.asarray(array)) for name, array in {arrays}.items()})
    {strategy}.start(grid=grid, initial_arrays=arrays, num_rounds=3, train_config=ConfigRecord({"rate": 0.5}))
"""
"""In the newer API; what stands in braces is filled in by `newer`."""

EVALUATE = """
@client.evaluate()
def evaluate(message, context):
    metrics = MetricRecord({"eval_loss": 1.5, "share-right": 0.25, "num-examples": 4})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
"""


def evaluating(metrics: str) -> str:
    """An evaluation of the newer API that reports these metrics, a dictionary in Python, of a client's `number`."""
    return (
        "@client.evaluate()\ndef evaluate(message, context):\n"
        "    number = context.node_config['partition-id']\n"
        f"    return Message(RecordDict({{'metrics': MetricRecord({metrics})}}), reply_to=message)\n"
    )


def newer(**parts: str) -> str:
    """An app of the newer API, in which some parts are other than usual."""
    usual = {
        "train": "arrays['weight'] += np.random.random(3) + message.content['config']['server-round']",
        "metrics": "{'num-examples': 4}",
        "arrays": "{'weight': np.zeros(3, np.float32)}",
        "strategy": "FedAvg()",
        "evaluate": "",
    }
    text = NEWER
    for part, code in (usual | parts).items():
        text = text.replace("{" + part + "}", code)
    return text


@pytest.fixture(scope="session")
def flower_python() -> str:
    """The interpreter."""
    python = os.environ.get("FLOWER_PYTHON")
    if not python:
        pytest.skip("FLOWER_PYTHON names no interpreter with flwr (make test does)")
    return python


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Write an app's module into the working directory; what ``workload.flower`` says of it."""
    monkeypatch.chdir(tmp_path)

    def app(text: str) -> dict[str, Any]:
        (tmp_path / "theirs.py").write_text(text)
        return {"client": "theirs:client", "server": "theirs:server"}

    return app


def workload(flower: dict[str, Any], population: int = 6, **more: Any) -> FlowerWorkload:
    """The workload of an app's clients."""
    return FlowerWorkload(WorkloadSection.model_validate({"flower": flower, **more}), population, 1)


def rounds_of(out: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of a run's rounds, with None for null; a frame would make NaN of both."""
    table = parquet.read_table(out / "rounds.parquet", columns=list(columns))
    return list(zip(*(table[column].to_pylist() for column in columns), strict=True))


def experiment(flower: dict[str, Any], **more: Any) -> Experiment:
    """A small one, of three clients a round."""
    data: dict[str, Any] = {
        "name": "flower",
        "seed": 1,
        "rounds": 2,
        "population": 6,
        "workload": {"flower": flower},
        "selection": {"protocol": "random", "participants": 3},
        "aggregation": {"protocol": "plain"},
        "cluster": {"network": "in-process"},
    }
    return Experiment.model_validate(data | more)
