"""``testbed privacy``, ``testbed bound privacy``, and what ``testbed run`` says of a privacy budget."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from analysis.report.settings import settings
from testbed.aggregation.kit.ring_elements import noise_of
from testbed.engine.plan import RunPlan
from testbed.experiment.schema import validated
from testbed.privacy.noise import Noise
from testbed.records import RunRecords
from tests.fingerprints import fingerprint
from tests.repository import ROOT

EXAMPLES = ROOT / "examples"
NOISE: dict[str, Any] = {
    "rounds": 12,
    "aggregation": {"protocol": "own_noise:GaussianSums", "participants": 4, "noise_multiplier": 5.0},
}
Call = Callable[..., Any]
Written = Callable[..., Path]


@pytest.fixture(autouse=True)
def own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.fixture
def ran(ran: Callable[..., Path]) -> Callable[..., Path]:
    """Copy a finished run of the small experiment with noise; returns the copy's directory."""
    return lambda name="run", **changes: ran(name, **NOISE | changes)


def test_text_says_what_was_spent_and_what_selection_guarantees(call: Call, ran: Callable[..., Path]) -> None:
    path = ran()
    ended = call("privacy", "--import-classes", path)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == "small: gaussian, protects a client, delta 0.0125"
    assert lines[1] == "  12 of 12 rounds, 8 of 8 clients charged"
    table = pd.read_parquet(path / "privacy.parquet")
    largest = table.groupby("client")[["epsilon", "planned_epsilon"]].last().max()
    said = {line.split()[0]: line.split() for line in lines[3:] if line.strip()}
    assert said["achieved"][-1] == f"{largest['epsilon']:.4g}"
    assert said["planned"][-1] == f"{largest['planned_epsilon']:.4g}"
    assert said["honest"][:3] == ["honest", "but", "curious"]
    assert "the server selects the victim and 0 dishonest clients in every round" in ended.out


def test_rounds_in_text(call: Call, ran: Callable[..., Path]) -> None:
    path = ran()
    ended = call("privacy", "--import-classes", path, "--every", 5)
    block = ended.out[ended.out.index("by round") :].splitlines()
    assert [line.split()[0] for line in block[1:5]] == ["round", "5", "10", "12"]


def test_json_holds_every_round(call: Call, ran: Callable[..., Path]) -> None:
    path = ran(privacy={"delta": 0.001, "budget": 50.0})
    (found,) = json.loads(call("privacy", "--import-classes", path, "--format", "json").out)
    table = pd.read_parquet(path / "privacy.parquet")
    assert [row["round"] for row in found["by_round"]] == list(range(1, 13))
    for row in found["by_round"]:
        until = table[table["round"] <= row["round"]].groupby("client").last()
        assert row["epsilon_max"] == until["epsilon"].max()
        assert row["epsilon_median"] == until["epsilon"].median()
        assert row["charged"] == (table["round"] == row["round"]).sum()
    assert (found["mechanism"], found["unit"], found["delta"]) == ("gaussian", "client", 0.001)
    assert (found["budget"], found["stopped"], found["clients"]) == (50.0, None, 8)
    assert found["epsilon_largest"] == table["epsilon"].max()
    assert found["epsilon_least"] <= found["epsilon_median"] <= found["epsilon_largest"]
    assert [row["server"] for row in found["guarantees"]] == ["honest but curious", "malicious"]
    summary = json.loads((path / "summary.json").read_text())
    assert summary["epsilon_max"] == found["epsilon_largest"]
    assert summary["planned_epsilon_max"] == found["planned_epsilon_largest"]
    assert (summary["privacy_delta"], summary["privacy_clients"], summary["stopped"]) == (0.001, 8, None)


def test_a_sweep_in_markdown_and_figures(call: Call, ran: Callable[..., Path], tmp_path: Path) -> None:
    path = ran(sweep={"aggregation.noise_multiplier": [4.0, 8.0]}, privacy={"budget": 40.0})
    ended = call("privacy", "--import-classes", path, "--format", "markdown", "--figures", tmp_path / "figures")
    assert ended.code == 0
    table = [line for line in ended.out.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert rows[0][:3] == ["Run", "Mechanism", "Unit"]
    assert len(rows) == 4
    assert float(rows[2][7]) > float(rows[3][7])  # less noise, more epsilon
    assert (tmp_path / "figures" / "privacy.png").stat().st_size > 10_000
    assert (tmp_path / "figures" / "privacy.pdf").is_file()
    assert "written: " in ended.err


def test_a_run_without_noise_is_told_so(call: Call, ran: Callable[..., Path]) -> None:
    path = ran(aggregation={"protocol": "plain"})
    ended = call("privacy", "--import-classes", path)
    assert ended.code == 2
    assert ended.errors == [
        f"error: {path}: no run here adds noise, so there is no privacy ledger; see aggregation.noise"
    ]
    assert "epsilon_max" not in json.loads((path / "summary.json").read_text())


def test_a_spent_budget_is_one_line_then_and_when_resumed(call: Call, written: Written, tmp_path: Path) -> None:
    file, out = written(**NOISE, privacy={"budget": 1.9}), tmp_path / "out"
    ended = call("run", file, "--out", out)
    assert ended.code == 0
    rounds = len(pd.read_parquet(out / "rounds.parquet"))
    assert 0 < rounds < 12
    last = next(line for line in ended.errors if line.startswith(f"small: {rounds} completed"))
    assert "stopped: privacy budget: client " in last
    assert "of 1.9 (delta 0.0125), another round may take it to " in last
    before = fingerprint(out)
    again = call("run", file, "--out", out, "--resume")
    assert again.code == 0
    assert again.errors[0].startswith(f"small: stopped before, after round {rounds} of 12: privacy budget: client ")
    assert fingerprint(out) == before
    (out / "summary.json").unlink()  # killed before it was written
    assert call("run", file, "--out", out, "--resume").code == 0
    assert fingerprint(out) == before
    assert json.loads((out / "summary.json").read_text())["stopped"].startswith("privacy budget: client ")
    status = call("status", out)
    assert "finished" in status.out
    assert "stopped   privacy budget: client " in status.out
    compared = " ".join(call("compare", out).out.split())
    assert f"{rounds}/0/0 of 12" in compared
    assert "Stopped at the privacy budget, before the last of the planned rounds: " in compared
    assert "Unfinished" not in compared
    text = call("privacy", "--import-classes", out).out
    assert "  budget 1.9: privacy budget: client " in text


def test_another_budget_does_not_go_on_with_it(call: Call, written: Written, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert call("run", written(**NOISE, privacy={"budget": 1.9}), "--out", out, "--quiet").code == 0
    ended = call("run", written(**NOISE, privacy={"budget": 9.0}), "--out", out, "--resume", "--quiet")
    assert ended.code == 2
    assert "privacy.budget: 1.9, the experiment has 9.0" in ended.err


@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        ({"delta": 0.0}, "privacy.delta"),
        ({"delta": 1.0}, "privacy.delta"),
        ({"budget": 0}, "privacy.budget"),
        ({"budget": -1}, "privacy.budget"),
        ({"spend": 3}, "privacy.spend"),
        ({"budget": 0.1}, "privacy.budget: 0.1 is less than one round may cost"),
    ],
)
def test_bad_input_is_one_line(
    privacy: dict[str, Any], said: str, call: Call, written: Written, tmp_path: Path
) -> None:
    line = call("run", written(**NOISE, privacy=privacy), "--out", tmp_path / "out", "--quiet").line(2)
    assert said in line
    assert not (tmp_path / "out").exists()


def test_warnings(call: Call, written: Written, tmp_path: Path) -> None:
    loose = call("run", written(**NOISE, privacy={"delta": 0.2}), "--out", tmp_path / "loose")
    assert loose.code == 0
    assert loose.errors[0] == (
        "small: warning: privacy.delta: 0.2 is not below 1/8, one over the number of clients: a mechanism that "
        "publishes one client's data would be as private; take at most 0.0125"
    )
    tight = call("run", written(**NOISE, privacy={"delta": 0.1}), "--out", tmp_path / "tight")
    assert "warning:" not in tight.err
    none = call("run", written(privacy={"delta": 0.1}), "--out", tmp_path / "none")
    assert none.errors[0].startswith("small: warning: privacy: this aggregation adds no noise")


def test_guarantees_of_an_experiment_that_was_never_run(call: Call, written: Written) -> None:
    file = written(**NOISE)
    ended = call("bound", "privacy", "--import-classes", file)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[0] == str(file)
    (found,) = json.loads(call("bound", "privacy", "--import-classes", file, "--format", "json").out)
    assert (found["selection"], found["planned_rounds"], found["delta"]) == ("random", 12, 1 / 80)
    curious, malicious = found["guarantees"]
    assert curious["epsilon"] < malicious["epsilon"]
    assert malicious["rounds"] == 12
    swept = written(**NOISE, sweep={"rounds": [5, 10]})
    rows = json.loads(call("bound", "privacy", "--import-classes", swept, "--format", "json").out)
    assert [row["planned_rounds"] for row in rows] == [5, 10]
    refused = call("bound", "privacy", written())
    assert refused.code == 2
    assert "aggregation plain adds no noise" in refused.err


def test_the_noise_that_was_found_for_an_epsilon_is_told(call: Call, written: Written, tmp_path: Path) -> None:
    """The file says an epsilon; how much noise that takes was told nowhere."""
    noise = {"mechanism": "skellam", "epsilon": 3.0, "clip": 1.0}
    file, out = written(aggregation={"protocol": "plain", "weights": "equal", "noise": noise}), tmp_path / "out"
    assert call("run", file, "--out", out, "--quiet").code == 0
    run = RunRecords(out)
    multiplier = run.experiment["provenance"]["noise_multiplier"]
    plan, model = RunPlan(validated(run.experiment, ""), 0), run.model
    assert model is not None
    section = noise_of(plan.experiment.aggregation)
    assert isinstance(section, Noise)
    assert multiplier == section.multiplier(plan.maximum_participants, len(model))
    assert run.experiment["aggregation"]["noise"]["noise_multiplier"] is None  # as it was written
    line = f"  noise multiplier {multiplier:.4g}, computed for epsilon 3"
    assert line in call("privacy", out).out.splitlines()
    assert line in call("bound", "privacy", file).out.splitlines()
    (row,) = json.loads(call("privacy", out, "--format", "json").out)
    (planned,) = json.loads(call("bound", "privacy", file, "--format", "json").out)
    assert row["noise_multiplier"] == planned["noise_multiplier"] == multiplier
    assert f"| {multiplier:.4g} |" in call("privacy", out, "--format", "markdown").out
    assert json.loads((out / "summary.json").read_text())["noise_multiplier"] == multiplier
    _, common = settings([run])
    assert ["noise multiplier", str(multiplier)] in [[row[0][0], row[1][0]] for row in common.rows]
    before = (out / "experiment.yaml").read_bytes()
    assert call("run", file, "--out", out, "--resume", "--quiet").code == 0
    assert (out / "experiment.yaml").read_bytes() == before


def test_points_without_noise_are_named_beside_the_others(call: Call, written: Written, tmp_path: Path) -> None:
    noise = {"mechanism": "skellam", "noise_multiplier": 1.0}
    sweep = {"aggregation": [{"protocol": "plain"}, {"protocol": "plain", "weights": "equal", "noise": noise}]}
    assert call("run", written(sweep=sweep), "--out", tmp_path / "runs", "--quiet").code == 0
    ended = call("privacy", "--import-classes", tmp_path / "runs")
    assert (ended.code, ended.err) == (0, "")
    assert "skellam, protects a client" in ended.out
    assert ended.out.endswith(": adds no noise, so nothing is private\n")
    rows = json.loads(call("privacy", "--import-classes", tmp_path / "runs", "--format", "json").out)
    assert [row["mechanism"] for row in rows] == ["skellam", None]
    plain = next(path for path in (tmp_path / "runs").iterdir() if not (path / "privacy.parquet").exists())
    alone = call("privacy", "--import-classes", plain)
    assert (alone.code, alone.errors) == (
        2, [f"error: {plain}: no run here adds noise, so there is no privacy ledger; see aggregation.noise"],
    )  # fmt: skip


@pytest.mark.parametrize("rows", [0, 5])
def test_a_ledger_that_lacks_rows_is_no_ledger(call: Call, ran: Callable[..., Path], rows: int) -> None:
    file = ran() / "privacy.parquet"
    table = pq.read_table(file)
    file.unlink()
    if rows:
        pq.write_table(table.slice(0, rows), file)
    ended = call("privacy", "--import-classes", file.parent)
    errors = [line for line in ended.errors if not line.startswith("note: 1 of 1 runs")]  # what we wrote has no digest
    assert (ended.code, ended.out, len(errors)) == (2, "", 1)
    assert "the privacy ledger (privacy.parquet) lacks " in errors[0]


def test_a_delta_that_promises_nothing_is_said_also_when_quiet_and_beforehand(
    call: Call, written: Written, tmp_path: Path
) -> None:
    file = written(**NOISE, privacy={"delta": 0.5})
    quiet = call("run", file, "--out", tmp_path / "run", "--quiet")
    assert quiet.code == 0
    assert quiet.err.count("warning: privacy.delta: 0.5 is not below 1/8") == 1
    assert "warning: " in call("bound", "privacy", "--import-classes", file).err
