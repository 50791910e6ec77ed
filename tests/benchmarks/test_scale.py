"""The benchmark of large populations, at a small one."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.report import REQUIRED
from benchmarks.scale import growth, line
from benchmarks.scale_runs import PARTS, parts_of
from tests.repository import ROOT


def test_a_line_is_found_through_points_of_very_different_size() -> None:
    n = np.array([1e3, 1e4, 1e5, 1e6])
    constant, slope = line(n, 0.005 + 6e-7 * n)
    assert constant == pytest.approx(0.005)
    assert slope == pytest.approx(6e-7)


def test_parts_of_a_round_add_up_to_it() -> None:
    marks = [("check-in", 10.1), ("train", 12.0), ("plain/update", 15.0), ("record", 15.5)]
    assert parts_of(10.0, marks, 16.0) == {"announce_s": 2.0, "train_s": 3.0, "aggregate_s": 0.5, "record_s": 0.5}
    # A round that is skipped ends after its announcement.
    skipped = parts_of(10.0, [("check-in", 10.1), ("record", 11.0)], 12.0)
    assert skipped == {"announce_s": 1.0, "train_s": 0.0, "aggregate_s": 0.0, "record_s": 1.0}


def test_growth_comes_from_the_two_largest_populations() -> None:
    rows = [
        {"population": n, "announce_s": 0.01 + 1e-6 * n, "record_s": 0.01 + 1e-7 * n, "peak_MB": 2000 + n * 0.0005,
         "hosts_MB": 900 + n * 0.0001, "coordinator_MB": 500 + n * 0.0003}
        for n in (1000, 10_000, 100_000)
    ]  # fmt: skip
    participants = [{"participants": s, "train_s": 0.02 + 1e-3 * s, "aggregate_s": 0.01 + 1e-5 * s} for s in (25, 100)]
    found = growth(rows, participants)
    assert found["announce_us_per_client"] == pytest.approx(1.0)
    assert found["train_us_per_participant"] == pytest.approx(1000)
    assert found["peak_bytes_per_idle_client"] == pytest.approx(500)
    assert found["hosts_bytes_per_idle_client"] == pytest.approx(100)


@pytest.mark.slow
def test_a_population_of_a_thousand_on_ray() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", "--largest", "1000", "--hosts", "1", "--rounds", "2",
         "--participants", "20", "--only-populations", "--format", "json"],
        capture_output=True, text=True, cwd=ROOT, timeout=120, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(REQUIRED) <= result.keys()
    assert result["population"] == 1000
    assert result["seconds"] == pytest.approx(sum(result[part] for part in PARTS), rel=0.5)
    # 20 participants are sent a model of 48,670 float32, and send one back; the others a few bytes.
    assert 2 * 20 * 48_670 * 4 < result["emulated_MB"] * 1e6 < 2 * 20 * 48_670 * 4 * 1.01
    assert result["record_MB"] > 0
    assert 100 < result["hosts_MB"] < result["peak_MB"]
