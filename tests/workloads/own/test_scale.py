"""Which data have unscaled features."""

from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
import yaml
from sklearn.preprocessing import StandardScaler

from testbed.cli import main
from testbed.records import RunRecords
from workloads.data.own.scale import unscaled_feature


@pytest.mark.parametrize(("name", "feature"), [("load_wine", "proline"), ("load_breast_cancer", "worst area")])
def test_tables_as_scikit_learn_gives_them_are_unscaled(name: str, feature: str) -> None:
    bunch = getattr(sklearn.datasets, name)()
    found = unscaled_feature(bunch.data, list(bunch.feature_names))
    assert found is not None
    assert found["name"] == feature
    assert found["ratio"] > 100
    assert unscaled_feature(StandardScaler().fit_transform(bunch.data)) is None


def test_images_rare_codes_and_similar_features_are_not() -> None:
    draws = np.random.default_rng(0)
    assert unscaled_feature(sklearn.datasets.load_digits().data) is None
    assert unscaled_feature(sklearn.datasets.load_iris().data) is None
    assert unscaled_feature(draws.integers(0, 256, (50, 28, 28))) is None
    assert unscaled_feature((draws.random((200, 784)) < 0.1) * 255.0) is None
    codes = np.hstack([draws.normal(size=(500, 5)), draws.random((500, 40)) < 0.01])
    assert unscaled_feature(codes) is None


def test_a_run_warns_and_its_records_keep_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = {
        "seed": 1, "rounds": 1, "population": 5, "workload": {"dataset": "sklearn.datasets:load_wine"},
        "selection": {"participants": 2}, "aggregation": {"protocol": "plain"}, "cluster": {"network": "in-process"},
    }  # fmt: skip
    file = tmp_path / "wine.yaml"
    file.write_text(yaml.safe_dump(experiment))
    assert main(["data", "inspect", str(file), "--import-classes"]) == 0
    assert "feature 13 of 13" in " ".join(capsys.readouterr().err.split())
    assert main(["run", str(file), "--out", str(tmp_path / "out")]) == 0
    assert "feature 13 of 13" in " ".join(capsys.readouterr().err.split())
    data = RunRecords(tmp_path / "out").experiment["provenance"]["data"]
    assert data["unscaled_feature"]["name"] == "feature 13 of 13"
    assert data["trained_in_batches"] is True


def test_the_records_of_built_in_data_say_nothing_of_it(tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text("{seed: 1, rounds: 1, population: 5, selection: {participants: 2}, aggregation: {protocol: plain}}")
    assert main(["run", str(file), "--network", "in-process", "--quiet", "--out", str(tmp_path / "out")]) == 0
    assert "data" not in RunRecords(tmp_path / "out").experiment["provenance"]
