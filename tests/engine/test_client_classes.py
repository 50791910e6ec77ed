"""Runs with classes of clients: the clients' properties are recorded, and rounds use the recorded values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from testbed.experiment.inputs import secrets_context
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords
from tests.engine.test_same_results import experiment_with, result

CLASSES = {
    "phone": {
        "share": 0.6,
        "down_mbit_s": 8,
        "up_mbit_s": {"distribution": "uniform", "minimum": 0.5, "maximum": 2},
        "latency_ms": 80,
        "device": 20,
    },
    "fibre": {"share": 0.3, "down_mbit_s": 100, "up_mbit_s": 50, "latency_ms": 5},
    "office": {"latency_ms": {"distribution": "uniform", "minimum": 1, "maximum": 2}},
}


def recorded(run: Any) -> pd.DataFrame:
    return RunRecords(run.records.path).clients


def test_the_table_has_the_clients_properties(run: Callable) -> None:
    one = run(experiment_with("random", classes=CLASSES), "here").rounds(1)
    clients = recorded(one)
    assert clients["client"].tolist() == list(range(30))
    assert clients["class"].value_counts().to_dict() == {"phone": 18, "fibre": 9, "office": 3}
    assert clients["samples"].tolist() == one.workload.sample_counts.tolist()
    assert clients["device_factor"].tolist() == one.plan.speed_factors().tolist()
    by = clients.groupby("class", observed=True)
    assert by["down_mbit_s"].unique().map(list).to_dict() == {"fibre": [100.0], "office": [44.0], "phone": [8.0]}
    assert by["up_mbit_s"].min()["phone"] >= 0.5
    assert by["up_mbit_s"].nunique().to_dict()["phone"] == 18
    assert by["latency_ms"].max().round(6).to_dict() | {"office": 0} == {"fibre": 5, "office": 0, "phone": 80}
    assert by["latency_ms"].max()["office"] <= 2
    assert set(by.get_group("phone")["device_factor"]) == {20.0}


def test_stragglers_are_the_clients_of_slow_classes(run: Callable) -> None:
    keys = experiment_with("random", "plain", classes=CLASSES, rounds=2)
    keys |= {"availability": {"model": "always"}, "selection": {"protocol": "random", "participants": 30}}
    one = run(keys, "here").rounds()
    trained = RunRecords(one.records.path).exchanges.query("stage == 'train'").merge(recorded(one), on="client")
    trained["took_s"] = trained["received_s"] - trained["sent_s"]
    took = trained.groupby("class", observed=True)["took_s"]
    assert took.min()["phone"] > took.max()[["fibre", "office"]].max()
    compute = trained.set_index("class").eval("compute_s / device_factor")
    assert np.isclose(compute["phone"].mean(), compute["fibre"].mean(), rtol=0.3)


@pytest.mark.parametrize("finished_between", [False, True])
def test_a_resumed_run_has_the_same_clients(finished_between: bool, run: Callable) -> None:
    keys = experiment_with("lotto-server-centric", classes=CLASSES)
    whole = run(keys, "whole").rounds()
    part = run(keys, "part").rounds(3)
    file = part.records.path / "clients.parquet"
    written = file.read_bytes()
    if finished_between:
        part.records.finish()
    else:
        file.unlink()  # as of an earlier version
    resumed = run(keys, "part", resume=True, hosts=3).rounds()
    assert result(resumed) == result(whole)
    assert file.read_bytes() == written == (whole.records.path / "clients.parquet").read_bytes()


def test_without_classes_and_without_the_table(run: Callable) -> None:
    keys = experiment_with("random", rounds=1)
    assert set(recorded(run(keys, "plain").rounds())["class"]) == {""}
    without = run(keys | {"records": {"clients": False}}, "without").rounds()
    assert recorded(without).empty
    assert not (without.records.path / "clients.parquet").exists()


def test_on_a_trace_or_with_outages_rates_are_means(run: Callable) -> None:
    often = {"mean_between_s": 10, "mean_length_s": 10}
    keys = experiment_with("random", rounds=1, links={"outages": often, "up_mbit_s": 20})
    clients = recorded(run(keys, "here").rounds())
    assert abs(clients["up_mbit_s"].mean() - 10) < 1
    assert np.allclose(clients["down_mbit_s"], 2.2 * clients["up_mbit_s"])


def test_runs_that_differ_in_their_classes_have_unrelated_secrets() -> None:
    """Else the difference of a client's masked vectors could be that of its updates."""

    def context(**classes: Any) -> bytes:
        return secrets_context(Experiment.model_validate({"seed": 1, "classes": classes}))

    a, b = {"share": 0.5}, {"share": 0.5, "latency_ms": 7}
    assert len({context(), context(a=a, b=a), context(a=a, b=b), context(a=b, b=a)}) == 4
    assert context(a=a, b=b) == context(b=b, a=a)  # the same run: membership in classes does not depend on the order
