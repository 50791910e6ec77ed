"""How many samples a Flower app's clients have: counted, announced, and the weights of their updates."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from testbed import run
from testbed.cli import main
from testbed.records import RunRecords
from tests.workloads.flower.conftest import AppWriter, evaluating, experiment, newer, rounds_of, workload
from workloads.flower.reports import announced_samples, counted_clients

UNEQUAL = newer(metrics="{'num-examples': 4 + number}", train="arrays['weight'] += number")
"""Client 0 has 4 samples, client 5 has 9; each adds its number to the model."""


def test_clients_are_counted_before_the_first_round(app: AppWriter, flower_python: str) -> None:
    flower = app(UNEQUAL) | {"python": flower_python}
    assert workload(flower).sample_counts.tolist() == [4, 5, 6, 7, 8, 9]
    announced = workload(flower, samples_per_client=20)
    assert announced.sample_counts.tolist() == [20] * 6
    assert announced.train(5, announced.initial_model(), 1).samples == 9


@pytest.mark.parametrize("announced", [None, 4, 100])
@pytest.mark.parametrize("aggregation", ["plain", "secagg"])
def test_updates_weigh_what_clients_report(
    aggregation: str, announced: int | None, app: AppWriter, flower_python: str
) -> None:
    """Whatever is announced: also clients with more samples than client 0, who had ended the run."""
    section = {"flower": app(UNEQUAL) | {"python": flower_python}, "samples_per_client": announced}
    protocol = {"protocol": "plain"} if aggregation == "plain" else {"protocol": "secagg", "clip": 8.0, "threshold": 4}
    whole = {"protocol": "random", "participants": 6}
    out = run(experiment({}, rounds=1, workload=section, selection=whole, aggregation=protocol), out="out")
    model, numbers = RunRecords(out).model, np.arange(6)
    assert rounds_of(out, "outcome") == [("completed",)]
    assert model is not None
    np.testing.assert_allclose(model, np.average(numbers, weights=4 + numbers), atol=1e-3)


def test_weights_beyond_the_ring_end_their_round(app: AppWriter, flower_python: str) -> None:
    """The ring was checked with the samples that were announced; larger weights are never summed modulo its size."""
    text = newer(metrics="{'num-examples': 4 + 60 * (number > 3)}")
    section = {"flower": app(text) | {"python": flower_python}, "samples_per_client": 4}
    secagg = {"protocol": "secagg", "clip": 8.0, "threshold": 4, "bits": 23, "levels_bits": 16}
    whole = {"protocol": "random", "participants": 6}
    out = run(experiment({}, rounds=1, workload=section, selection=whole, aggregation=secagg), out="out")
    [(outcome, reason)] = rounds_of(out, "outcome", "reason")
    assert (outcome, reason.partition(":")[0]) == ("aborted", "implausible-sum")
    model = RunRecords(out).model
    assert model is not None
    np.testing.assert_array_equal(model, 0)


def test_the_file_that_is_printed_has_the_samples(
    app: AppWriter, flower_python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As written it runs, where the largest client had ended it in the round that selected it."""
    app(UNEQUAL + evaluating("{'num-examples': 2, 'logloss': 0.5}"))
    folder = tmp_path / "unequal"
    folder.mkdir()
    (tmp_path / "theirs.py").rename(folder / "theirs.py")
    (folder / "pyproject.toml").write_text(
        "[tool.flwr.app.components]\nclientapp = 'theirs:client'\nserverapp = 'theirs:server'\n"
        "[tool.flwr.federations]\ndefault = 'local'\n[tool.flwr.federations.local]\noptions.num-supernodes = 6\n"
    )
    capsys.readouterr()
    assert main(["flower", "unequal", "--python", flower_python]) == 0
    text = capsys.readouterr().out
    assert "# Training samples of a client: 4 to 9; samples_per_client is the largest number.\n" in text
    assert "# Recorded from its clients' evaluation: logloss as loss.\n# the app's clients report no accuracy" in text
    assert yaml.safe_load(text)["workload"]["samples_per_client"] == 9
    Path("unequal.yaml").write_text(text)
    assert main(["run", "unequal.yaml", "--network", "in-process", "--out", "out", "--quiet"]) == 0
    assert rounds_of(Path("out"), "outcome") == [("completed",)] * 3


def test_of_many_clients_some_are_counted() -> None:
    """The others announce the largest number, so that a ring is large enough."""
    clients = counted_clients(1000)
    assert (len(clients), clients[0], clients[-1], len(set(clients))) == (100, 0, 999, 100)
    announced = announced_samples({0: 3, 4: 7}, 5)
    assert (announced.dtype, announced.tolist()) == (np.int64, [3, 7, 7, 7, 7])
