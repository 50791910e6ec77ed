"""Least squares over sums: exact where updates do not change, the batch's mean where it must be, real runs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from analysis.attacks.reconstruction import (
    View,
    cosines,
    errors,
    estimates,
    measured,
    reconstruct,
    spanned,
    spanned_groups,
    view,
)
from analysis.attacks.reconstruction_output import files, row, text
from analysis.attacks.victims import Victims
from testbed.batches import Batches
from testbed.errors import ExperimentError
from tests.messages_named import naming

BATCHES_OF_TWO = {"protocol": "batch-partition", "participants": 4, "privacy": 2}


def constant_view(updates: np.ndarray, weights: np.ndarray, rounds: list[np.ndarray]) -> View:
    """Return the server's view when updates never change."""
    participation = np.array([np.isin(np.arange(len(updates)), members) for members in rounds])
    sums = (participation * weights) @ updates
    return View(np.arange(1, len(rounds) + 1), 0, participation, sums, np.zeros(updates.shape[1], np.float32))


@pytest.mark.parametrize("weights", [np.ones(12), np.arange(1.0, 13.0)])
def test_constant_updates_are_found_exactly_or_as_the_batchs_weighted_mean(weights: np.ndarray) -> None:
    coin = np.random.default_rng(1)
    updates = coin.normal(size=(12, 7))
    for privacy in (1, 2, 3):
        batches = Batches.consecutive(12, privacy)
        chosen = [batches.members(coin.choice(len(batches), 6 // privacy, replace=False)) for _ in range(40)]
        found = estimates(constant_view(updates, weights, chosen), weights)
        assert found.rank == len(batches)
        assert found.determined.all() == (privacy == 1)
        mean = np.array(
            [np.average(updates[m], axis=0, weights=weights[m]) for m in np.split(np.arange(12), len(batches))]
        )
        assert np.allclose(found.updates, np.repeat(mean, privacy, axis=0), atol=1e-9)


def test_fewer_rounds_than_clients_give_the_solution_of_minimum_norm_and_say_who_is_determined() -> None:
    updates = np.random.default_rng(2).normal(size=(5, 3))
    seen = constant_view(updates, np.ones(5), [np.array([0, 1]), np.array([1]), np.array([2, 3])])
    found = estimates(seen, np.ones(5))
    assert found.clients.tolist() == [0, 1, 2, 3]  # client 4 is in no sum
    assert (found.rank, found.determined.tolist()) == (3, [True, True, False, False])
    assert np.allclose(found.updates[:2], updates[:2])
    assert np.allclose(found.updates[2:], updates[2:4].mean(axis=0))
    by_definition = np.linalg.pinv(seen.participation[:, :4].astype(float)) @ seen.sums
    assert np.allclose(found.updates, by_definition)


def test_errors_are_equation_33() -> None:
    true = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]], np.float32)
    guess = np.array([[3.0, 4.0], [0.0, 2.0], [1.0, 1.0]])
    assert errors(guess, true)[:2].tolist() == [0.0, 5.0]
    assert cosines(guess, true)[:2].tolist() == [1.0, 0.0]
    assert np.isnan(errors(guess, true)[2])
    assert np.isnan(cosines(guess, true)[2])


@pytest.mark.parametrize("aggregation", [{"protocol": "plain"}, {"protocol": "secagg", "clip": 0.01, "threshold": 3}])
def test_a_real_run_tells_every_update_under_random_and_only_means_under_batches(
    made: Callable[..., Any], aggregation: dict
) -> None:
    at_random = reconstruct(made(aggregation=aggregation), 1, 24)
    batched = reconstruct(made(aggregation=aggregation, selection=BATCHES_OF_TWO), 1, 24)
    assert at_random.deviation < 5e-3  # training again gives the updates in the sums
    assert batched.deviation < 5e-3
    assert at_random.table["determined"].all()
    assert not batched.table["determined"].any()
    assert at_random.table["error"].max() < 0.1
    assert batched.table["error"].min() > 0.1
    victims = Victims(made(aggregation=aggregation, selection=BATCHES_OF_TWO))
    means = victims.updates(batched.view.model, 1).reshape(4, 2, -1).mean(axis=1).repeat(2, axis=0)
    assert errors(batched.estimates.updates, means).max() < 0.1
    assert "determined by the sums  8 of 8" in text(at_random)
    assert row(batched)["determined"] == 0


def test_the_sums_of_the_view_are_those_of_the_survivors_and_skipped_rounds_are_counted(
    made: Callable[..., Any],
) -> None:
    run = made(availability={"dropout": {"rate": 0.5, "stage": "check-in"}})
    outcomes = run.rounds["outcome"].tolist()
    assert {"completed", "skipped"} <= set(outcomes)
    seen = view(run, 1, 24)
    assert seen.skipped == 24 - outcomes.count("completed")
    for number, present, total in zip(seen.rounds.tolist(), seen.participation, seen.sums, strict=True):
        rows = run.participation[(run.participation["round"] == number) & run.participation["survived"]]
        assert np.flatnonzero(present).tolist() == sorted(rows["client"])
        aggregate = run.aggregate(number)
        assert aggregate is not None
        assert np.array_equal(total, aggregate.mean * aggregate.weight)
    assert reconstruct(run, 1, 24).deviation < 1e-3


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_what_the_server_makes_of_a_mean_is_not_taken_for_the_mean(made: Callable[..., Any], name: str) -> None:
    """The records keep the mean itself: the difference of two models would be another vector."""
    run = made(aggregation={"protocol": "plain", "server_optimizer": {"name": name}}, rounds=3)
    done = reconstruct(run, 1, 1)
    assert done.deviation < 1e-5
    first, second = (run.aggregate(number) for number in (2, 3))
    step = second.model.astype(np.float64) - first.model
    assert np.linalg.norm(step - first.mean) > 0.3 * np.linalg.norm(first.mean)


def test_truth_that_is_not_that_of_the_run_is_noticed(made: Callable[..., Any]) -> None:
    run = made()
    victims, seen = Victims(run), view(run, 1, 24)
    assert "warning" not in text(measured(seen, victims.weights, victims.updates(seen.model, 1)))
    assert "warning: training again" in text(measured(seen, victims.weights, victims.updates(seen.model + 0.1, 1)))


def test_files(made: Callable[..., Any], tmp_path: Any) -> None:
    paths = files(reconstruct(made(), 1, 24), tmp_path / "deep" / "er")
    assert {path.name for path in paths} == {
        "reconstruction.csv", "reconstruction.json", "reconstruction.png", "reconstruction.pdf",
    }  # fmt: skip
    assert len(paths[0].read_text().splitlines()) == 9


def test_errors_name_the_rounds(made: Callable[..., Any]) -> None:
    for first, last in ((0, 3), (3, 2), (1, 25)):
        with pytest.raises(ExperimentError, match=naming("1 to 24")):
            view(made(), first, last)
    with pytest.raises(ExperimentError, match=naming("aggregate of round 1", "records.aggregates: all", "[1, 9]")):
        view(made(records={"aggregates": "none"}), 1, 9)
    nobody = made(availability={"dropout": {"rate": 0.9, "stage": "check-in"}})
    skipped = nobody.rounds.loc[nobody.rounds["outcome"] != "completed", "round"].iloc[0]
    with pytest.raises(ExperimentError, match="none of rounds"):
        view(nobody, skipped, skipped)


def test_an_asynchronous_run_is_refused(made: Callable[..., Any]) -> None:
    sections = {"asynchronous": {"concurrency": 4}, "links": {"transport": "none"}, "rounds": 2}
    with pytest.raises(ExperimentError, match=naming("asynchronous", "several rounds")):
        view(made(**sections), 1, 2)


def test_spanned_groups_are_determined_by_the_sums() -> None:
    participation = [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert spanned(participation, np.array([0, 1]))
    assert spanned(participation, np.array([2, 3]))
    assert not spanned(participation, np.array([0]))
    assert not spanned([[1, 1, 1, 0], [0, 1, 1, 1]], np.array([1, 2]))


def test_groups_are_spanned_as_one_by_one() -> None:
    rng = np.random.default_rng(2)
    for _ in range(40):
        matrix = (rng.random((rng.integers(1, 6), 4)) < 0.6).repeat(2, axis=1)
        matrix = matrix[:, rng.permutation(8)[:7]]
        _, groups = np.unique(matrix.T, axis=0, return_inverse=True)
        groups = groups.reshape(-1)
        wanted = [spanned(matrix, np.flatnonzero(groups == group)) and matrix.any() for group in groups]
        assert spanned_groups(matrix, groups).tolist() == wanted
