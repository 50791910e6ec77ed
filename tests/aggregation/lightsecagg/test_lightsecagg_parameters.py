"""Parameters of `lightsecagg` that cannot be."""

from typing import Any

import pytest

from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.errors import ExperimentError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"threshold": 11}, r"threshold: U = 11 of 10 participants; allowed 2 to 10"),
        ({"threshold": 1}, r"threshold: U = 1 of 10"),
        ({"threshold": 5}, r"max_colluders: T = 5 of 10 participants; allowed 0 to 4, below the threshold U = 5"),
        ({"max_colluders": 0.7}, r"max_colluders: T = 7 of 10 participants; allowed 0 to 6"),
    ],
)
def test_thresholds_that_cannot_be_are_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LightSecAggParameters(**given).check(10)


def test_sums_beyond_the_field_are_refused() -> None:
    parameters = LightSecAggParameters()
    parameters.check_weights(100, 655)
    with pytest.raises(ExperimentError, match=r"set aggregation\.levels_bits to 15, or aggregation\.weights to equal"):
        parameters.check_weights(100, 700)
    with pytest.raises(ExperimentError, match=r"lower selection\.participants"):
        LightSecAggParameters(levels_bits=24, weights="equal").check_weights(2**32, 1)
