"""`testbed reproduce`: the real command, with a reproduction that takes seconds."""

import contextlib
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.reproduction import catalogue, presentation
from analysis.reproduction.kept import kept_result
from analysis.reproduction.lotto.overhead import SCALES, OverheadScale
from testbed.cli import main
from testbed.durations import rounded_duration
from testbed.running.observers import Serialised
from tests.messages_named import naming

TINY = OverheadScale(
    ("FEMNIST",), {12: 4}, {"FEMNIST": 2}, workload={"dataset": "digits", "model": "logistic", "samples_per_client": 20}
)
Call = Callable[..., Any]
ARGUMENTS = ("reproduce", "lotto-table2", "--network", "in-process", "--quiet", "--out")

pytestmark = pytest.mark.xdist_group("reproduce")  # in one process, which makes the table once


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lotto's Table 2 with 12 clients, logistic regression on digits, and two rounds."""
    monkeypatch.setitem(SCALES, "small", TINY)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The table made: its directory, and what was printed."""
    out = tmp_path_factory.mktemp("finished") / "out"
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setitem(SCALES, "small", TINY)
        assert main([*ARGUMENTS, str(out)]) == 0
    return out, printed.getvalue()


@pytest.fixture
def copied(finished: tuple[Path, str], tmp_path: Path) -> Path:
    """The finished directory, to resume."""
    shutil.copytree(finished[0], tmp_path / "out")
    return tmp_path / "out"


def _reproduce(call: Call, out: Path, *more: str) -> Any:
    return call(*ARGUMENTS, out, *more)


def test_list_says_what_there_is_in_every_format(call: Call) -> None:
    names = list(catalogue.catalogue())
    text = call("reproduce", "--list")
    assert text.code == 0
    assert all(name in text.out for name in names)
    assert [row["name"] for row in json.loads(call("reproduce", "--list", "--format", "json").out)] == names
    assert call("reproduce", "--list", "--format", "markdown").out.count("\n") == len(names) + 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lotto-tabel2"], "did you mean lotto-table2"),
        (["qqqq"], "there are lotto-fig1b, "),
        ([], "testbed reproduce --list"),
        (["lotto-table2", "--scale", "real"], "--scale real: lotto-table2: no such scale; there are small and paper"),
        (["lotto-table2", "--seeds", "2"], "--seeds: lotto-table2: the repetitions are fixed; leave --seeds out"),
    ],
)
def test_bad_names_are_one_line(call: Call, arguments: list[str], said: str) -> None:
    ended = call("reproduce", *arguments)
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert said in ended.errors[0]


def test_a_table_is_made_printed_and_written(finished: tuple[Path, str]) -> None:
    out, printed = finished
    assert "Cli-Ctr, silent" in printed
    assert "judged by" in printed
    table = pd.read_csv(out / "table.csv")
    assert len(table) == 10  # two tables of costs, five protocols
    rand = table[table["protocol"] == "Rand"]
    assert (rand["server ×"] == 1).all()
    assert (table["server min"] > 0).all()
    # Everything that the authors' code does takes longer than the same here.
    minutes = table.pivot(index="protocol", columns="costs", values="server min")
    assert (minutes["authors"] > minutes["testbed"]).all()


@pytest.mark.usefixtures("tiny")
def test_what_is_finished_is_not_run_again(call: Call, finished: tuple[Path, str], copied: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in copied.rglob("*.parquet")}
    again = _reproduce(call, copied)
    assert files
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*.parquet")} == files
    assert again.out == finished[1]


@pytest.mark.usefixtures("tiny")
def test_one_that_was_stopped_goes_on(
    call: Call, finished: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progressed, heard = Serialised.progressed, 0

    def stop_after_a_while(self: Serialised, run: Any, progress: Any) -> None:
        nonlocal heard
        heard += 1
        if heard == 40:
            raise KeyboardInterrupt
        progressed(self, run, progress)

    monkeypatch.setattr(Serialised, "progressed", stop_after_a_while)
    stopped = _reproduce(call, tmp_path / "stopped")
    assert stopped.code == 130
    assert "resume with: testbed reproduce lotto-table2" in stopped.err
    assert not (tmp_path / "stopped" / "result.md").exists()
    monkeypatch.undo()
    monkeypatch.setitem(SCALES, "small", TINY)
    resumed = _reproduce(call, tmp_path / "stopped")
    assert resumed.code == 0, resumed.err
    assert resumed.out == finished[1]


@pytest.mark.usefixtures("tiny")
def test_another_experiment_in_the_directory_is_one_line(
    call: Call, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = replace(TINY, rounds={"FEMNIST": 3})
    monkeypatch.setitem(SCALES, "small", longer)
    ended = _reproduce(call, copied)
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert "give another --out" in ended.errors[0]


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("names", "where"), [(["lotto-table2"], "file"), (["lotto-table2", "lotto-fig2"], "file/deep")]
)
def test_a_directory_that_cannot_be_made_is_said_before_anything_runs(
    call: Call, tmp_path: Path, names: list[str], where: str
) -> None:
    (tmp_path / "file").write_text("no directory")
    ended = call("reproduce", *names, "--network", "in-process", "--out", tmp_path / where)
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert ended.errors[0].startswith(f"error: --out: {tmp_path / where}")
    assert "lotto-table2: " not in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    "result",
    [None, "no json", "[]", '{"name": "lotto-table3", "scale": "small"}', '{"name": "lotto-table2", "scale": "paper"}'],
)
def test_what_another_has_written_is_not_overwritten(call: Call, tmp_path: Path, result: str | None) -> None:
    (tmp_path / "result.md").write_text("my notes")
    if result is not None:
        (tmp_path / "result.json").write_text(result)
    ended = _reproduce(call, tmp_path)
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert re.search(naming("--out", tmp_path / "result.md", "lotto-table2", "scale small"), ended.errors[0])
    assert (tmp_path / "result.md").read_text() == "my notes"
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("tiny")
def test_json_is_all_that_standard_output_holds(call: Call, copied: Path) -> None:
    ended = _reproduce(call, copied, "--format", "json")
    assert json.loads(ended.out) == json.loads((copied / "result.json").read_text())


@pytest.mark.usefixtures("tiny")
def test_a_key_set_by_hand_holds_in_every_experiment_and_is_said(
    call: Call, finished: tuple[Path, str], tmp_path: Path
) -> None:
    ended = _reproduce(call, tmp_path / "out", "--set", "links.transport=none", "--format", "json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["remarks"][0] == "Set by hand, in all experiments: links.transport=none."
    faster, table = (pd.read_csv(out / "table.csv") for out in (tmp_path / "out", finished[0]))
    assert (faster["server min"] < table["server min"]).all()  # there are no connections to open
    assert (faster["server MB"] == table["server MB"]).all()


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("name", "override", "said"),
    [
        ("lotto-table2", "links.transprot=none", "links.transprot"),
        ("lotto-table2", "nothing", "key=value"),
        ("lotto-fig4", "links.transport=none", "lotto-fig4 runs no experiment"),
    ],
)
def test_a_key_that_cannot_be_set_is_one_line(call: Call, tmp_path: Path, name: str, override: str, said: str) -> None:
    out = tmp_path / "out"
    ended = call("reproduce", name, "--network", "in-process", "--quiet", "--out", out, "--set", override)
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert said in ended.errors[0]
    assert not (out / "result.md").exists()


def test_how_long_it_takes_is_measured_or_said_to_be_unknown() -> None:
    (table2,) = catalogue.named(["lotto-table2"])
    last = kept_result(table2)
    assert last is not None
    took = rounded_duration(last.origin.seconds)
    assert presentation.expected_length(table2, last.scale).startswith(f"about {took} on {last.origin.cpus} cores")
    other = presentation.expected_length(table2, "paper")
    assert "not measured" in other
    assert f"--scale {last.scale} took {took}" in other
