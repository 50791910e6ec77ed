"""Speed factors from tables of measured devices."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from scipy.stats import binomtest, kstest, lognorm

from testbed.emulation.devices import Devices, read_device_factors, speed_factors
from testbed.errors import TraceError
from tests.messages_named import naming

SUSPICIOUS = 1e-4
PHONES = [
    {"Phone Model": "a", "Vit Latency": 300.0, "ResNet Latency": 50},
    {"Phone Model": "b", "ResNet Latency": 0.0},
    {"Phone Model": "c", "ResNet Latency": 200.0},
    {"Phone Model": "d", "ResNet Latency": None},
]
SCORES = [{"Model": "a", "AI_Score": " 8000 1,6"}, {"Model": "b", "AI_Score": "2000"}]


def drawn(population: int, seed: int = 1, **section: Any) -> np.ndarray:
    return speed_factors(Devices.model_validate(section), population, np.random.default_rng(seed))


def test_latencies_and_scores(tmp_path: Path) -> None:
    phones, scores = tmp_path / "phones.json", tmp_path / "scores.json"
    phones.write_text(json.dumps(PHONES))
    scores.write_text(json.dumps(SCORES))
    assert read_device_factors(phones, "ResNet Latency").tolist() == [1.0, 4.0]
    assert read_device_factors(scores, "AI_Score").tolist() == [1.0, 4.0]
    assert read_device_factors(scores, "AI_Score", larger_is_faster=False).tolist() == [4.0, 1.0]


@pytest.mark.parametrize(
    ("column", "factors"),
    [("latency_ms", [1, 3]), ("time", [1, 3]), ("ms", [1, 3]), ("Seconds", [1, 3]), ("score", [3, 1]),
     ("images/s", [3, 1]), ("FLOPS", [3, 1]), ("throughput_fps", [3, 1])],
)  # fmt: skip
def test_the_name_of_the_column_says_which_way_it_goes(tmp_path: Path, column: str, factors: list[float]) -> None:
    path = tmp_path / "table.csv"
    path.write_text(f"phone,{column}\na,10\nb,30\n")
    assert read_device_factors(path, column).tolist() == factors


@pytest.mark.parametrize("column", ["accuracy", "memory", "points", "speed over time", "items"])
def test_a_name_that_does_not_say_is_asked_about(tmp_path: Path, column: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(f"phone,{column}\na,10\nb,30\n")
    with pytest.raises(TraceError, match=naming("devices.larger_is_faster", "true", "false")):
        read_device_factors(path, column)
    assert read_device_factors(path, column, larger_is_faster=True).tolist() == [3, 1]


def test_each_client_has_a_device_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"latency": [20.0, 5.0, None, 10.0]}), path)
    section = {"model": "table", "path": path, "column": "latency", "fastest": 20}
    factors = drawn(9000, **section)
    for factor in (20, 40, 80):
        assert binomtest(int((factors == factor).sum()), 9000, 1 / 3).pvalue > SUSPICIOUS
    assert set(factors.tolist()) == {20, 40, 80}
    assert factors.tobytes() == drawn(9000, **section).tobytes() != drawn(9000, 2, **section).tobytes()
    assert drawn(0, **section).shape == (0,)


@pytest.mark.parametrize(
    ("file", "column", "devices", "slowest"),
    [
        ("training_latency.json", "ResNet Latency", 978, 376.75),
        ("training_latency.json", "Vit Latency", 21, 5.05),
        ("flash_ai_benchmark.json", "AI_Score", 333, 359.46),
        ("flash_ai_benchmark.json", "CPU_F_AI_Score", 333, 41.05),
    ],
)
def test_the_published_tables(shared: Path, file: str, column: str, devices: int, slowest: float) -> None:
    factors = read_device_factors(shared / "traces/devices" / file, column)
    assert len(factors) == devices
    assert factors.min() == 1
    assert factors.max() == pytest.approx(slowest, abs=0.01)


def test_log_normal() -> None:
    factors = drawn(20_000, model="log-normal", sigma=0.8)
    assert kstest(factors, lognorm(0.8).cdf).pvalue > SUSPICIOUS
    assert (drawn(50, model="log-normal", median=3, sigma=0) == 3).all()
    assert drawn(50, model="log-normal").tobytes() != drawn(50, 2, model="log-normal").tobytes()


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({"model": "table", "column": "x"}, "the model table needs `path`"),
        ({"model": "table", "path": "x.csv"}, "the model table needs `column`"),
        ({"model": "log-normal", "sigma": -1}, "greater than or equal to 0"),
        ({"model": "log-normal", "median": 0}, "greater than 0"),
        ({"larger_is_faster": "no idea"}, "auto"),
    ],
)
def test_sections_that_mean_nothing(section: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Devices.model_validate(section)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("phone,latency\na,3\nb,-1\n", "row 2: latency is -1; no latency or score is negative"),
        ("phone,latency\na,0\nb,0\n", "latency is 0 in every row; choose a column of latencies or scores"),
        ("phone,latency\na,1e-300\nb,1e300\n", "latency: values from 1e-300 to 1e+300 are too far apart"),
        ("phone,latency\na,\nb,\n", "no row has a value in 'latency'; the table needs at least one"),
        ("phone,score\na,1\n", "no column 'latency'; there are 'phone', 'score'"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        drawn(3, model="table", path=path, column="latency")
    assert str(caught.value) == f"{path}: {complaint}"
