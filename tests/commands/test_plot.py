"""`testbed plot`: what goes with --x and what does not; wrong names are answered in one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.recorded import synthetic_run

Call = Callable[..., Any]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two runs that differ in their participants."""
    for few in (4, 8):
        synthetic_run(tmp_path / f"sweep/{few}", participants=few, rounds=2, sweep={"selection.participants": few})
    return tmp_path / "sweep"


def test_a_figure_over_a_swept_key_and_its_data(call: Call, sweep: Path) -> None:
    ended = call("plot", sweep, "--x", "selection.participants", "--format", "svg")
    assert ended.code == 0, ended.err
    folder = sweep / "figures"
    name = "round_s-server_bytes-by-selection.participants"
    assert ended.out.split() == [str(folder / f"{name}.svg"), str(folder / f"{name}.csv")]


def test_only_what_was_asked_for_is_drawn(call: Call, sweep: Path, tmp_path: Path) -> None:
    ended = call("plot", sweep, "--only", "accuracy", "--target", "50%", "--out", tmp_path / "new", "--columns", "2")
    assert ended.code == 0, ended.err
    assert {path.name for path in (tmp_path / "new").iterdir()} == {f"accuracy.{end}" for end in ("png", "pdf", "csv")}
    assert ended.err == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--y", "round_s"], "--y: allowed only with --x KEY"),
        (["--hue", "population"], "--hue: allowed only with --x KEY"),
        (["--log", "x"], "--log: allowed only with --x KEY"),
        (["--x", "population", "--only", "accuracy"], "--only: not allowed with --x"),
        (["--x", "population", "--smooth", "2"], "--smooth: not allowed with --x"),
        (["--x", "selection.participants", "--target", "50%", "--target", "60%"], "--target: with --x"),
        (["--only", "acuracy"], "--only acuracy: no such figure; did you mean accuracy? choose among round-time"),
        (["--format", "gif"], "--format gif: no such format; choose among png, pdf, svg"),
        (["--format", ","], "--format (empty): no such format; choose among png, pdf, svg"),
        (["--x", "selection.participant"], "--x selection.participant: no run has this key; did you mean"),
        (["--x", "selection.participants", "--y", "rond_s"], "--y rond_s: no such measure; did you mean round_s?"),
        (["--x", "population"], "--x population: has only one value, 100; the runs differ in selection.participants"),
        (["--target", "acuracy>=0.5"], "target 'acuracy>=0.5': unknown metric 'acuracy'; did you mean 'accuracy'?"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(call: Call, sweep: Path, arguments: list[str], said: str) -> None:
    ended = call("plot", sweep, *arguments)
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert ended.errors[0].startswith(f"error: {said}")
    assert not list(sweep.rglob("*.png"))
