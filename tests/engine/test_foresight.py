"""Warnings of `testbed validate`, and of `testbed run` before it starts: valid experiments that cannot go well."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.cli import main
from testbed.emulation.availability.expected import online_share
from testbed.emulation.availability.section import Traced
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.selection.supply import Supply

BASE: dict[str, Any] = {
    "seed": 1, "rounds": 1, "population": 20, "workload": {"dataset": "digits", "model": "logistic", "epochs": 5},
    "selection": {"participants": 5}, "aggregation": {"protocol": "plain"}, "cluster": {"network": "in-process"},
}  # fmt: skip
LOTTO = {"protocol": "lotto-client-centric", "participants": 10, "over_selection": 2}
HARDLY_ONLINE = {"model": "bernoulli", "unavailable": 0.905}


def warnings_of(keys: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump(BASE | keys))
    assert main(["validate", str(file)]) == 0
    return [" ".join(line.split()) for line in capsys.readouterr().err.split("warning: ")[1:]]


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"population": 200, "selection": LOTTO, "availability": HARDLY_ONLINE}, "selection.over_selection"),
        ({"availability": HARDLY_ONLINE}, "selection.participants"),
        ({"selection": {"protocol": "batch-partition", "participants": 10, "privacy": 5},
          "availability": {"model": "bernoulli", "unavailable": 0.3}}, "selection.privacy"),
        ({"aggregation": {"protocol": "secagg", "threshold": 0.8}, "availability": {"dropout": {"rate": 0.4}}},
         "aggregation.threshold"),
        ({"aggregation": {"protocol": "secagg", "threshold": 0.8}, "availability": {"dropout": {"hazard": 0.15}}},
         "aggregation.threshold"),
        ({"population": 100, "selection": LOTTO | {"over_selection": 1.3}}, "selection.over_selection"),  # 85 %
        ({"time": {"deadline_s": 0.01}, "links": {"latency_ms": 50}}, "time.deadline_s"),
        ({"time": {"stage_deadlines": {"train": 0.05}}, "links": {"latency_ms": 50}}, "time.stage_deadlines.train"),
        ({"workload": {"dataset": "synthetic-femnist", "samples_per_client": 20, "batch_size": 20, "epochs": 1}},
         "workload.batch_size"),
    ],
)  # fmt: skip
def test_foreseeable_failures_give_one_warning_with_the_key(
    keys: dict[str, Any], key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (warning,) = warnings_of(keys, tmp_path, capsys)
    assert key in warning


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"population": 200, "selection": LOTTO},
        {"population": 200, "selection": LOTTO | {"over_selection": 20}, "availability": HARDLY_ONLINE},
        {"selection": {"protocol": "bernoulli", "participants": 5, "assumed_unavailable": 0.5},
         "availability": {"model": "bernoulli", "unavailable": 0.9}},
        {"aggregation": {"protocol": "secagg", "threshold": 0.6}, "availability": {"dropout": {"rate": 0.1}}},
        {"time": {"deadline_s": 0.2}, "links": {"latency_ms": 50}},
    ],
)  # fmt: skip
def test_nothing_is_said_where_it_can_go_well(
    keys: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert warnings_of(keys, tmp_path, capsys) == []


def test_a_trace_is_read_for_its_mean_share_online(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    AvailabilityTrace.from_rows(range(20), [0.0] * 20, [9.5] * 20, horizon=(0.0, 100.0)).write(trace)
    rows = trace.read_text().splitlines()
    trace.write_text("\n".join([*rows, "20,99.5,100.0", ""]))  # CSV has no horizon of its own
    assert online_share(Traced(path=trace)) == pytest.approx((20 * 0.095 + 0.005) / 21)
    keys = {"population": 200, "selection": LOTTO, "availability": {"model": "trace", "path": str(trace)}}
    (warning,) = warnings_of(keys, tmp_path, capsys)
    assert "9.1%" in warning


def test_the_points_of_a_sweep_are_warned_of_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = {"time": {"deadline_s": 0.01}, "links": {"latency_ms": 50}, "sweep": {"seed": [1, 2, 3]}}
    (warning,) = warnings_of(bad, tmp_path, capsys)
    assert "sweep point" not in warning


def test_availability_is_not_blamed_where_all_clients_are_online(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (warning,) = warnings_of({"population": 100, "selection": LOTTO | {"over_selection": 1.3}}, tmp_path, capsys)
    line = warning.partition(": ")[2]
    assert line.startswith("selection: a round has 13.0 candidates on average and needs 10, with a chance of 85.2%")
    assert "availability" not in line


def test_run_says_it_once_before_the_first_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump(BASE | {"availability": HARDLY_ONLINE, "sweep": {"seed": [1, 2]}}))
    assert main(["run", str(file), "--out", str(tmp_path / "out")]) == 4
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("online on average") == 1


def test_the_probability_of_enough_is_binomial() -> None:
    supply = Supply("candidates", 2, 3, 0.5, ())
    assert (supply.expected, supply.enough) == (1.5, pytest.approx(0.5))
    assert Supply("candidates", 4, 3, 1.0, ()).enough == 0.0
    assert Supply("candidates", 0, 3, 0.0, ()).enough == 1.0


def test_the_trace_of_a_sweep_is_read_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, reads = tmp_path / "trace.csv", list[Path]()
    AvailabilityTrace.from_rows(range(20), [0.0] * 20, [9.5] * 20, horizon=(0.0, 100.0)).write(trace)
    read = AvailabilityTrace.read
    monkeypatch.setattr(AvailabilityTrace, "read", lambda path: reads.append(path) or read(path))
    dropout = {"hazard": {"train": 0.1}}
    keys = {"population": 200, "availability": {"model": "trace", "path": str(trace), "dropout": dropout}}
    warnings_of(keys | {"sweep": {"seed": [1, 2, 3]}}, tmp_path, capsys)
    assert reads == [trace]
