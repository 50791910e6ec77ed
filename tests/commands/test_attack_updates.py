"""``testbed attack reconstruct`` and ``invert`` from the outside."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

EXPERIMENT = {
    "name": "seen", "seed": 4, "rounds": 12, "population": 6,
    "workload": {
        "dataset": "digits", "model": "mlp", "samples_per_client": 1, "batch_size": 1, "momentum": 0.0,
        "learning_rate": 0.0005, "evaluate_every": 12,
    },
    "selection": {"participants": 2}, "aggregation": {"protocol": "plain"}, "time": {"compute": "modelled"},
    "records": {"aggregates": [1, 12]}, "cluster": {"network": "in-process"},
}  # fmt: skip


@pytest.fixture
def run(call: Callable[..., Any], tmp_path: Path) -> Path:
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT))
    assert call("run", file, "--out", tmp_path / "run", "--quiet").code == 0
    return tmp_path / "run"


def test_both_attacks_and_their_errors(call: Callable[..., Any], run: Path, tmp_path: Path) -> None:
    window = ("attack", "reconstruct", run, "--from", 1, "--to", 12)
    ended = call(*window, "--out", tmp_path / "figures")
    assert ended.code == 0
    assert ended.out.startswith("rounds 1 to 12: 12 completed, 0 not completed; ")
    found = json.loads(call(*window, "--format", "json").out)
    assert json.loads((tmp_path / "figures" / "reconstruction.json").read_text()) == found
    assert found["mean_error"] >= 0
    assert found["truth_holds"] is True
    (tmp_path / "taken").touch()
    nowhere = call(*window, "--out", tmp_path / "taken")
    assert (nowhere.code, nowhere.out) == (2, "")
    assert "--out" in nowhere.err
    beyond = call(*window[:-1], 13)
    assert (beyond.code, beyond.out) == (2, "")
    assert "there are rounds 1 to 12" in beyond.err
    client = int(json.loads(json.dumps(found))["in_some_sum"] > 0)
    picture = ("attack", "invert", run, "--round", 1, "--iterations", 20, "--starts", 1)
    ended = call(*picture, "--client", client, "--out", tmp_path / "pictures")
    assert ended.code == 0
    assert "PSNR" in ended.out
    assert (tmp_path / "pictures" / f"client-{client}.png").is_file()
    told = json.loads(call(*picture, "--client", client, "--alone", "--format", "json").out)
    assert told["client"] == client
    nobody = call(*picture, "--client", 6)
    assert (nobody.code, nobody.err.count("\n")) == (2, 1)
    assert "--client: 6; there are 6 clients" in nobody.err
