"""Federations that sum by one-shot aggregation: the model of secagg, under Lotto; what one line says."""

from collections.abc import Callable
from typing import Any

import pytest

from testbed.errors import ExperimentError
from testbed.experiment.schema import validated

KEYS: dict[str, Any] = {
    "selection": {"participants": 14},
    "aggregation": {"protocol": "one-shot", "committee": {"size": 12, "serves_rounds": 2}, "max_colluders": 3},
    "availability": {"dropout": {"rate": 0.2, "stage": "random"}},
    "rounds": 5,
}


def test_the_model_is_that_of_secagg(run: Callable) -> None:
    """Both round an update by the same coins, and sum all of them."""
    by_committee = run({**KEYS, "availability": {}}, "one").rounds(2)
    by_pairs = run({**KEYS, "availability": {}, "aggregation": {"protocol": "secagg"}}, "two").rounds(2)
    assert by_committee.federation.state.model.tobytes() == by_pairs.federation.state.model.tobytes()


def test_under_lotto_the_members_are_told_who_has_agreed(run: Callable) -> None:
    """Members are mostly no participants: they have verified no list."""
    selection = {"protocol": "lotto-client-centric", "participants": 8, "over_selection": 2}
    lotto = run({**KEYS, "selection": selection, "availability": {}}, "lotto").rounds(3)
    assert {outcome.state for outcome in lotto.outcomes} == {"completed"}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"committee": {"size": 200}}, "aggregation.committee.size: 200 members of a population of 100; at most 100"),
        ({"committee": {"threshold": 20}}, "aggregation.committee.threshold: 20 of 60 members; allowed 31 to 60"),
        ({"max_colluders": 30}, "aggregation.max_colluders: T = 30 of 60 members"),
        ({"min_survivors": 11}, "aggregation.min_survivors: 11 of 10 participants"),
        ({"noise": {"noise_multiplier": 1}}, "aggregation.noise: "),
        ({"bits": 40}, "aggregation.bits: "),
    ],
)
def test_what_cannot_be_is_one_line(changes: dict[str, Any], line: str) -> None:
    keys = {"selection": {"participants": 10}, "aggregation": {"protocol": "one-shot", **changes}}
    with pytest.raises(ExperimentError) as refused:
        validated(keys, "test")
    assert str(refused.value).startswith(f"test: {line}")
    assert "\n" not in str(refused.value)
