"""`python -m benchmarks` keeps results and names failures; two of its files can be compared."""

import importlib
import json
import subprocess

import pytest

from benchmarks import __main__ as table_of_all
from benchmarks import compare, results
from benchmarks.works import WORKS, Work
from testbed.errors import TestbedError
from tests.messages_named import naming

FIGURES = {"seconds": 2.0, "floor_seconds": 1.0, "ratio": 2.0}


def figures(**changed):
    return {**FIGURES, "command": "python -m benchmarks.x", "processor": "P", **changed}


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_every_row_names_a_benchmark_that_knows_its_options(work, monkeypatch):
    module = importlib.import_module(f"benchmarks.{work.module}")
    monkeypatch.setattr("sys.argv", [work.module, *work.options, "--format", "json", "--help"])
    with pytest.raises(SystemExit) as stopped:
        module.main()
    assert stopped.value.code == 0


def test_names_are_unique():
    assert len({work.name for work in WORKS}) == len(WORKS)


def of(printed, status=0, errors=""):
    return lambda command, **_: subprocess.CompletedProcess(command, status, printed, errors)


def run(monkeypatch, file, *options):
    monkeypatch.setattr("sys.argv", ["benchmarks", "--out", str(file), *options])
    return table_of_all.main()


def test_a_row_is_kept_beside_others_and_says_where_it_is_from(monkeypatch, tmp_path, capsys):
    file = tmp_path / "bench.json"
    results.write(file, {"selection": figures()})
    monkeypatch.setattr(subprocess, "run", of("a note\n" + json.dumps({**FIGURES, "prove_ms": 0.2})))
    monkeypatch.setattr(table_of_all, "origin", lambda: {"git_commit": "abc", "processor": "P"})
    assert run(monkeypatch, file, "--only", "vrf") == 0
    rows = results.kept(file)
    assert set(rows) == {"selection", "vrf"}
    assert rows["vrf"]["git_commit"] == "abc"
    assert rows["vrf"]["prove_ms"] == 0.2
    assert "VRF: one proof made and verified" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("printed", "status"), [("", 0), ("no json", 0), ('{"seconds": 1}', 0), (json.dumps(FIGURES), 3), ("[1]", 0)]
)
def test_what_failed_is_a_row_without_figures(monkeypatch, tmp_path, capsys, printed, status):
    file = tmp_path / "bench.json"
    monkeypatch.setattr(subprocess, "run", of(printed, status, "a trace\nMemoryError: no more"))
    monkeypatch.setattr(table_of_all, "origin", dict)
    assert run(monkeypatch, file, "--only", "vrf") == 1
    assert results.kept(file)["vrf"]["failed"] == f"exit status {status}: MemoryError: no more"
    assert f"exit status {status}: MemoryError: no more" in capsys.readouterr().out


def test_a_missed_target_is_said():
    work = Work("x", "work", "x", target_s=1.9, target_ratio=2.5)
    assert table_of_all.row(work, FIGURES)["target"] == "1.9 s, 2.5 x: missed"
    assert table_of_all.row(work, {**FIGURES, "seconds": 1.9})["target"] == "1.9 s, 2.5 x"
    assert table_of_all.row(Work("x", "work", "x"), FIGURES)["target"] == ""


def test_rows_of_the_same_work_are_compared_and_all_others_named():
    old = {"a": figures(), "b": figures(), "gone": figures(), "c": {"failed": "why", "command": "x"}}
    new = {"a": figures(seconds=1.0, ratio=1.5), "b": figures(command="another"), "c": figures(), "new": figures()}
    (row,) = compare.rows(old, new)
    assert (row["work"], row["new / old"], row["new / old ratio"]) == ("a", 0.5, 0.75)
    said = "\n".join(compare.notes(old, new))
    for line in ("b: not the same work", "gone: not in the new file", "c: failed in the old file (why)"):
        assert line in said
    assert "new: not in the old file" in said
    assert "machine" not in said


def test_other_processors_are_said():
    (line,) = compare.notes({"a": figures()}, {"a": figures(processor="Q")})
    assert line == "measured on P, then on Q: compare the ratios, not the seconds"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"works": 3}', '{"works": {"a": {"seconds": 1}}}', '{"works": {"a": 1}}']
)
def test_another_file_is_refused_in_one_line(tmp_path, text):
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(TestbedError, match=naming("python -m benchmarks")):
        results.kept(file)


def test_a_file_that_cannot_be_written_is_refused_before_the_first_measurement(monkeypatch, tmp_path):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("something was measured"))
    with pytest.raises(TestbedError, match="cannot be written"):
        run(monkeypatch, tmp_path / "nowhere" / "bench.json", "--only", "vrf")
