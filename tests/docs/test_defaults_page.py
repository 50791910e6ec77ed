"""The page of the defaults says the defaults that the code has."""

import re
from typing import Any

import pytest
import yaml

from testbed.experiment.schema import Experiment
from tests.repository import ROOT

PAGE = ROOT / "docs" / "explanation" / "defaults.md"
_ROW = re.compile(r"^\| `([a-z_.]+)`(?: with `([a-z-]+)`)? \| `(.*?)` \|", re.MULTILINE)
ROWS = _ROW.findall(PAGE.read_text())


def default(key: str, protocol: str) -> Any:
    """The value of a key in an experiment that says at most the protocol of the key's section."""
    experiment = Experiment.model_validate({key.split(".")[0]: {"protocol": protocol}} if protocol else {})
    value: Any = experiment.plain()
    names = key.split(".")
    for position, name in enumerate(names):
        if name not in value:  # left out where it has its default
            section: Any = experiment
            for path in names[:position]:
                section = getattr(section, path)
            return getattr(section, name)
        value = value[name]
    return value


@pytest.mark.parametrize(("key", "protocol", "written"), ROWS, ids=[f"{key}{with_}" for key, with_, _ in ROWS])
def test_a_default_on_the_page_is_that_of_the_code(key: str, protocol: str, written: str) -> None:
    assert yaml.safe_load(written) == default(key, protocol)


def test_the_page_has_the_keys_that_rule_results() -> None:
    training = {f"workload.{key}" for key in ("dataset", "partition.scheme", "epochs", "batch_size", "learning_rate")}
    training |= {f"workload.{key}" for key in ("momentum", "optimizer", "evaluate_every")}
    sums = {f"aggregation.{key}" for key in ("protocol", "threshold", "bits", "clip", "weights")}
    time = {f"time.{key}" for key in ("disconnects", "deadline_s", "between_rounds_s", "compute")}
    links = {f"links.{key}" for key in ("down_mbit_s", "up_mbit_s", "latency_ms", "server_down_mbit_s", "transport")}
    clients = {"rounds", "population", "selection.protocol", "selection.participants", "availability.model"}
    clients |= {"devices.model", "cluster.hosts", "cluster.network"}
    assert training | sums | time | links | clients <= {key for key, _, _ in ROWS}
    assert len(ROWS) == len(set(ROWS))
