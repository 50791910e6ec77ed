"""A server with several participant lists in one round: its gain, and the checks that stop it."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

POPULATION, PARTICIPANTS, DISHONEST, ROUNDS = 40, 6, 8, 6
PROTOCOLS: dict[str, dict[str, Any]] = {
    "lotto-client-centric": {"over_selection": 3.5},
    "lotto-server-centric": {"over_selection": 3.5},
    "verifiable-batch-partition": {"privacy": 2, "beacon": None, "over_selection": 5.0},
}
AGGREGATIONS: dict[str, dict[str, Any]] = {
    "secagg": {"protocol": "secagg", "threshold": 4, "weights": "equal"},
    "secagg-plus": {
        "protocol": "secagg-plus", "neighbours": 4, "threshold": 4, "weights": "equal", "accept_weaker": True,
    },
    "lightsecagg": {"protocol": "lightsecagg", "threshold": 4, "max_colluders": 2, "weights": "equal"},
}  # fmt: skip


def lists_at_once(candidates: int, dishonest: int, participants: int) -> int:
    """Return L: the number of lists of s candidates, with the dishonest among them in each and no other twice."""
    ours = min(dishonest, participants - 1)
    return (candidates - dishonest) // (participants - ours)


def parallel(
    protocol: str, aggregation: dict[str, Any] | None = None, server: Any = "parallel-lists", **more: Any
) -> Any:
    return {
        "population": POPULATION,
        "rounds": ROUNDS,
        "selection": {"protocol": protocol, "participants": PARTICIPANTS, **PROTOCOLS[protocol], **more},
        "aggregation": AGGREGATIONS["secagg"] if aggregation is None else aggregation,
        "adversary": {"dishonest": list(range(DISHONEST)), "server": server},
    }


def lines(run: Any, kind: str, pattern: str) -> list[tuple[int, Any]]:
    found = ((e["round"], re.search(pattern, e["detail"])) for e in run.rows("events") if e["kind"] == kind)
    return [(number, match) for number, match in found if match]


SUMS = r"parallel-lists: (\d+) sums in one round, over ([\d, ]+) honest"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_list_has_a_sum_of_its_own(protocol: str, run: Callable) -> None:
    """Honest clients that are in one list each see nothing; all of them are summed, in groups that share nobody."""
    done = run(parallel(protocol), "here").rounds()
    assert not lines(done, "refusal", ".")
    sums = lines(done, "attack", SUMS)
    assert sum(int(found[1]) >= 2 for _, found in sums) >= 3
    for number, found in sums:
        honest = [int(count) for count in found[2].split(", ")]
        rows = [r for r in done.rows("participation") if r["round"] == number and not r["dishonest"] and r["survived"]]
        assert sum(honest) == len(rows) == len({row["client"] for row in rows})
        ours = PARTICIPANTS - honest[0]
        assert set(honest) == {PARTICIPANTS - ours}
        assert ours + sum(honest) > PARTICIPANTS  # more than an honest server's round has
    assert {outcome.state for outcome in done.outcomes if len(outcome.survivors)} == {"completed"}
    if protocol != "verifiable-batch-partition":
        for number, found in lines(done, "attack", r"(\d+) lists in one round, with the same (\d+) of its clients"):
            candidates = done.outcomes[number - 1].candidates
            if int(found[2]) < PARTICIPANTS - 1:  # with more of them, some are in no list
                assert int(found[1]) == lists_at_once(candidates, int(found[2]), PARTICIPANTS)


def test_the_sums_are_right(run: Callable) -> None:
    """The model is the mean over the lists, each the mean of its members' updates: accomplices count once in each."""
    done = run(parallel("lotto-client-centric"), "here")
    model = done.federation.state.model.copy()
    done.rounds(1)
    (_, found), *_ = lines(done, "attack", r"(\d+) lists in one round, with the same (\d+) of its clients")
    count, ours = int(found[1]), int(found[2])
    assert count >= 2
    rows = done.rows("participation")
    updates = {row["client"]: done.workload.train(row["client"], model, 1).delta for row in rows}
    times = {row["client"]: count if row["dishonest"] else 1 for row in rows}
    assert sum(row["dishonest"] for row in rows) == ours
    mean = sum(times[client] * update.astype(np.float64) for client, update in updates.items()) / sum(times.values())
    assert sum(times.values()) == count * PARTICIPANTS
    assert np.allclose(done.federation.state.model - model, mean, atol=1e-4)


@pytest.mark.parametrize("other", ["secagg-plus", "lightsecagg"])
def test_under_other_sums(run: Callable, other: str) -> None:
    done = run(parallel("lotto-client-centric", AGGREGATIONS[other]), "here").rounds(3)
    assert not lines(done, "refusal", ".")
    assert max(int(found[1]) for _, found in lines(done, "attack", SUMS)) >= 2


def test_with_enough_accomplices_each_list_has_a_victim(run: Callable) -> None:
    """Corollary 1 bounds how often a round is broken; in a round that is, as many updates are seen as it has lists."""
    keys = parallel("lotto-client-centric", server=["parallel-lists", "contradict-dropouts"])
    done = run(keys, "here").rounds()
    victims = lines(done, "attack", r"victim (\d+): .*reconstructed")
    most = max(sum(number == other for other, _ in victims) for number, _ in victims)
    assert most >= 2
    assert len({(number, found[1]) for number, found in victims}) == len(victims)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_beacon_registers_one_list(protocol: str, run: Callable) -> None:
    done = run(parallel(protocol, round_beacon="public"), "here").rounds()
    tried = {number for number, _ in lines(done, "attack", r"(\d+) lists in one round.*; [01] agreed on")}
    assert len(tried) >= 3
    assert tried == {number for number, _ in lines(done, "attack", r"\d+ lists in one round")}
    checks = {found[0] for _, found in lines(done, "refusal", r"^[a-z.-]+")}
    assert checks == {"beacon.second-list", "lotto.list-not-registered"}
    assert not any(int(found[1]) > 1 for _, found in lines(done, "attack", SUMS))
    by_round = [[r for r in done.rows("participation") if r["round"] == number] for number in range(1, ROUNDS + 1)]
    assert all(len(rows) <= PARTICIPANTS for rows in by_round)


def test_no_more_lists_than_the_experiment_says(run: Callable) -> None:
    done = run(parallel("lotto-client-centric", server=[{"parallel-lists": {"lists": 2}}]), "here").rounds(3)
    assert {found[1] for _, found in lines(done, "attack", SUMS)} == {"2"}


def test_with_too_few_candidates_for_two_it_goes_on_with_one(run: Callable) -> None:
    done = run(parallel("lotto-client-centric", over_selection=1.3), "here").rounds()
    several = {number for number, _ in lines(done, "attack", "lists in one round")}
    with_one = [o for number, o in enumerate(done.outcomes, 1) if number not in several and o.state == "completed"]
    assert with_one
    assert all(len(outcome.participants) == PARTICIPANTS for outcome in with_one)
    assert not lines(done, "refusal", ".")


def test_again_on_three_hosts_and_resumed(run: Callable) -> None:
    def result(done: Any) -> tuple[Any, ...]:
        events = [event for event in done.rows("events") if event["kind"] != "resume"]
        return done.rows("rounds"), events, done.federation.state.model.tobytes()

    keys = parallel("lotto-client-centric")
    whole = run(keys, "whole").rounds(2)
    assert lines(whole, "attack", SUMS)
    assert result(run(keys, "spread", hosts=3).rounds(2)) == result(whole)
    run(keys, "stopped").rounds(1)
    assert result(run(keys, "stopped", resume=True, hosts=2).rounds(1)) == result(whole)
