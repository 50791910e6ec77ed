"""Malicious selection servers in whole federations: attacks that honest clients detect, and attacks that succeed."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.federations import checks_by_round

POPULATION, PARTICIPANTS, ROUNDS = 30, 5, 4
LOTTO = ["lotto-client-centric", "lotto-server-centric"]
BASELINES = ["random", "weighted-random", "bernoulli", "partition", "batch-partition"]


def lotto(protocol: str, server: Any, dishonest: Any = 0.4, **selection: Any) -> dict[str, Any]:
    """n_min is two thirds of the population; of three candidates for a place about one is dishonest."""
    keys = {"protocol": protocol, "participants": PARTICIPANTS, "over_selection": 3.0, "min_population": 20}
    return {
        "population": POPULATION,
        "rounds": ROUNDS,
        "selection": keys | selection,
        "aggregation": {"protocol": "plain"},
        "adversary": {"dishonest": dishonest, "server": server},
    }


def attacked(run: Any, name: str) -> set[int]:
    """The rounds in which the server carried out a misbehaviour."""
    return {
        event["round"]
        for event in run.rows("events")
        if event["kind"] == "attack" and event["party"] == "server" and event["detail"].startswith(f"{name}: ")
    }


def dishonest_by_round(run: Any) -> dict[int, int]:
    """Dishonest participants on record, by round."""
    rows = run.rows("participation")
    assert {row["client"] for row in rows if row["dishonest"]} <= run.plan.dishonest
    return {number: sum(r["dishonest"] for r in rows if r["round"] == number) for number in range(1, ROUNDS + 1)}


REFUSED = [
    ({"understate-population": {"to": 19}}, "population-below-minimum", "announce", "participants"),
    ({"understate-population": {"to": 0.5}}, "population-below-minimum", "announce", "participants"),
    ({"refine-out-honest": {"to": 19}}, "population-below-minimum", "announce", "participants"),
    ({"reuse-round": {"round": 2}}, "round-reused", "announce", "participants"),
    ("grind-round", "after-last-round", "announce", "participants"),
    ("forge-output", ("invalid-proof", "output-mismatch"), "participants", "participants"),
    ("copy-output", ("invalid-proof", "output-mismatch"), "participants", "participants"),
    ("list-twice", "duplicate-client", "participants", "participants"),
    ("show-different-lists", "inconsistent-lists", "signatures", "signatures"),
    ("forge-signatures", "inconsistent-lists", "signatures", "signatures"),
]


@pytest.mark.parametrize("variant", [0, 1], ids=LOTTO)
@pytest.mark.parametrize(("server", "check", "at", "at_servers"), REFUSED)
def test_refusals_of_honest_clients(
    server: Any, check: Any, at: str, at_servers: str, variant: int, run: Callable
) -> None:
    """Every attacked round with an honest client in it is refused, by that check and at that stage alone."""
    done = run(lotto(LOTTO[variant], server), "here").rounds()
    name = server if isinstance(server, str) else next(iter(server))
    expected = (f"lotto.{check if isinstance(check, str) else check[variant]}", f"lotto/{(at, at_servers)[variant]}")
    rounds, seen = attacked(done, name), checks_by_round(done)
    assert len(rounds) >= ROUNDS - 2
    assert set(seen) <= rounds
    assert {check for found in seen.values() for check in found} == {expected}
    honest = {row["round"] for row in done.rows("participation") if not row["dishonest"]}
    for number, outcome in enumerate(done.outcomes, 1):
        if number in rounds and outcome.state == "completed":
            assert number not in honest  # no client was there that could have been harmed
        if number in rounds & honest:
            assert number in seen


@pytest.mark.parametrize("protocol", LOTTO)
def test_the_worst_residual_removal_is_not_seen(protocol: str, run: Callable) -> None:
    """Where everybody is a candidate, the dishonest fill the round, or are all in it."""
    for count in (3, 5, 12):
        done = run(lotto(protocol, "keep-dishonest-candidates", count, over_selection=50.0), f"{count}").rounds()
        assert [outcome.state for outcome in done.outcomes] == ["completed"] * ROUNDS
        assert set(dishonest_by_round(done).values()) == {min(count, PARTICIPANTS)}
        assert attacked(done, "keep-dishonest-candidates") == {1, 2, 3, 4}
        assert not checks_by_round(done)


@pytest.mark.parametrize("protocol", LOTTO)
def test_a_population_down_to_the_minimum_is_not_seen_and_makes_more_candidates(protocol: str, run: Callable) -> None:
    honest = run(lotto(protocol, []), "honest").rounds()
    for to in (None, 20, 0.67):
        server = "understate-population" if to is None else {"understate-population": {"to": to}}
        told = run(lotto(protocol, server), f"{to}").rounds()
        assert not checks_by_round(told)
        before, after = (sum(outcome.candidates for outcome in one.outcomes) for one in (honest, told))
        assert after > before
        assert "announced n = 20 of 30" in told.rows("events")[0]["detail"]


@pytest.mark.parametrize("protocol", LOTTO)
def test_refinement_down_to_the_minimum_is_not_seen(protocol: str, run: Callable) -> None:
    """With or without a rule of the experiment's; of n_min clients as many are dishonest as of n.

    Where the experiment has no rule, clients that count announcements (`max_round_gap`) do see it: see below.
    """
    for refine in (None, {"by": ["loss"], "exclude": 0.2}):
        uncounted = {"max_round_gap": "none"} if protocol == LOTTO[0] else {}
        selection = {"over_selection": 50.0, **(uncounted if refine is None else {"refine": refine})}
        done = run(lotto(protocol, "refine-out-honest", 12, **selection), f"{refine is None}").rounds()
        assert [outcome.state for outcome in done.outcomes] == ["completed"] * ROUNDS
        assert not checks_by_round(done)
        assert {outcome.candidates for outcome in done.outcomes} == {20}
        asked = {row["client"] for row in done.rows("exchanges") if row["round"] == 1}
        assert asked > done.plan.dishonest
        assert len(asked) == 20
        told = [event["detail"] for event in done.rows("events") if event["kind"] == "attack"]
        assert told == ["refine-out-honest: dropped 10 of 18 honest clients"] * ROUNDS


@pytest.mark.parametrize("protocol", LOTTO)
def test_a_population_is_understated_after_refinement(protocol: str, run: Callable) -> None:
    refine = {"by": ["loss"], "exclude": 0.2}
    keys = lotto(protocol, "understate-population", refine=refine) | {"rounds": 8}
    done = run(keys | {"adversary": keys["adversary"] | {"every": 2}}, "here").rounds()
    told = [event["detail"] for event in done.rows("events") if event["kind"] == "attack"]
    assert len(told) == 4
    assert "announced n = 20 of 30" in told[0]  # nobody is measured yet
    assert int(told[-1].rpartition(" ")[2]) < 30
    assert not checks_by_round(done)


@pytest.mark.parametrize("protocol", LOTTO)
def test_omitting_honest_candidates_is_seen_where_too_few_remain(protocol: str, run: Callable) -> None:
    few = run(lotto(protocol, {"omit-honest-candidates": {"keep": 2}}, 2, over_selection=50.0), "few").rounds()
    for seen in checks_by_round(few).values():
        assert seen == {("lotto.wrong-size", "lotto/participants")}
    assert len(checks_by_round(few)) == ROUNDS
    enough = run(lotto(protocol, {"omit-honest-candidates": {"keep": 2}}, 3, over_selection=50.0), "enough").rounds()
    assert not checks_by_round(enough)
    assert set(dishonest_by_round(enough).values()) == {3}


def test_clients_told_of_another_population_give_the_server_away(run: Callable) -> None:
    """As soon as a number over the others' threshold is in the list, and a list is all that the others see."""
    server = ["keep-dishonest-candidates", {"tell-different-populations": {"to": 20}}]
    done = run(lotto(LOTTO[0], server, 4, over_selection=2.0), "announced").rounds()
    seen = checks_by_round(done)
    assert {check for found in seen.values() for check in found} == {("lotto.above-threshold", "lotto/participants")}
    done = run(lotto(LOTTO[1], server), "listed").rounds()
    seen = checks_by_round(done)
    assert {check for found in seen.values() for check in found} == {("lotto.inconsistent-lists", "lotto/signatures")}


def test_reserving_a_place(run: Callable) -> None:
    """Server-centric: for the client that the server knows to stand most often, in each round in which it stands."""
    keys = lotto(LOTTO[1], "reserve-most-selected", over_selection=2.0) | {"rounds": 12}
    done = run(keys, "predicted").rounds()
    kept = {e["detail"].rpartition(" ")[2] for e in done.rows("events") if e["kind"] == "attack"}
    assert len(kept) == 1
    target = int(kept.pop())
    assert target not in done.plan.dishonest
    rounds = attacked(done, "reserve-most-selected")
    assert {row["round"] for row in done.rows("participation") if row["client"] == target} == rounds
    # Without it the same client takes part less often.
    honest = run(keys | {"adversary": {"dishonest": 0.4}}, "honest").rounds()
    assert sum(row["client"] == target for row in honest.rows("participation")) < len(rounds)
    done = run(lotto(LOTTO[0], "reserve-most-selected") | {"rounds": 6}, "guessed").rounds()
    assert len(attacked(done, "reserve-most-selected")) == 6


@pytest.mark.parametrize("protocol", BASELINES)
def test_where_it_may_choose_it_takes_its_own(protocol: str, run: Callable) -> None:
    keys = {"protocol": protocol, "participants": 6} | ({"privacy": 2} if protocol == "batch-partition" else {})
    for count in (4, 6, 9):
        adversary = {"dishonest": count, "server": "prefer-dishonest"}
        changes = {"rounds": ROUNDS, "selection": keys, "aggregation": {"protocol": "plain"}, "adversary": adversary}
        done = run(changes, f"{count}").rounds()
        assert set(dishonest_by_round(done).values()) == {min(count, 6)}
        assert [len(outcome.participants) for outcome in done.outcomes] == [6] * ROUNDS
        assert not checks_by_round(done)


def test_they_compose(run: Callable) -> None:
    """Two that nobody sees add up; one that is seen spoils it."""
    both = ["keep-dishonest-candidates", "understate-population"]
    for order in (both, both[::-1]):
        done = run(lotto(LOTTO[0], order), "-".join(order)).rounds()
        assert all(attacked(done, name) == {1, 2, 3, 4} for name in both)
        assert not checks_by_round(done)
    spoiled = run(lotto(LOTTO[0], [*both, "list-twice"]), "spoiled").rounds()
    assert all(outcome.state == "aborted" for outcome in spoiled.outcomes)


def test_clients_that_were_left_out_take_the_next_round_for_skipped(run: Callable) -> None:
    """Without refinement, a client that the server leaves out of round 2 is lost to the server from then on."""
    keys = lotto(LOTTO[0], "refine-out-honest", 12, over_selection=50.0) | {"rounds": 4}
    keys["adversary"] |= {"from_round": 2, "every": 9}
    done = run(keys, "here").rounds()
    left_out = set(range(POPULATION)) - {r["client"] for r in done.rows("exchanges") if r["round"] == 2}
    assert len(left_out) == 10
    refused = [(e["round"], int(e["party"].partition(":")[2])) for e in done.rows("events") if e["kind"] == "refusal"]
    assert sorted(refused) == [(number, client) for number in (3, 4) for client in sorted(left_out)]
    assert set(checks_by_round(done)) == {3, 4}
    assert [outcome.candidates for outcome in done.outcomes] == [30, 20, 20, 20]
    stopped = run(keys, "stopped").rounds(2)
    assert stopped.federation.state.round_number == 2
    resumed = run(keys, "stopped", resume=True, hosts=3).rounds()
    assert [outcome.candidates for outcome in resumed.outcomes] == [20, 20]
    assert checks_by_round(resumed) == checks_by_round(done)


def test_attacks_in_some_rounds_only(run: Callable) -> None:
    server = ["keep-dishonest-candidates", "refine-out-honest", "list-twice"]
    keys = lotto(LOTTO[0], server, over_selection=50.0, max_round_gap="none") | {"rounds": 7}
    keys["adversary"] |= {"from_round": 2, "every": 3}
    done = run(keys, "here").rounds()
    assert attacked(done, "keep-dishonest-candidates") == attacked(done, "list-twice") == {2, 5}
    states = [outcome.state for outcome in done.outcomes]
    assert states == ["aborted" if number in (2, 5) else "completed" for number in range(1, 8)]
    assert [outcome.candidates for outcome in done.outcomes] == [30, 20, 30, 30, 20, 30, 30]
