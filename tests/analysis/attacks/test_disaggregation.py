"""Participants of each sum, from sums and counts: exact for constant updates, real runs, and batches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from analysis.attacks.disaggregation import columns, counts, disaggregate
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from tests.messages_named import naming

Made = Callable[..., RunRecords]


def participation(rounds: int, clients: int, rate: float = 0.5) -> np.ndarray:
    matrix: np.ndarray = np.random.default_rng(3).random((rounds, clients)) < rate
    return matrix


def test_counts_are_of_windows_the_last_of_which_may_be_shorter() -> None:
    matrix = np.array([[1, 0], [1, 1], [0, 1], [0, 1], [1, 0]], np.bool_)
    assert counts(matrix, 2).tolist() == [[2, 1], [0, 2], [1, 0]]
    assert counts(matrix, 9).tolist() == [[3, 3]]


@pytest.mark.parametrize("window", [7, 10])
def test_constant_updates_give_every_column(window: int) -> None:
    matrix = participation(45, 12)
    matrix[:, 4] = False  # in no sum
    updates = np.random.default_rng(1).normal(size=(12, 40)) * np.arange(1, 13)[:, None]
    found, unsolved = columns(matrix @ updates, counts(matrix, window), window, 60.0)
    assert np.array_equal(found, matrix)
    assert unsolved == 0


def test_what_updates_change_between_rounds_costs_columns() -> None:
    matrix, rng = participation(30, 8), np.random.default_rng(2)
    sums = matrix @ rng.normal(size=(8, 30))
    quiet, _ = columns(sums + 0.01 * rng.normal(size=sums.shape), counts(matrix, 10), 10, 60.0)
    assert np.array_equal(quiet, matrix)
    loud, _ = columns(rng.normal(size=sums.shape), counts(matrix, 10), 10, 0.3)
    assert not np.array_equal(loud, matrix)
    assert np.array_equal(counts(loud, 10), counts(matrix, 10))  # every estimate has the given counts


def test_a_real_run_and_one_in_batches_of_two(made: Made) -> None:
    rounds = {"rounds": 30}
    alone = disaggregate(made(**rounds), 1, 30, 10, 60.0).row()
    assert (alone["clients"], alone["columns_found"], alone["entries_found"]) == (8, 8, 1.0)
    assert (alone["always_together"], alone["determined"]) == (1, 8)
    assert alone["median_error"] == alone["median_error_known"] < 0.1
    batches = {"protocol": "batch-partition", "participants": 4, "privacy": 2}
    made_in_batches = disaggregate(made(**rounds, selection=batches), 1, 30, 10, 60.0)
    together = made_in_batches.row()
    assert together["columns_found"] >= 6  # two batches may have the same counts, and then get the same column
    assert (together["always_together"], together["determined"]) == (2, 0)
    assert together["median_error"] > 0.1
    text = made_in_batches.text()
    assert f"{together['columns_found']} of 8 clients in all rounds" in text
    assert "at least 2" in text


def test_rounds_must_be_more_than_clients(made: Made) -> None:
    with pytest.raises(ExperimentError, match=naming("8 completed rounds", "8 clients", "column")):
        disaggregate(made(), 1, 8, 10, 5.0)


def test_a_search_at_its_time_limit_is_counted_and_gives_a_warning(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    from analysis.attacks import disaggregation

    class NothingFound:
        x, status = None, 1

    monkeypatch.setattr(disaggregation, "milp", lambda *_, **__: NothingFound())
    ended = disaggregate(made(), 1, 24, 10, 5.0)
    assert ended.unsolved == 8
    assert "warning: the search for 8 clients reached its time limit" in ended.text()
    assert np.array_equal(counts(ended.estimated, 10), counts(ended.true.participation, 10))


def test_options_of_the_command(made: Made, capsys: Any) -> None:
    from testbed.cli import main

    path = str(made(rounds=30).path)
    assert main(["attack", "disaggregate", path, "--from", "1", "--to", "30", "--format", "json"]) == 0
    assert '"columns_found": 8' in capsys.readouterr().out
    assert main(["attack", "disaggregate", path, "--from", "1", "--to", "5"]) == 2
    assert "more rounds than clients" in capsys.readouterr().err
