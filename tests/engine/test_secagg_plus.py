"""Lotto and `secagg-plus` together: the graph is that of the list that the participants have signed."""

from collections.abc import Callable
from typing import Any

import pytest

from testbed.experiment.schema import Experiment

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


def test_what_does_not_fit_is_said_before_the_run() -> None:
    weak = {"protocol": "secagg-plus", "neighbours": 40}
    with pytest.raises(ValueError, match=r"aggregation\.neighbours: k = 40, .* of 700 participants"):
        Experiment.model_validate({"population": 2000, "selection": {"participants": 700}, "aggregation": weak})
    given = {"protocol": "secagg-plus", "neighbours": 10}  # ten of ten neighbours are dishonest too often
    with pytest.raises(ValueError, match=r"aggregation\.dishonest, dropouts: .* k = 10 neighbours leave no safe"):
        Experiment.model_validate({"population": 2000, "selection": {"participants": 700}, "aggregation": given})
