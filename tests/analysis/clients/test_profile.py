"""What the clients of an experiment hold and are like: as a run records it, and drawn."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.clients.profile import label_skew, profile, report
from analysis.figures.client_data import draw
from analysis.report.clients import clients as in_report
from testbed.cli import main
from testbed.experiment import Experiment
from testbed.records import find_runs
from tests.thoroughness import examples

EXPERIMENT: dict[str, Any] = {
    "name": "phones", "seed": 4, "rounds": 1, "population": 12,
    "workload": {"partition": {"scheme": "label-shards", "shards_per_client": 1}, "model": "logistic"},
    "selection": {"participants": 4}, "aggregation": {"protocol": "plain"}, "cluster": {"network": "in-process"},
    "devices": {"model": "zipf", "fastest": 1.0, "slowest": 10.0}, "links": {"up_mbit_s": [1, 5, 9]},
    "classes": {"old": {"share": 0.25, "device": 20}, "new": {}},
}  # fmt: skip


def test_it_is_what_a_run_records(tmp_path: Path) -> None:
    experiment = Experiment.model_validate(EXPERIMENT)
    found = profile(experiment, 4)
    (tmp_path / "phones.yaml").write_text(json.dumps(EXPERIMENT))
    assert main(["run", str(tmp_path / "phones.yaml"), "--out", str(tmp_path / "runs"), "--quiet"]) == 0
    (run,) = find_runs(tmp_path / "runs")
    recorded = run.clients.reset_index(drop=True)
    for column in ("samples", "device_factor", "down_mbit_s", "up_mbit_s", "latency_ms"):
        assert np.allclose(found.clients[column], recorded[column]), column
    assert found.clients["class"].tolist() == recorded["class"].tolist()
    assert found.clients["class"].value_counts().to_dict() == {"new": 9, "old": 3}
    assert found.labels.groupby("client")["samples"].sum().tolist() == found.clients["samples"].tolist()
    assert found.clients["labels"].max() <= 3
    assert found.clients["label_skew"].min() > 0.5
    sheet = in_report([run, run])
    assert sheet is not None
    shown = [[cell[0] for cell in row] for row in sheet.rows]
    assert [row[:3] for row in shown] == [["all", "new", "9"], ["all", "old", "3"]]
    assert shown[1][4] == "20"
    assert shown[0][6] == "5 (1 to 9)"
    told = report(found, "text")
    assert "12 clients, 1,438 training samples" in told
    assert "Medians by class" in told
    assert len(pd.read_csv(io.StringIO(report(found, "csv")))) == 12
    as_json = json.loads(report(found, "json"))
    assert np.sum(as_json["label_counts"]) == 1438


def test_unequal_sizes_are_shown() -> None:
    unequal = {"scheme": "dirichlet", "sizes": "dirichlet", "minimum_samples": 5}
    found = profile(Experiment.model_validate({**EXPERIMENT, "workload": {"partition": unequal}}), 4)
    least, most = found.clients["samples"].min(), found.clients["samples"].max()
    assert 5 <= least < 60 < 200 < most
    (row,) = (line.split() for line in report(found, "text").splitlines() if line.startswith("samples "))
    assert (row[1], row[3]) == (str(least), str(most))


@settings(max_examples=examples(50))
@given(arrays(np.int64, (5, 4), elements=st.integers(0, 50)))
def test_skew_is_between_nothing_and_one_and_none_where_all_are_alike(counts: np.ndarray) -> None:
    skew = label_skew(counts)
    assert np.isnan(skew).tolist() == (counts.sum(axis=1) == 0).tolist()
    assert ((skew >= 0) & (skew < 1))[~np.isnan(skew)].all()
    same = label_skew(np.tile(counts[:1] + 1, (3, 1)) * np.array([[1], [2], [5]]))
    assert np.allclose(same, 0)


def test_skew_by_hand() -> None:
    assert label_skew(np.array([[4, 0], [0, 4]])).tolist() == [0.5, 0.5]
    assert label_skew(np.array([[3, 1], [1, 3]])).tolist() == [0.25, 0.25]
    assert np.allclose(label_skew(10 * np.eye(10, dtype=np.int64)), 0.9)


@pytest.mark.parametrize(
    ("population", "workload", "files"),
    [
        (12, {}, ["clients", "labels"]),
        (60, {}, ["clients", "labels"]),
        (5, {"dataset": "synthetic-reddit", "model": "albert-small"}, ["clients"]),
    ],
)
def test_it_is_drawn_with_its_data(
    population: int, workload: dict, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = EXPERIMENT | {"population": population, "workload": workload or EXPERIMENT["workload"]}
    (tmp_path / "phones.yaml").write_text(json.dumps(changed))
    assert main(["data", "inspect", str(tmp_path / "phones.yaml"), "--out", str(tmp_path / "figures")]) == 0
    captured = capsys.readouterr()
    assert ("label skew" in captured.out) == ("labels" in files)
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(
        f"{name}.{kind}" for name in files for kind in ("png", "pdf", "csv")
    )
    assert len(pd.read_csv(tmp_path / "figures" / "clients.csv")) == population


def test_of_a_sweep_the_first_point_and_without_a_seed_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = {key: value for key, value in EXPERIMENT.items() if key != "seed"}
    swept = changed | {"sweep": {"workload.partition.shards_per_client": [1, 2]}}
    (tmp_path / "phones.yaml").write_text(json.dumps(swept))
    assert main(["data", "inspect", str(tmp_path / "phones.yaml")]) == 0
    told = capsys.readouterr().err
    assert "the first of 2 points of the sweep" in told
    assert "has no seed; seed 0" in told
    (tmp_path / "phones.yaml").write_text(json.dumps(EXPERIMENT | {"population": 5000}))
    assert main(["data", "inspect", str(tmp_path / "phones.yaml")]) == 2
    assert "clients would hold fewer than minimum_samples" in capsys.readouterr().err


def test_the_same_picture_twice_is_the_same_file(tmp_path: Path) -> None:
    found = profile(Experiment.model_validate(EXPERIMENT), 4)
    first, second = (draw(found, tmp_path / name, 2, ("png",)) for name in ("a", "b"))
    assert [one.read_bytes() for one in first] == [one.read_bytes() for one in second]
