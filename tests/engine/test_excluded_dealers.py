"""Clients that deal shares of no secret end one round each at most: they are left out from then on, resumed or not."""

from collections.abc import Callable
from typing import Any

import pytest

from testbed.network.contract import EXCLUDED
from testbed.running.status import status

DEALERS = [1, 4, 5]
KEYS: dict[str, Any] = {
    "seed": 3,
    "rounds": 8,
    "population": 12,
    "adversary": {"dishonest": DEALERS, "clients": ["deal-inconsistent-shares"]},
}
AGGREGATIONS = {
    "secagg": {"protocol": "secagg", "threshold": 0.6},
    "secagg, unsigned": {"protocol": "secagg", "threshold": 0.7, "consistency": "none"},
    "secagg-plus": {"protocol": "secagg-plus", "neighbours": 6, "threshold": 4, "accept_weaker": True},
}
SELECTIONS = {
    "random": {"protocol": "random", "participants": 8},
    "lotto-client-centric": {"protocol": "lotto-client-centric", "participants": 6, "over_selection": 2.0},
    "lotto-server-centric": {"protocol": "lotto-server-centric", "participants": 6, "over_selection": 2.0},
}


def play(run: Callable[..., Any], name: str, **keys: Any) -> Any:
    return run(KEYS | keys, name).rounds()


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_each_of_them_ends_one_round_at_most(aggregation: str, selection: str, run: Callable[..., Any]) -> None:
    done = play(run, "run", aggregation=AGGREGATIONS[aggregation], selection=SELECTIONS[selection])
    found: set[int] = set()
    for number, outcome in enumerate(done.outcomes, 1):
        assert not found & set(outcome.participants.tolist())
        events = [row for row in done.rows("events") if row["round"] == number and row["kind"] == "excluded"]
        named = {int(row["party"].removeprefix("client:")) for row in events}
        assert named <= set(DEALERS) - found
        if outcome.state == "aborted" and outcome.reason.startswith("wrong-shares"):
            assert named
        if outcome.state == "completed":
            assert not set(outcome.survivors.tolist()) & set(DEALERS) - found
        found |= named
    lost = [outcome for outcome in done.outcomes if outcome.reason.startswith("wrong-shares")]
    assert 1 <= len(lost) <= len(found) <= len(DEALERS)
    assert done.outcomes[-1].state == "completed" or selection != "random"
    assert done.federation.state.memory[EXCLUDED].tolist() == sorted(found)
    assert list(status(done.records.path).excluded) == sorted(found)
    assert "secagg/prove-share" in {row["stage"] for row in done.rows("exchanges")}


def test_a_resumed_run_leaves_them_out_too(run: Callable[..., Any]) -> None:
    keys = KEYS | {"selection": SELECTIONS["random"]}
    whole = run(keys, "whole").rounds()
    begun = run(keys, "run").rounds(2)
    assert EXCLUDED in begun.federation.state.memory
    done = run(keys, "run", resume=True).rounds()
    for table in ("rounds", "participation"):
        assert repr(done.rows(table)) == repr(whole.rows(table))


def test_without_dishonest_clients_no_proofs_are_requested(run: Callable[..., Any]) -> None:
    keys = {"adversary": None, "availability": {"dropout": {"rate": 0.1, "stage": "random"}}}
    done = play(run, "run", selection=SELECTIONS["random"], **keys)
    assert "secagg/prove-share" not in {row["stage"] for row in done.rows("exchanges")}
    assert EXCLUDED not in done.federation.state.memory
