"""Multi-round privacy over whole runs: T stays when clients keep batches whole, and falls when they do not."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from analysis.multi_round import strong_privacy, weak_privacy
from testbed.aggregation.secagg.server import SecAgg

T = 3
STAGES = ("train", *SecAgg.stages)
BEFORE_THE_SUM = STAGES[:4]
VICTIM = 4


@dataclass
class Constant:
    """See `testbed.workload.contract.LocalUpdate`."""

    delta: np.ndarray
    samples: int = 1
    loss: float = 0.5
    examples_processed: int = 1
    squared_loss: float | None = None


class Unchanging:
    """The worst case of Multi-RoundSecAgg, section 3.2: a client's update is the same in every round."""

    dimension = 7

    def __init__(self, population: int) -> None:
        self.sample_counts = np.ones(population, np.int64)
        self.updates = np.random.default_rng(11).uniform(-0.5, 0.5, (population, self.dimension)).astype(np.float32)

    def initial_model(self) -> np.ndarray:
        return np.zeros(self.dimension, np.float32)

    def train(self, client: int, model: np.ndarray, round_number: int) -> Constant:
        return Constant(self.updates[client])

    def evaluate(self, model: np.ndarray) -> None:
        return None


def experiment(population: int, participants: int, rounds: int, **sections: Any) -> dict[str, Any]:
    return {
        "population": population,
        "rounds": rounds,
        "selection": {"protocol": "batch-partition", "participants": participants, "privacy": T},
        "time": {"compute": "modelled", "deadline_s": 20, "disconnects": "visible"},
    } | sections


def view(done: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the server's view of a run: `(rounds, n)` the clients in each sum, and `(rounds, d)` the sums."""
    model, sums = done.workload.initial_model(), []
    matrix = np.zeros((len(done.outcomes), done.experiment.population), np.int64)
    for row, outcome in zip(matrix, done.outcomes, strict=True):
        row[outcome.survivors] = 1
        sums.append((outcome.model.astype(np.float64) - model) * len(outcome.survivors))
        model = outcome.model
    return matrix, np.array(sums)


def solved(matrix: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """`(n, d)` everybody's update by least squares (Multi-RoundSecAgg, appendix H.2)."""
    found: np.ndarray = np.linalg.lstsq(matrix.astype(np.float64), sums, rcond=None)[0]
    return found


def under_attack(run: Callable, batches: str, protocol: str = "secagg", **more: Any) -> Any:
    """Every other round the server claims that the victim has dropped out."""
    aggregation = {"protocol": protocol, "weights": "equal", "batches": batches} | more
    adversary = {"dishonest": 0, "server": {"break-batch": {"victim": VICTIM}}, "every": 2}
    keys = experiment(12, 6, 24, aggregation=aggregation, adversary=adversary)
    return run(keys, f"{protocol}-{batches}", workload=Unchanging).rounds()


@pytest.mark.parametrize("consistency", ["signed", "none"])
def test_without_the_check_one_claim_of_a_drop_out_gives_the_victims_update_away(
    run: Callable, consistency: str
) -> None:
    done = under_attack(run, "ignored", threshold=5, consistency=consistency)
    matrix, sums = view(done)
    assert {outcome.state for outcome in done.outcomes} == {"completed"}
    assert not any(event["kind"] == "refusal" for event in done.rows("events"))
    assert weak_privacy(matrix).value == 1
    true = done.workload.updates[VICTIM]
    assert np.abs(solved(matrix, sums)[VICTIM] - true).max() < 1e-3 * np.abs(true).max()


@pytest.mark.parametrize("consistency", ["signed", "none"])
def test_with_the_check_attacked_rounds_end_in_refusals_and_t_stays(run: Callable, consistency: str) -> None:
    done = under_attack(run, "whole", threshold=5, consistency=consistency)
    matrix, sums = view(done)
    attacked = {event["round"] for event in done.rows("events") if event["kind"] == "attack"}
    assert len(attacked) >= 3
    for number, outcome in enumerate(done.outcomes, 1):
        assert outcome.state == ("aborted" if number in attacked else "completed")
    refusals = [event for event in done.rows("events") if event["kind"] == "refusal"]
    stage = "secagg/consistency" if consistency == "signed" else "secagg/unmask-survivors"
    assert {(event["detail"].partition(":")[0], event["stage"]) for event in refusals} == {
        ("aggregation.partial-batch", stage)
    }
    assert {event["round"] for event in refusals} == attacked
    assert len(refusals) == 6 * len(attacked)  # also the victim, which is told that it has dropped out
    privacy = weak_privacy(matrix)
    assert (strong_privacy(matrix), privacy.value, privacy.certified) == (T, T, True)
    batch = done.workload.updates[done.plan.selection.batches.members([VICTIM // T])]
    assert matrix[:, VICTIM].any()
    assert np.abs(solved(matrix, sums)[VICTIM] - batch.mean(0)).max() < 1e-3  # the best that the server can do


def test_among_neighbours_a_server_with_one_list_for_all_is_refused_too(run: Callable) -> None:
    done = under_attack(run, "whole", "secagg-plus", dishonest=0, security=1, correctness=1, dropouts=0.2)
    attacked = {event["round"] for event in done.rows("events") if event["kind"] == "attack"}
    assert attacked == {n for n, outcome in enumerate(done.outcomes, 1) if outcome.state == "aborted"}
    checks = {e["detail"].partition(":")[0] for e in done.rows("events") if e["kind"] == "refusal"}
    assert checks == {"aggregation.partial-batch"}
    assert strong_privacy(view(done)[0]) == T


def with_drop_outs(run: Callable, batches: str, dropout: dict[str, Any], seed: int, rounds: int, **more: Any) -> Any:
    aggregation = {"threshold": 0.55, "batches": batches, "weights": "equal"} | more
    keys = experiment(24, 12, rounds, aggregation=aggregation, availability={"dropout": dropout}, seed=seed)
    return run(keys, workload=Unchanging).rounds()


@pytest.mark.parametrize("seed", range(3))
def test_drop_outs_at_any_stage_leave_t_as_it_is(run: Callable, seed: int) -> None:
    dropout = {"rate": 0.1, "stage": "random"}
    broken, _ = view(with_drop_outs(run, "ignored", dropout, seed, 10))
    assert strong_privacy(broken) < T
    completed = []
    for smallest_sum in (None, T):
        kept = with_drop_outs(run, "whole", dropout, seed, 10, smallest_sum=smallest_sum)
        assert strong_privacy(view(kept)[0]) >= T
        assert all(not len(kept.plan.selection.batches.broken(outcome.survivors)) for outcome in kept.outcomes)
        completed.append(sum(outcome.state == "completed" for outcome in kept.outcomes))
    assert 0 < completed[0] <= completed[1]
    assert completed[1] >= 8


@pytest.mark.parametrize("stage", STAGES)
def test_drop_outs_at_each_stage_leave_t_as_it_is(run: Callable, stage: str) -> None:
    dropout = {"rate": 0.12, "stage": stage}
    kept, _ = view(with_drop_outs(run, "whole", dropout, 5, 8, smallest_sum=T))
    assert kept.any(axis=1).sum() >= 4
    assert strong_privacy(kept) >= T
    broken, _ = view(with_drop_outs(run, "ignored", dropout, 5, 8))
    assert (strong_privacy(broken) < T) == (stage in BEFORE_THE_SUM)


def test_the_recorded_survivors_are_those_in_the_sum(run: Callable) -> None:
    aggregation = {"threshold": 0.55, "smallest_sum": T}
    availability = {"dropout": {"rate": 0.1, "stage": "secagg/masked-input"}}
    done = run(experiment(24, 12, 6, aggregation=aggregation, availability=availability), "recorded").rounds()
    rows = done.rows("participation")
    for number, outcome in enumerate(done.outcomes, 1):
        survived = {row["client"] for row in rows if row["round"] == number and row["survived"]}
        assert survived == set(outcome.survivors.tolist())
    assert any(row["survived"] for row in rows)
    assert any(not row["survived"] for row in rows)


def test_whole_batches_alone_make_a_sum(run: Callable) -> None:
    """A server that selects freely splits batches: clients refuse to sum any of the parts."""
    adversary = {"dishonest": 6, "server": "prefer-dishonest"}
    done = run(experiment(30, 6, 3, aggregation={"threshold": 4}, adversary=adversary), "parts").rounds()
    assert {outcome.state for outcome in done.outcomes} == {"aborted"}
    assert all(outcome.reason.startswith("too-few-in-whole-batches") for outcome in done.outcomes)
