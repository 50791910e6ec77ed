"""``testbed metrics`` from the outside."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.comparison.summary import summarise
from analysis.multi_round import report
from analysis.multi_round.participation import participation_matrix
from testbed.records import RunRecords

SIX_ROUNDS = {"rounds": 6, "availability": {"model": "bernoulli", "unavailable": 0.2}}


@pytest.mark.parametrize(
    ("coefficient", "said"),
    [(-9, "9 rounds, coefficients of 1 digit"), (10, "9 rounds, coefficients of up to 2 digits")],
)
def test_many_coefficients_are_told_by_their_size(coefficient: int, said: str) -> None:
    certificate = {"rounds": list(range(9)), "coefficients": [1] * 8 + [coefficient]}
    assert report._combination(certificate) == f"{said} (see --format json)"


def test_text_is_about_the_last_round(call: Callable[..., Any], ran: Callable[..., Path]) -> None:
    path = ran(**SIX_ROUNDS, selection={"protocol": "batch-partition", "participants": 4, "privacy": 2})
    ended = call("metrics", path)
    assert (ended.code, ended.err) == (0, "")
    first, *rest = ended.out.splitlines()
    assert first.endswith(": 6 rounds, 8 clients")
    said = {label.strip(): value for label, value in (re.split(r"(?<=\S) {2,}", line, maxsplit=1) for line in rest)}
    assert said["T strong"] == "2"
    assert said["T weak"].startswith("2 (proof: ")
    assert said["combination"].count("round") >= 1
    left = said["sum over"].removeprefix("clients ").split(", ")
    assert len(left) == 2
    assert int(left[0]) % 2 == 0
    assert int(left[1]) == int(left[0]) + 1  # a whole batch
    assert said["certified"] == "in 6 of 6 rounds"


def test_json_holds_every_round_and_a_certificate_that_can_be_checked(
    call: Callable[..., Any], ran: Callable[..., Path]
) -> None:
    path = ran(**SIX_ROUNDS)
    (found,) = json.loads(call("metrics", path, "--format", "json").out)
    matrix = participation_matrix(RunRecords(path))
    last, summary = found["by_round"][-1], summarise(RunRecords(path))
    assert [row["round"] for row in found["by_round"]] == [1, 2, 3, 4, 5, 6]
    assert last["weak"] == summary["multi_round_privacy_weak"]
    assert last["strong"] == summary["multi_round_privacy_strong"]
    assert last["lower_bound"] == summary["multi_round_privacy_weak_lower_bound"]
    assert last["fairness"] == summary["fairness_gap"]
    assert last["cardinality"] == summary["aggregation_cardinality"]
    certificate = found["certificate"]
    left = sum(
        int(coefficient) * matrix[number - 1].astype(object)
        for number, coefficient in zip(certificate["rounds"], certificate["coefficients"], strict=True)
    )
    assert np.flatnonzero(left).tolist() == certificate["clients"]
    assert len(certificate["clients"]) == last["weak"]


def test_every_kth_round_and_the_last(call: Callable[..., Any], ran: Callable[..., Path]) -> None:
    path = ran(**SIX_ROUNDS)
    rows = list(csv.DictReader(io.StringIO(call("metrics", path, "--format", "csv", "--every", 4).out)))
    assert [row["round"] for row in rows] == ["4", "6"]
    assert {"strong", "weak", "lower_bound", "certified", "proof", "fairness", "cardinality", "rank"} <= rows[0].keys()
    text = call("metrics", path, "--every", 4).out.splitlines()
    assert [line.split()[1] for line in text] == ["Round", "4", "6"]
    markdown = call("metrics", path, "--format", "markdown").out.splitlines()
    assert markdown[1] == "| --- | --- | --- | --- | --- | --- | --- | --- |"
    assert len(markdown) == 3


def test_several_runs_and_a_figure(call: Callable[..., Any], ran: Callable[..., Path], tmp_path: Path) -> None:
    first, second = ran("first", **SIX_ROUNDS), ran("second", **SIX_ROUNDS, seed=4)
    ended = call("metrics", first, second, "--out", tmp_path / "figures", "--quiet")
    assert ended.code == 0
    assert ended.out.count("T weak") == 2
    assert (tmp_path / "figures" / "multi-round-metrics.png").stat().st_size > 10_000
    assert (tmp_path / "figures" / "multi-round-metrics.pdf").is_file()


def test_a_run_that_is_not_finished_is_marked(call: Callable[..., Any], ran: Callable[..., Path]) -> None:
    file = ran(**SIX_ROUNDS) / "experiment.yaml"
    file.write_text(file.read_text().replace("rounds: 6", "rounds: 9"))
    assert call("metrics", file.parent).out.splitlines()[0].endswith(": 6 of 9 rounds (not finished), 8 clients")
    told = json.loads(call("metrics", file.parent, "--format", "json").out)[0]
    assert (told["rounds"], told["planned_rounds"]) == (6, 9)


def test_where_figures_cannot_go_is_known_first(
    call: Callable[..., Any], ran: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "taken").touch()
    ended = call("metrics", ran(**SIX_ROUNDS), "--out", tmp_path / "taken")
    assert (ended.code, ended.out, len(ended.errors)) == (2, "", 1)
    assert ended.errors[0].startswith(f"error: --out: {tmp_path / 'taken'} cannot be written to")


def test_a_run_without_sums_is_told_so(call: Callable[..., Any], ran: Callable[..., Path]) -> None:
    path = ran(code=4, availability={"model": "bernoulli", "unavailable": 1.0})
    ended = call("metrics", path)
    assert ended.code == 2
    (error,) = ended.errors
    assert error.startswith(f"error: {path}: no round of this run gave a sum")
    assert "`testbed status`" in error


def test_a_run_without_sums_does_not_hide_the_others(call: Callable[..., Any], ran: Callable[..., Path]) -> None:
    """One point of a sweep had none, and the command refused all of them."""
    path = ran(sweep={"availability": [{"model": "bernoulli", "unavailable": share} for share in (1.0, 0.0)]})
    ended = call("metrics", path, "--format", "csv")
    assert ended.code == 0
    assert len(list(csv.DictReader(io.StringIO(ended.out)))) == 1
    (note,) = ended.err.splitlines()
    assert note.startswith("note: ")
    assert note.endswith(": no round of this run has a sum; the run is left out")


def test_a_directory_without_runs_is_told_so(call: Callable[..., Any], tmp_path: Path) -> None:
    ended = call("metrics", tmp_path)
    assert ended.code == 2
    assert "no runs here" in ended.errors[0]
