"""A server that announces only favourable rounds: its gain, and the refusals of honest clients."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from analysis.bounds.lotto import secagg_fails

POPULATION, PARTICIPANTS, THRESHOLD, DISHONEST, ROUNDS = 40, 6, 5, 8, 120
ENOUGH = 2 * THRESHOLD - PARTICIPANTS
SERVER = ["skip-rounds", "keep-dishonest-candidates", "contradict-dropouts"]
ALONE = r"victim \d+: .*reconstructed"


def skipping(protocol: str = "lotto-client-centric", server: Any = SERVER, **selection: Any) -> dict[str, Any]:
    keys = {"protocol": protocol, "participants": PARTICIPANTS, "over_selection": 1.5}
    return {
        "seed": 11,
        "population": POPULATION,
        "rounds": ROUNDS,
        "selection": keys | selection,
        "aggregation": {"protocol": "secagg", "threshold": THRESHOLD, "weights": "equal"},
        "adversary": {"dishonest": DISHONEST, "server": server},
    }


def announced(run: Any) -> list[int]:
    """The numbers that were announced instead of the run's."""
    lines = [e["detail"] for e in run.rows("events") if e["kind"] == "attack"]
    return [int(found[1]) for line in lines if (found := re.match(r"skip-rounds: announced round (\d+)", line))]


def broken(run: Any) -> int:
    return sum(bool(re.search(ALONE, e["detail"])) for e in run.rows("events") if e["kind"] == "attack")


def refused(run: Any) -> set[str]:
    """The checks by which honest clients refused."""
    honest = {f"client:{client}" for client in range(POPULATION)} - {f"client:{c}" for c in run.plan.dishonest}
    found = (e for e in run.rows("events") if e["kind"] == "refusal" and e["party"] in honest)
    return {event["detail"].partition(":")[0] for event in found}


UNBOUNDED = [
    ("lotto-client-centric", {"max_round_gap": "none"}),
    ("lotto-server-centric", {}),
]


@pytest.mark.parametrize(("protocol", "selection"), UNBOUNDED, ids=["client-centric", "server-centric"])
def test_without_a_bound_on_the_gap_every_completed_round_is_broken(
    protocol: str, selection: dict[str, Any], run: Callable
) -> None:
    """And none is seen, though Corollary 1 says that few are broken: of the rounds that there are, few are."""
    done = run(skipping(protocol, **selection), "here").rounds()
    states = [outcome.state for outcome in done.outcomes]
    completed = states.count("completed")
    assert completed >= 3
    assert completed >= broken(done) >= max(3, 0.8 * completed)  # in a round without honest clients there is no victim
    assert refused(done) == set()
    numbers = announced(done)
    assert numbers == sorted(set(numbers))
    assert 0 < len(numbers) < ROUNDS / 4
    assert states[len(numbers) :] == ["skipped"] * (ROUNDS - len(numbers))
    assert "no-favourable-round" in done.outcomes[-1].reason
    chance = secagg_fails(DISHONEST, PARTICIPANTS, 1.5, POPULATION, THRESHOLD)
    assert chance < 0.15
    assert len(numbers) < 3 * chance * ROUNDS  # each number serves once


def test_with_a_bound_of_one_the_clients_refuse(run: Callable) -> None:
    done = run(skipping(), "here").rounds(8)
    assert len(announced(done)) == 8
    skipped = [place for place, number in enumerate(announced(done), 1) if number > place]
    assert len(skipped) == 8
    assert refused(done) == {"lotto.round-gap-too-large"}
    assert not [row for row in done.rows("participation") if row["survived"] and not row["dishonest"]]
    assert [outcome.state for outcome in done.outcomes].count("aborted") >= 6  # accomplices alone complete the others
    assert broken(done) == 0


def test_a_gap_of_three_lets_a_server_choose_among_three(run: Callable) -> None:
    """A larger gap is refused; the rounds that the server may announce are announced, and favourable."""
    done = run(skipping(max_round_gap=12, server=["skip-rounds", "keep-dishonest-candidates"]), "here").rounds(20)
    heard, states = 0, []
    for number, outcome in zip(announced(done), done.outcomes, strict=False):
        within = number <= heard + 12
        states.append((within, "round-gap-too-large" in outcome.reason))
        heard = number if within else heard + 1
    assert states
    assert all(within != seen for within, seen in states)
    assert {within for within, _ in states} == {True, False}


def test_where_a_beacon_opens_rounds_there_is_one_look_at_each(run: Callable) -> None:
    """The server opens round after round: with the gap bounded it is seen; the beacon alone lets it pass rounds."""
    bounded = run(skipping(round_beacon="public"), "bounded").rounds(4)
    assert refused(bounded) == {"lotto.round-gap-too-large"}
    assert broken(bounded) == 0
    alone = run(skipping(round_beacon="public", max_round_gap="none"), "alone").rounds(4)
    numbers = announced(alone)
    opened = [row["beacon_bytes_down"] // 67 for row in alone.rows("rounds")]
    steps = [after - before for before, after in zip([0, *numbers], numbers, strict=False)]
    completed = [outcome.state == "completed" for outcome in alone.outcomes]
    assert [count - done - 1 for count, done in zip(opened, completed, strict=True)] == steps
    assert sum(steps) > 4  # each look burnt a number


def test_lots_are_no_use_ahead_where_a_beacon_opens_rounds(run: Callable) -> None:
    """The numbers that favour the server without the beacon are others than with it."""
    keys = {"max_round_gap": "none"}
    without = announced(run(skipping(**keys), "without").rounds(4))
    assert announced(run(skipping(**keys, round_beacon="public"), "with").rounds(4)) != without


def test_whole_batches(run: Callable) -> None:
    """Batches without an honest member are known ahead; nobody needs to break anything to see them listed."""
    keys = skipping("verifiable-batch-partition", ["skip-rounds", "keep-dishonest-candidates"], privacy=2, beacon=None)
    keys["adversary"]["dishonest"] = list(range(DISHONEST))
    unbounded = keys | {"selection": keys["selection"] | {"max_round_gap": "none"}}
    done = run(unbounded, "unbounded").rounds(5)
    assert refused(done) == set()
    listed = [row["round"] for row in done.rows("participation") if row["dishonest"]]
    rounds = [number for number, outcome in enumerate(done.outcomes, 1) if outcome.state == "completed"]
    assert rounds
    assert all(listed.count(number) >= ENOUGH for number in rounds)
    assert refused(run(keys, "bounded").rounds(5)) == {"lotto.round-gap-too-large"}


def test_rounds_in_which_it_behaves_get_numbers_that_are_left(run: Callable) -> None:
    keys = skipping(max_round_gap="none")
    keys["adversary"] |= {"every": 3}
    done = run(keys, "here").rounds(6)
    assert refused(done) == set()
    assert len(announced(done)) == 2
    assert all("round-reused" not in outcome.reason for outcome in done.outcomes)


@pytest.mark.parametrize("selection", [{"max_round_gap": "none"}, {"max_round_gap": 4}, {"round_beacon": "public"}])
def test_again_on_three_hosts_and_resumed(selection: dict[str, Any], run: Callable) -> None:
    def result(done: Any) -> tuple[Any, ...]:
        rows = [{k: v for k, v in row.items() if k != "wall_s"} for row in done.rows("rounds")]
        events = [event for event in done.rows("events") if event["kind"] != "resume"]
        return rows, events, done.federation.state.model.tobytes()

    whole = result(run(skipping(**selection), "whole").rounds(4))
    assert result(run(skipping(**selection), "spread", hosts=3).rounds(4)) == whole
    run(skipping(**selection), "stopped").rounds(2)
    assert result(run(skipping(**selection), "stopped", resume=True, hosts=2).rounds(2)) == whole


def test_how_many_are_enough(run: Callable) -> None:
    server = [{"skip-rounds": {"at_least": 1}}, "keep-dishonest-candidates"]
    done = run(skipping(server=server, max_round_gap="none"), "here").rounds(5)
    assert max(announced(done)) < ROUNDS / 4
    plain = skipping(server=["skip-rounds"], max_round_gap="none") | {"aggregation": {"protocol": "plain"}}
    assert run(plain, "plain").plan.adversary._context.enough_to_break == 1
    assert done.plan.adversary._context.enough_to_break == ENOUGH


@pytest.mark.parametrize("beacon", ["none", "public"])
@pytest.mark.parametrize("protocol", ["lotto-client-centric", "lotto-server-centric"])
def test_rounds_that_are_announced_may_still_be_ended(protocol: str, beacon: str, run: Callable) -> None:
    """No gap and no beacon helps: the bound is that of all rounds, and it is attained among those that happen."""
    server = ["abort-unfavourable-rounds", "keep-dishonest-candidates", "contradict-dropouts"]
    done = run(skipping(protocol, server, round_beacon=beacon), "here").rounds(60)
    states = [outcome.state for outcome in done.outcomes]
    completed = states.count("completed")
    assert 0 < completed < 20
    assert completed >= broken(done) >= 0.7 * completed  # where honest clients take part there is a victim
    assert refused(done) == set()
    assert {outcome.reason for outcome in done.outcomes if outcome.state == "aborted"} >= {
        "too-few-candidates: claimed by the server"
    }
    chance = secagg_fails(DISHONEST, PARTICIPANTS, 1.5, POPULATION, THRESHOLD)
    assert completed < 3 * chance * 60
