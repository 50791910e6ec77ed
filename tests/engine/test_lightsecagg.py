"""Federations that sum by LightSecAgg: the model of secagg; what one line says."""

from collections.abc import Callable
from typing import Any

import pytest

from testbed.errors import ExperimentError
from testbed.experiment.schema import validated

KEYS: dict[str, Any] = {
    "selection": {"participants": 14},
    "aggregation": {"protocol": "lightsecagg", "threshold": 0.5, "max_colluders": 0.3},
    "availability": {"dropout": {"rate": 0.2, "stage": "random"}},
    "rounds": 4,
}


def test_the_model_is_that_of_secagg(run: Callable) -> None:
    """Both round an update by the same coins, and sum all of them."""
    by_code = run({**KEYS, "availability": {}}, "one").rounds(2)
    by_pairs = run({**KEYS, "availability": {}, "aggregation": {"protocol": "secagg"}}, "two").rounds(2)
    assert by_code.federation.state.model.tobytes() == by_pairs.federation.state.model.tobytes()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"population": 2**32 - 5}, "aggregation.protocol: lightsecagg tells up to 4294967290 clients apart, not "),
        ({"threshold": 0.2}, "aggregation.max_colluders: T = 5 of 10 participants"),
        ({"noise": {"noise_multiplier": 1}}, "aggregation.noise: "),
        ({"bits": 40}, "aggregation.bits: "),
    ],
)
def test_what_cannot_be_is_one_line(changes: dict[str, Any], line: str) -> None:
    population = changes.get("population", 100)
    own = {key: value for key, value in changes.items() if key != "population"}
    keys = {
        "population": population,
        "selection": {"participants": 10},
        "aggregation": {"protocol": "lightsecagg", **own},
    }
    with pytest.raises(ExperimentError) as refused:
        validated(keys, "test")
    assert str(refused.value).startswith(f"test: {line}")
    assert "\n" not in str(refused.value)
