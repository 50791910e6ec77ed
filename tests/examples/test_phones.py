"""The examples on the real traces of phones: as their heads say."""

import json
import shutil
from pathlib import Path

import pytest

from testbed.cli import main
from tests.repository import ROOT

EXAMPLES = ROOT / "examples"


def make_traces(shared: Path) -> None:
    """Into the working directory."""
    phones = shared / "traces/availability-phones/cached_timers.json"
    assert main(["trace", "convert", str(phones), "--from", "phone-intervals", "--out", "traces/phones.parquet"]) == 0
    shutil.copytree(shared / "traces/bandwidth-3g", "traces/3g")


def test_the_phones_example_and_its_replay(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_traces(shared)
    small = ["--network", "in-process", "--quiet", "--set", "rounds=3", "--set", "workload.samples_per_client=5"]
    assert main(["run", str(EXAMPLES / "phones.yaml"), "--out", "runs/phones", *small]) == 0
    assert main(["trace", "record", "runs/phones", "--out", "traces/dropouts.parquet"]) == 0
    assert main(["run", str(EXAMPLES / "phones-replayed.yaml"), "--out", "runs/replayed", *small]) == 0
    capsys.readouterr()
    assert main(["compare", "runs/phones", "runs/replayed", "--paired", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["pairs"] for row in rows] == [3, 3]
    assert [row["pairs_identical"] for row in rows] == [3, 3]
    experiment = (tmp_path / "runs/phones/experiment.yaml").read_text()
    assert "traces/phones.parquet: " in experiment  # the digest of the replayed trace
    with open("traces/phones.parquet", "ab") as file:
        file.write(b"more")
    assert main(["run", str(EXAMPLES / "phones.yaml"), "--out", "runs/phones", *small, "--resume"]) == 2
    assert "traces/phones.parquet has changed since this run began" in capsys.readouterr().err


def test_the_asynchronous_example(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_traces(shared)
    small = ["--network", "in-process", "--quiet", "--set", "rounds=2", "--set", "workload.samples_per_client=5"]
    seed = ["--set", "sweep.seed=[1]"]
    assert main(["run", str(EXAMPLES / "asynchronous.yaml"), "--out", "runs/asynchronous", *small, *seed]) == 0
    capsys.readouterr()
    assert main(["compare", "runs/asynchronous", "--format", "json"]) == 0
    seconds = {row["label"]: row["round_s"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert seconds["buffered,plain"] < seconds["synchronous,plain"] / 3
