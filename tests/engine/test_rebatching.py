"""A server that moves clients to other batches: multi-round privacy falls, unless clients keep their batch."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.attacks.outcomes import attack_outcome
from analysis.multi_round import strong_privacy, weak_privacy
from analysis.multi_round.participation import strong_privacies
from testbed.errors import RunError
from testbed.parties.participation import ParticipationLog
from testbed.parties.pinned_batches import PinnedBatches
from testbed.records import RunRecords
from testbed.selection.announced_batches import BatchList, batches_of_list
from tests.engine.federations import checks_by_round
from tests.engine.test_batch_atomic import Unchanging, solved, view

POPULATION, PARTICIPANTS, T, ROUNDS = 24, 12, 4, 60


def experiment(membership: str, batches: str = "whole", protocol: str = "secagg", **more: Any) -> dict[str, Any]:
    selection = {"protocol": "batch-partition", "participants": PARTICIPANTS, "privacy": T, "membership": membership}
    return {
        "population": POPULATION,
        "rounds": ROUNDS,
        "selection": selection,
        "aggregation": {"protocol": protocol, "weights": "equal", "batches": batches},
        "time": {"compute": "modelled", "deadline_s": 20, "disconnects": "visible"},
        "adversary": {"server": ["rebatch"]},
    } | more


def outcomes_of(done: Any) -> tuple[np.ndarray, np.ndarray, set[str]]:
    """Return P, the sums, and the reasons of the rounds that were not completed."""
    matrix, sums = view(done)
    return matrix, sums, {outcome.reason.partition(":")[0] for outcome in done.outcomes if not len(outcome.survivors)}


@pytest.mark.parametrize(
    ("membership", "batches"), [("announced", "whole"), ("announced", "ignored"), ("known", "ignored")]
)
def test_without_a_guard_single_updates_are_revealed(run: Callable[..., Any], membership: str, batches: str) -> None:
    done = run(experiment(membership, batches), f"{membership}-{batches}", workload=Unchanging).rounds()
    matrix, sums, ends = outcomes_of(done)
    assert not ends
    assert strong_privacy(matrix) == weak_privacy(matrix).value == 1
    # Within ten rounds: the issue of this guard.
    assert strong_privacies(matrix.astype(np.bool_))[9] == 1
    updates = Unchanging(POPULATION).updates
    errors = np.abs(solved(matrix, sums) - updates).max(axis=1)
    assert (errors < 1e-3).sum() == POPULATION


@pytest.mark.parametrize(
    ("membership", "protocol", "refusals", "reason"),
    [
        ("pinned", "secagg", {"batches.changed-batch"}, "refused"),
        ("pinned", "lightsecagg", {"batches.changed-batch"}, "refused"),
        # Clients keep their input: members of their batch may have dropped out.
        ("known", "secagg", set(), "below-threshold"),
        ("known", "lightsecagg", {"aggregation.partial-batch"}, "below-threshold"),
    ],
)
def test_with_the_guard_t_stays_and_other_partitions_give_no_sum(
    run: Callable[..., Any], membership: str, protocol: str, refusals: set[str], reason: str
) -> None:
    keys = experiment(membership, protocol=protocol)
    if protocol == "lightsecagg":
        keys["aggregation"] |= {"threshold": 8, "max_colluders": 3}
    done = run(keys, f"{membership}-{protocol}", workload=Unchanging).rounds()
    matrix, sums, ends = outcomes_of(done)
    assert strong_privacy(matrix) == weak_privacy(matrix).value == T
    assert ends == {reason}
    by_round = checks_by_round(done)
    assert {check for checks in by_round.values() for check, _ in checks} == refusals
    assert not refusals or set(by_round) == set(range(2, ROUNDS + 1, 2))  # every second round
    updates = Unchanging(POPULATION).updates
    assert (np.abs(solved(matrix, sums) - updates).max(axis=1) > 1e-2).all()
    # Rounds with the first partition go on.
    assert matrix.any(axis=1).sum() == ROUNDS // 2


def test_without_the_check_of_the_pinned_batch_t_falls(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.selection.announced_batches.BatchMember.check_pinned", lambda self: None)
    matrix, _, _ = outcomes_of(run(experiment("pinned"), "unchecked", workload=Unchanging).rounds())
    assert strong_privacy(matrix) == 1


@pytest.mark.parametrize("membership", ["announced", "pinned"])
def test_an_honest_server_that_announces_batches_completes_every_round(
    run: Callable[..., Any], membership: str
) -> None:
    done = run(experiment(membership, adversary=None), membership, workload=Unchanging).rounds()
    matrix, _, ends = outcomes_of(done)
    assert not ends
    assert strong_privacy(matrix) == T


def test_a_servers_word_about_clients_is_no_detection(run: Callable[..., Any]) -> None:
    """Clients keep their inputs back, and the server of `rebatch` records that as their misbehaviour."""
    done = run(experiment("known"), "known", workload=Unchanging).rounds(4)
    assert "misbehaviour" in {row["kind"] for row in done.rows("events")}
    outcome = attack_outcome(RunRecords(done.records.path))
    assert (outcome.attacked, outcome.detected, outcome.completed) == (2, 0, 0)


def test_batches_are_pinned_once_and_survive_the_process(tmp_path: Path) -> None:
    first = PinnedBatches(ParticipationLog(tmp_path))
    assert first.of(3) is None
    first.pin(3, frozenset({1, 3, 4}))
    first.pin(3, frozenset({3, 7, 8}))
    again = PinnedBatches(ParticipationLog(tmp_path))
    assert again.of(3) == first.of(3) == {1, 3, 4}


def test_a_batch_that_was_not_written_whole_is_not_pinned(tmp_path: Path) -> None:
    log = ParticipationLog(tmp_path)
    log.pins(3, frozenset({1, 3, 4}))
    (file,) = tmp_path.rglob("*.participation")
    file.write_bytes(file.read_bytes()[:-24])  # one entry, the last
    assert ParticipationLog(tmp_path).batch(3) is None


def test_a_resumed_run_needs_the_pinned_batches(run: Callable[..., Any], tmp_path: Path) -> None:
    keys = experiment("pinned", adversary=None) | {"rounds": 4}
    run(keys, "run", workload=Unchanging).rounds(2)
    for file in (tmp_path / "run").rglob("*.participation"):
        file.unlink()
    with pytest.raises(RunError, match=f"{re.escape(str(tmp_path))}.*--out"):
        run(keys, "run", workload=Unchanging, resume=True)


def test_the_listed_batches_are_a_partition_with_the_others_in_one_more() -> None:
    batches = batches_of_list(BatchList(1, [0, 2, 5, 6], [9, 9, 4, 4]), population=8)
    assert batches.of.tolist() == [1, 2, 1, 2, 2, 0, 0, 2]
    assert batches.broken([0, 2, 5]).tolist() == [0]
