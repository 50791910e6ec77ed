"""`testbed compare`: groups, seeds in pairs, the order of rows, and what it refuses in one line."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.recorded import synthetic_run

Call = Callable[..., Any]
LATENCIES = (100.0, 10.0)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two protocols at two latencies, three seeds each; directories in another order than the sweep's points."""
    points = product(("random", "batch-partition"), LATENCIES, (1, 2, 3))
    for place, (protocol, latency, seed) in enumerate(points, start=1):
        synthetic_run(
            tmp_path / "sweep" / f"{100 - place}", protocol, seed=seed, latency_ms=latency, point=place, rounds=2,
            population=20, participants=4, label=f"{protocol},{latency},{seed}",
            sweep={"selection.protocol": protocol, "links.latency_ms": latency, "seed": seed},
        )  # fmt: skip
    return tmp_path / "sweep"


def rows(call: Call, *arguments: object) -> list[dict[str, Any]]:
    ended = call("compare", *arguments, "--format", "json")
    assert (ended.code, ended.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(ended.out)["rows"]
    return found


def test_rows_stand_in_the_order_of_the_sweep(call: Call, sweep: Path) -> None:
    found = rows(call, sweep)
    assert [(row["setting"], row["label"]) for row in found] == [
        (f"latency_ms={latency}", protocol) for latency in LATENCIES for protocol in ("random", "batch-partition")
    ]
    assert [row["is_baseline"] for row in found] == [True, False] * 2
    assert ", the first row of each setting." in " ".join(call("compare", sweep).out.split())


def test_rows_are_grouped_and_compared_across_groups(call: Call, sweep: Path) -> None:
    grouped = rows(call, sweep, "--group-by", "selection.protocol")
    assert [(row["setting"], row["label"]) for row in grouped] == [
        (protocol, f"latency_ms={latency}") for protocol in ("random", "batch-partition") for latency in LATENCIES
    ]
    assert [row["is_baseline"] for row in grouped] == [True, False] * 2
    across = rows(call, sweep, "--group-by", "links.latency_ms", "--baseline", "random,latency_ms=100.0")
    assert {row["baseline"] for row in across} == {"random,latency_ms=100.0"}
    assert [row["is_baseline"] for row in across] == [True, False, False, False]
    assert all(row["round_s_ratio"] == row["round_s"] / across[0]["round_s"] for row in across)
    both = rows(call, sweep, "--group-by", "links.latency_ms", "--group-by", "selection.protocol")
    assert len({row["setting"] for row in both}) == 4


def test_seeds_are_paired(call: Call, sweep: Path) -> None:
    found = rows(call, sweep, "--paired-seeds")
    assert [row["seed_pairs"] for row in found] == [0, 3] * 2
    assert "Differences to the baseline, paired by seed" in call("compare", sweep, "--paired-seeds").out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--group-by", "links.latency"], "error: --group-by links.latency: no run has this key; the runs differ in "
         "selection.protocol, links.latency_ms\n"),
        (["--group-by", "seed"], "error: --group-by seed: not a key to group by; runs that differ only in this key "
         "form one row\n"),
        (["--paired", "--paired-seeds"],
         "error: --paired, --paired-seeds: one matches rounds, the other seeds; give one of them\n"),
        (["--baseline", "oort"], "error: baseline 'oort': no such run; choose among 'random,latency_ms=100.0', "
         "'batch-partition,latency_ms=100.0', 'random,latency_ms=10.0', 'batch-partition,latency_ms=10.0'\n"),
    ],
)  # fmt: skip
def test_what_makes_no_table_is_refused_in_one_line(call: Call, sweep: Path, arguments: list[str], line: str) -> None:
    ended = call("compare", sweep, *arguments)
    assert (ended.code, ended.out, ended.err) == (2, "", line)


def test_an_empty_directory_is_refused_in_one_line(call: Call, tmp_path: Path) -> None:
    ended = call("compare", tmp_path)
    assert ended.code == 2
    assert ended.err == f"error: {tmp_path}: no runs here; create some with `testbed run EXPERIMENT.yaml`\n"


def test_runs_that_were_begun_and_have_no_round_are_marked(call: Call, tmp_path: Path) -> None:
    synthetic_run(tmp_path / "run", rounds=0)
    file = tmp_path / "run" / "experiment.yaml"
    file.write_text(file.read_text().replace("rounds: 0", "rounds: 7"))
    ended = call("compare", tmp_path)
    assert ended.code == 0
    assert "0/0/0 of 7" in ended.out
    assert "Unfinished" in ended.out


def test_a_row_that_is_paired_with_itself_is_noted(call: Call, sweep: Path) -> None:
    (one, *_) = sweep.iterdir()
    ended = call("compare", one, "--paired")
    assert ended.code == 0
    assert "note: --paired: there is one row, which is paired with itself" in " ".join(ended.err.split())
    assert call("compare", sweep, "--paired").err == ""
