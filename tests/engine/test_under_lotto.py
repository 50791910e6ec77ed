"""Lotto with aggregation protocols beside `secagg`: they sum the updates of the list that participants have signed."""

from collections.abc import Callable
from typing import Any

import pytest

PLUS = {"protocol": "secagg-plus", "neighbours": 6, "threshold": 5, "dropouts": 0.3, "accept_weaker": True}
LOTTO = {"protocol": "lotto-client-centric", "participants": 16, "over_selection": 1.8}
KEYS: dict[str, Any] = {
    "population": 60,
    "rounds": 4,
    "selection": LOTTO,
    "aggregation": PLUS,
    "availability": {"dropout": {"rate": 0.06, "stage": "random"}},
}


def test_lotto_and_secagg_plus_train_a_model(run: Callable) -> None:
    done = run(KEYS, "plus").rounds()
    completed = [outcome for outcome in done.outcomes if outcome.state == "completed"]
    assert completed
    assert all(outcome.participants.size == 16 for outcome in completed)
    assert (
        done.federation.workload.evaluate(done.federation.state.model).loss
        < 0.5 * done.workload.evaluate(done.workload.initial_model()).loss
    )
    assert "refusal" not in {event["kind"] for event in done.rows("events")}


@pytest.mark.parametrize("selection", [LOTTO, {"protocol": "random", "participants": 16}])
def test_the_models_of_secagg_and_secagg_plus_are_the_same(selection: dict[str, Any], run: Callable) -> None:
    keys = KEYS | {"selection": selection, "availability": {"model": "always"}}
    plus, full = (run(keys | {"aggregation": aggregation}).rounds() for aggregation in (PLUS, {"protocol": "secagg"}))
    assert {outcome.state for outcome in plus.outcomes} <= {"completed", "aborted"}
    assert plus.federation.state.model.tobytes() == full.federation.state.model.tobytes()


@pytest.mark.parametrize(
    "aggregation",
    [
        {"protocol": "one-shot", "committee": {"size": 12, "serves_rounds": 2}, "max_colluders": 3},
        {"protocol": "pine", "helper": 3, "norm_bound": 20.0},
    ],
    ids=["one-shot", "pine"],
)
def test_servers_that_are_no_participants_are_told_the_list(run: Callable, aggregation: dict[str, Any]) -> None:
    """Members of a committee and a helper have mostly verified no list."""
    selection = {"protocol": "lotto-client-centric", "participants": 8, "over_selection": 2}
    lotto = run({"selection": selection, "aggregation": aggregation}, "lotto").rounds(3)
    assert {outcome.state for outcome in lotto.outcomes} == {"completed"}
