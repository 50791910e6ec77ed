"""A server that declares honest clients dropped out: the threshold alone stops it, and whole batches."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.federations import checks_by_round
from tests.engine.test_under_lotto import LOTTO, PLUS

NAME = "drop-honest"
SECAGG = {"protocol": "secagg", "threshold": 10}
RANDOM = {"protocol": "random", "participants": 16}


def keys(**more: Any) -> dict[str, Any]:
    adversary = {"dishonest": 0.2, "server": NAME}
    return {
        "population": 60, "rounds": 4, "selection": RANDOM, "aggregation": SECAGG, "adversary": adversary,
    } | more  # fmt: skip


def attacks(done: Any) -> list[tuple[int, str]]:
    events = [event for event in done.rows("events") if event["kind"] == "attack"]
    assert all(event["detail"].startswith(f"{NAME}: claimed that ") for event in events)
    return [(event["round"], event["detail"]) for event in events]


def honest_in_sums(done: Any) -> list[int]:
    return [len(set(outcome.survivors.tolist()) - done.plan.dishonest) for outcome in done.outcomes]


@pytest.mark.parametrize("selection", [RANDOM, LOTTO], ids=["random", "lotto"])
def test_the_sum_is_over_as_many_clients_as_the_threshold_and_stays_hidden(
    run: Callable[..., Any], selection: Any
) -> None:
    done = run(keys(selection=selection), "run").rounds()
    assert [outcome.state for outcome in done.outcomes] == ["completed"] * 4
    assert [len(outcome.survivors) for outcome in done.outcomes] == [10] * 4
    for outcome, honest in zip(done.outcomes, honest_in_sums(done), strict=True):
        accomplices = set(outcome.participants.tolist()) & done.plan.dishonest
        assert accomplices <= set(outcome.survivors.tolist())
        assert honest == 10 - len(accomplices)
    assert len(attacks(done)) == 4
    assert checks_by_round(done) == {}


def test_with_enough_accomplices_the_victim_stands_alone(run: Callable[..., Any]) -> None:
    accomplices, victim = list(range(1, 12)), 0
    selection = {"protocol": "random", "participants": 20}
    adversary = {"dishonest": accomplices, "server": {NAME: {"victim": victim}}, "from_round": 2}
    aggregation = SECAGG | {"threshold": 11}
    asked = keys(population=20, selection=selection, aggregation=aggregation, adversary=adversary)
    done = run(asked, "run").rounds()
    assert len(done.outcomes[0].survivors) == 20
    for outcome in done.outcomes[1:]:
        assert set(outcome.survivors.tolist()) - done.plan.dishonest == {victim}
    said = f"{NAME}: claimed that 8 clients dropped out: client 0 is summed with 0 honest ones"
    assert attacks(done) == [(number, said) for number in (2, 3, 4)]


def test_a_victim_that_is_not_there_leaves_the_round_alone(run: Callable[..., Any]) -> None:
    done = run(keys(adversary={"dishonest": [1], "server": {NAME: {"victim": 0}}}), "run").rounds()
    took_part = [0 in outcome.participants.tolist() for outcome in done.outcomes]
    assert not all(took_part)
    assert [len(outcome.survivors) < 16 for outcome in done.outcomes] == took_part


def test_under_secagg_plus_every_neighbourhood_keeps_its_threshold(run: Callable[..., Any]) -> None:
    done = run(keys(aggregation=PLUS), "run").rounds()
    honest = run(keys(aggregation=PLUS, adversary={"dishonest": 0.2}), "honest").rounds()
    assert [outcome.state for outcome in done.outcomes] == ["completed"] * 4
    assert all(few < all_ for few, all_ in zip(honest_in_sums(done), honest_in_sums(honest), strict=True))
    assert checks_by_round(done) == {}


@pytest.mark.parametrize("batches", ["whole", "ignored"])
def test_whole_batches_are_refused_in_part(run: Callable[..., Any], batches: str) -> None:
    selection = {"protocol": "batch-partition", "participants": 16, "privacy": 4}
    adversary = {"dishonest": 0.1, "server": NAME}
    aggregation = SECAGG | {"batches": batches}
    done = run(keys(selection=selection, aggregation=aggregation, adversary=adversary), "run").rounds()
    assert len(attacks(done)) == 4
    if batches == "whole":
        assert [outcome.state for outcome in done.outcomes] == ["aborted"] * 4
        assert all(
            ("aggregation.partial-batch", "secagg/consistency") in seen for seen in checks_by_round(done).values()
        )
        assert set(checks_by_round(done)) == {1, 2, 3, 4}
    else:
        assert [len(outcome.survivors) for outcome in done.outcomes] == [10] * 4
        assert checks_by_round(done) == {}
