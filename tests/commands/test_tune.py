"""``testbed tune``: a sweep underneath, the best value marked, and the experiment with it written."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from testbed.experiment import load
from testbed.records import RunRecords, find_runs

GRID = "workload.learning_rate=1e-6, 0.1"


def test_the_grid_is_run_and_the_best_value_written(call: Callable, written: Callable, tmp_path: Path) -> None:
    file, out, best = written(name="digits"), tmp_path / "runs", tmp_path / "best.yaml"
    ended = call("tune", file, "--grid", GRID, "--seeds", "1,2", "--rounds", 2, "--out", out, "--write", best, "-q")
    assert ended.code == 0, ended.err
    assert len(find_runs(out)) == 4
    for rate, line in ((1e-6, ended.out.splitlines()[2]), (0.1, ended.out.splitlines()[3])):
        paths = [out / f"learning_rate={rate},seed={seed}" for seed in (1, 2)]
        rounds = [RunRecords(path).rounds for path in paths]
        assert [len(one) for one in rounds] == [2, 2]
        mean = sum(one["accuracy"].iloc[-1] for one in rounds) / 2
        assert f"{100 * mean:.1f}%" in line
        assert line.split()[:2] == [str(rate), "2"]
        assert line.endswith("best") == (rate == 0.1)
    chosen, given = load(best), load(file)
    assert chosen.workload.learning_rate == 0.1
    assert chosen.rounds == 3
    assert (
        chosen.plain()
        == given.model_copy(update={"workload": given.workload.model_copy(update={"learning_rate": 0.1})}).plain()
    )
    assert best.read_text().startswith("# Chosen by `testbed tune`: workload.learning_rate: 0.1\n")


def test_it_goes_on_where_it_was_stopped(call: Callable, written: Callable, tmp_path: Path) -> None:
    file, out = written(), tmp_path / "runs"
    first = call("tune", file, "--grid", "workload.learning_rate=0.1", "--out", out, "-q")
    assert first.code == 0, first.err
    kept = (out / "learning_rate=0.1" / "rounds.parquet").stat().st_mtime_ns
    again = call("tune", file, "--grid", "workload.learning_rate=0.1,0.01", "--out", out, "-q")
    assert again.code != 0
    assert "--resume" in again.errors[0]
    more = call("tune", file, "--grid", "workload.learning_rate=0.1,0.01", "--out", out, "-q", "--resume")
    assert more.code == 0, more.err
    assert (out / "learning_rate=0.1" / "rounds.parquet").stat().st_mtime_ns == kept
    assert len(more.out.splitlines()) == 4


def test_points_of_the_experiments_own_sweep_are_settings(call: Callable, written: Callable, tmp_path: Path) -> None:
    sweep = {"selection": [{"protocol": "random"}, {"protocol": "weighted-random"}]}
    file, best = written(sweep=sweep, rounds=1), tmp_path / "best.yaml"
    ended = call("tune", file, "--grid", GRID, "--out", tmp_path / "runs", "--write", best, "-q")
    assert ended.code == 0, ended.err
    titles = [line for line in ended.out.splitlines() if line in ("random", "weighted-random")]
    assert titles == ["random", "weighted-random"]
    assert yaml.safe_load(best.read_text())["sweep"] == sweep


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--grid", "workload.learning_rate"], "must be KEY=V1,V2"),
        (["--grid", "=1,2"], "must be KEY=V1,V2"),
        (["--grid", GRID, "--grid", GRID], "given twice"),
        (["--grid", "workload.learning_rates=1,2"], "learning_rates"),
        (["--grid", "workload.learning_rate=-1,2"], "greater than 0"),
        (["--grid", "workload.learning_rate=[1"], "not valid YAML"),
        (["--grid", "seed=1,2"], "give --seeds"),
        (["--grid", "name=a,b"], "sweep has this key, too"),
        (["--grid", GRID, "--seeds", "a"], "seed"),
        (["--grid", GRID, "--write", "small.yaml"], "--write small.yaml: exists already"),
        (["--grid", GRID, "--write", "small.yaml/best.yaml"], "cannot be written to"),
    ],
)
def test_mistakes_are_one_line_before_anything_runs(
    call: Callable, written: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list, says: str
) -> None:
    file = written(sweep={"name": ["a", "b"]} if "name=a,b" in arguments else {})
    monkeypatch.chdir(tmp_path)
    ended = call("tune", file, *arguments, "--out", "runs")
    assert ended.code == 2
    assert says in ended.errors[0]
    assert not (tmp_path / "runs").exists()
