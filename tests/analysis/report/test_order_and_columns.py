"""The page's order and its tables: the conclusion first, main columns, notes beside their columns, written keys."""

import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from analysis.findings import MOST, Finding
from analysis.report import write
from analysis.report.clients import clients
from analysis.report.render import SECTIONS
from analysis.report.settings import settings
from analysis.report.sheets import Sheet
from testbed.records import RunRecords, find_runs
from testbed.running import run
from tests.analysis.report.pages import facts_of

MakeRun = Callable[..., RunRecords]
PROTOCOLS = ["random", "lotto-client-centric", "batch-partition"]


def facts_from(runs: Sequence[RunRecords], folder: Path, **options: Any) -> dict[str, Any]:
    return facts_of(write(runs, folder / "report.html", **options).read_text(encoding="utf-8"))


def main_heads(sheet: dict[str, Any]) -> list[str]:
    """The heads of the columns that a table shows at first, without their units."""
    return [head.partition(" [")[0] for at, head in enumerate(sheet["heads"]) if at not in sheet["more"]]


@pytest.fixture
def runs(make_run: MakeRun) -> list[RunRecords]:
    return [make_run(name, name, sweep={"selection.protocol": name}, failing={2: "aborted"}) for name in PROTOCOLS]


# -- the order -------------------------------------------------------------------------------------------------------


def test_the_conclusion_comes_first_then_how_then_what_was_run() -> None:
    order = [section.id for section in SECTIONS]
    assert [(part.kind, part.of) for part in SECTIONS[0].parts] == [
        ("headline", ""), ("findings", ""), ("sheet", "overhead"),
    ]  # fmt: skip
    results, how, what = order[:2], order[2:-2], order[-2:]
    assert results == ["results-section", "targets-section"]
    assert {"curves-section", "stages-section", "rounds-section"} <= set(how)
    assert what == ["runs-section", "provenance-section"]


def test_the_first_figure_is_accuracy_over_time_where_a_model_learns(make_run: MakeRun, tmp_path: Path) -> None:
    assert facts_from([make_run("run")], tmp_path)["headline"] == {"kind": "curves", "y": "accuracy", "x": "time_s"}


@pytest.mark.parametrize("every", [None, 10])
def test_else_it_is_the_time_by_stage(make_run: MakeRun, tmp_path: Path, every: int | None) -> None:
    run = make_run("run", accuracy_every=every)
    assert facts_from([run], tmp_path)["headline"] == {"kind": "bars", "y": "duration_s"}


def test_nothing_recorded_has_no_figure(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("run", rounds=3, accuracy_every=None, failing={1: "aborted", 2: "aborted", 3: "aborted"})
    headline = facts_from([run], tmp_path)["headline"]
    assert headline is None or headline["kind"] == "bars"


def test_without_a_completed_round_the_page_says_so_instead_of_bars(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("aborted", rounds=2, failing={1: "aborted", 2: "aborted"}, accuracy_every=None)
    facts = facts_from([run], tmp_path)
    assert facts["headline"] is None
    assert facts["stages"]["stages"] == []
    assert facts["no_stages"]


def test_a_row_without_a_completed_round_is_marked_beside_the_others(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run("fine", rounds=2), make_run("aborted", "batch-partition", rounds=1, failing={1: "aborted"})]
    facts = facts_from(runs, tmp_path)
    assert facts["stages"]["completed"] == [True, False]
    assert facts["no_stages"] == ""


def test_rows_of_one_protocol_are_told_apart_by_colour(make_run: MakeRun, tmp_path: Path) -> None:
    rates = [{"availability.dropout.rate": rate / 20} for rate in range(12)]
    runs = [
        make_run(f"run-{at}", rounds=2, sweep=rate, extra={"availability": {"dropout": {"rate": at / 20}}})
        for at, rate in enumerate(rates)
    ]
    curves = facts_from(runs, tmp_path)["curves"]
    assert len({(one["colour"], one["dash"]) for one in curves}) == len(curves) == 12
    assert len({one["colour"] for one in curves}) > 3


# -- findings --------------------------------------------------------------------------------------------------------


def test_findings_are_on_the_page(runs: list[RunRecords], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Finding(f"code-{at}", f"text {at}", ("random",), ("time.deadline_s",)) for at in range(MOST + 2)]
    monkeypatch.setattr(sys.modules["analysis.report.document"], "findings", lambda *_, **__: found)
    told = facts_from(runs, tmp_path)["findings"]
    assert [one["code"] for one in told] == [one.code for one in found]
    assert all((one["rows"], one["keys"]) == (["random"], ["time.deadline_s"]) for one in told)


def test_without_findings_there_are_none(
    runs: list[RunRecords], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["analysis.report.document"], "findings", lambda *_, **__: [])
    assert facts_from(runs, tmp_path)["findings"] == []


# -- columns and their notes -----------------------------------------------------------------------------------------


def test_the_overhead_table_shows_what_is_usually_read_and_what_varies(runs: list[RunRecords], tmp_path: Path) -> None:
    sheet = facts_from(runs, tmp_path)["sheets"]["overhead"]
    shown = main_heads(sheet)
    usual = ["Protocol", "Round time", "Round time ×", "Server traffic", "Server traffic ×", "Completed", "Accuracy"]
    assert set(usual) <= set(shown)
    assert {"Client time", "Client traffic", "F", "C"}.isdisjoint(shown)
    for column, head in enumerate(sheet["heads"]):
        if head in ("Skipped", "Aborted", "Seeds", "T"):
            varies = len({row[column][1] for row in sheet["rows"]}) > 1
            assert (column not in sheet["more"]) == varies
    assert {"Client time", "F", "C"} <= {head.partition(" [")[0] for head in sheet["heads"]}  # on demand


def test_one_row_has_no_ratios_and_no_note_on_them(make_run: MakeRun, tmp_path: Path) -> None:
    sheet = facts_from([make_run("run")], tmp_path)["sheets"]["overhead"]
    assert not [head for head in main_heads(sheet) if head.endswith("×")]
    assert not [note for note in sheet["notes"] if "×" in note]


def test_a_note_stands_with_the_column_that_it_explains(make_run: MakeRun, tmp_path: Path) -> None:
    runs = []
    for name in PROTOCOLS[:2]:
        for seed in (1, 2, 3):
            sweep = {"selection.protocol": name, "seed": seed}
            runs.append(make_run(f"{name}-{seed}", name, seed=seed, sweep=sweep, failing={2: "aborted"}))
    sheets = facts_from(runs, tmp_path, targets=["60%"])["sheets"]
    for name in ("overhead", "targets"):
        sheet = sheets[name]
        names = {head.partition(" [")[0].removesuffix(" ×") for head in sheet["heads"]}
        explained = {"Per update": "Time per update", "Overhead": "Transport overhead", "F and C": "F"}
        for text, places in sheet["legend"]:
            head = text.partition(":")[0]
            assert places
            assert text.startswith("×") or explained.get(head, head) in names
        for note in sheet["notes"]:
            assert note.partition(":")[0] not in names


def test_the_median_has_its_column_where_a_note_speaks_of_it(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run(f"seed-{seed}", seed=seed, rounds=3 + 4 * seed, sweep={"seed": seed}) for seed in (1, 2, 3)]
    best = min(float(run.rounds["accuracy"].max()) for run in runs)
    for target in ("1%", f"{100 * best + 1}%"):
        sheet = facts_from(runs, tmp_path, targets=[target])["sheets"]["targets"]
        spoken_of = any("Median" in note for note in [*sheet["notes"], *(text for text, _ in sheet["legend"])])
        assert ("Median" in main_heads(sheet)) == spoken_of


def test_accuracies_over_seeds_have_their_interval(make_run: MakeRun, tmp_path: Path) -> None:
    sheet = facts_from([make_run(f"seed-{seed}", seed=seed) for seed in (1, 2, 3)], tmp_path)["sheets"]["overhead"]
    (row,) = sheet["rows"]
    assert "±" in row[sheet["heads"].index("Accuracy")][0]


# -- what was written ------------------------------------------------------------------------------------------------


def recorded_settings(made: list[RunRecords]) -> Sheet:
    return settings(made)[0]


@pytest.fixture
def written_runs(tmp_path: Path) -> list[RunRecords]:
    file = tmp_path / "experiment.yaml"
    experiment = {
        "rounds": 1, "population": 6, "workload": {"dataset": "digits", "model": "logistic"},
        "selection": {"participants": 3}, "aggregation": {"protocol": "plain"},
        "sweep": {"selection.protocol": ["random", "lotto-client-centric"]},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(experiment))
    return find_runs(run(file, tmp_path / "runs", network="in-process"))


def test_runs_differ_by_the_keys_that_were_written(written_runs: list[RunRecords]) -> None:
    sheet = recorded_settings(written_runs)
    assert sheet.heads == ["Run", "selection.protocol"]
    assert any("selection.over_selection" in note for note in sheet.notes)


def test_records_that_do_not_say_which_were_written_leave_defaults_out(written_runs: list[RunRecords]) -> None:
    for made in written_runs:
        del made.experiment["provenance"]["written"]
    assert recorded_settings(written_runs).heads == ["Run", "selection.protocol"]


def test_another_version_has_other_defaults_which_are_told(written_runs: list[RunRecords]) -> None:
    before, _ = written_runs
    now = RunRecords(before.path)
    before.experiment["provenance"]["versions"]["testbed"] = "0.0.1"
    before.experiment["workload"]["momentum"] = 0.123
    assert recorded_settings([before, now]).heads == ["Run", "workload.momentum"]


def test_many_runs_with_the_same_clients_are_called_by_what_they_share(make_run: MakeRun, tmp_path: Path) -> None:
    runs = []
    for latency in (20.0, 50.0):
        table = pd.DataFrame({
            "client": [0, 1], "class": ["", ""], "samples": [5, 7], "device_factor": [1.0, 2.0],
            "down_mbit_s": [44.0, 44.0], "up_mbit_s": [44.0, 44.0], "latency_ms": [latency, latency],
        })  # fmt: skip
        for place in range(18):
            made = make_run(f"run-{latency:g}-{place}", rounds=1, seed=place, latency_ms=latency)
            made.__dict__["clients"] = table
            runs.append(made)
    sheet = clients(runs)
    assert sheet is not None
    assert [row[0][0] for row in sheet.rows] == [
        f"18 runs: links.latency_ms={latency}" for latency in (20, 50)
    ]  # fmt: skip


# -- repeating -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["runs/report.html", "elsewhere/deep/report.html", "runs/random/report.html"])
def test_the_command_repeats_the_run_in_the_folder_of_the_page(
    written_runs: list[RunRecords], tmp_path: Path, place: str
) -> None:
    page = write(written_runs, tmp_path / place)
    commands = [one["command"] for one in facts_of(page.read_text(encoding="utf-8"))["provenance"]["runs"]]
    program, verb, *arguments = shlex.split(commands[0])
    assert not [argument for argument in arguments if argument.startswith("/")]
    if place == "runs/report.html":
        call = [sys.executable, "-m", program, verb, *arguments, "--quiet", "--network", "in-process"]
        done = subprocess.run(call, cwd=page.parent, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
    else:
        assert (page.parent / arguments[0]).is_file()
    again = page.parent / arguments[arguments.index("--out") + 1]
    assert again.resolve() == written_runs[0].path.with_name(f"{written_runs[0].path.name}-again").resolve()


def test_files_by_relative_paths_are_read_where_they_are(
    written_runs: list[RunRecords], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for made in written_runs:
        made.experiment["provenance"]["files"] = {"traces/phones.csv": "0" * 64}
    page = write(written_runs, tmp_path / "out" / "report.html")
    commands = [one["command"] for one in facts_of(page.read_text(encoding="utf-8"))["provenance"]["runs"]]
    assert all(command.startswith("cd .. && testbed run runs/") for command in commands)


def test_files_by_relative_paths_are_looked_for_above_the_run(
    written_runs: list[RunRecords], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("traces/phones.csv", "mine.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for made in written_runs:
        made.experiment["provenance"]["files"] = {"traces/phones.csv": "0" * 64}
        made.experiment["provenance"]["modules"] = {"mine.py": "0" * 64, "torch": "version 2.14"}
    page = write(written_runs, tmp_path / "elsewhere" / "report.html")
    commands = [one["command"] for one in facts_of(page.read_text(encoding="utf-8"))["provenance"]["runs"]]
    assert all(command.startswith("cd .. && testbed run runs/") for command in commands)


def test_a_run_without_a_seed_is_not_called_repeatable(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run("seeded", seed=1, rounds=1), make_run("unseeded", seed=None, rounds=1)]
    assert [one["repeatable"] for one in facts_from(runs, tmp_path)["provenance"]["runs"]] == [True, False]


def test_what_all_runs_share_stands_once(written_runs: list[RunRecords], tmp_path: Path) -> None:
    told = facts_from(written_runs, tmp_path)["provenance"]
    common = {name for name, _ in told["common"]}
    assert "versions.testbed" in common
    assert all(common.isdisjoint(name for name, _ in one["facts"]) for one in told["runs"])
