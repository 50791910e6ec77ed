"""The threshold, masks, batches and parameters; tests/conformance has the sums."""

import itertools
from typing import Any

import numpy as np
import pytest

from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.aggregation.lightsecagg.server import LightSecAgg
from testbed.batches import Batches
from testbed.errors import ExperimentError, RoundAborted
from tests.aggregation.federations import SmallFederation

STAGES = ("train", *LightSecAgg.stages)
INPUT = STAGES.index("lightsecagg/masked-input")


def federation(deltas: Any, parameters: LightSecAggParameters, **more: Any) -> SmallFederation:
    return SmallFederation(deltas, parameters, protocol=LightSecAgg, **more)


@pytest.mark.parametrize("stage", STAGES)
def test_exactly_u_clients_are_enough_at_every_stage_and_one_fewer_ends_the_round(stage: str) -> None:
    deltas = np.random.default_rng(1).uniform(-1, 1, (7, 12))
    parameters = LightSecAggParameters(threshold=4, max_colluders=2)
    aggregate = federation(deltas, parameters, leaving={stage: {0, 3, 6}}).run()
    members = [1, 2, 4, 5] if STAGES.index(stage) <= INPUT else list(range(7))
    assert aggregate.survivors.tolist() == members
    assert np.abs(aggregate.mean - np.float32(deltas)[members].mean(0)).max() <= 2 / (2**16 - 1)
    with pytest.raises(RoundAborted, match=r"below-threshold.*3 of 4 needed"):
        federation(deltas, parameters, leaving={stage: {0, 2, 3, 6}}).run()


def test_what_is_uploaded_is_masked() -> None:
    """Two clients with one update send different vectors, uniform in the field: neither shows its update."""
    small = federation(np.zeros((4, 5000)), LightSecAggParameters(threshold=3, max_colluders=1, weights="equal"))
    small.run()
    stage = next(host for host in small.hosts.hosts if host._vectors)
    vectors = [vector.values for found in stage._vectors.values() for vector in found.values() if vector.bits]
    assert len(vectors) >= 2
    for left, right in itertools.combinations(vectors, 2):
        assert (left == right).mean() < 0.01
    assert all(abs(float(vector.mean()) / 2**31 - 1) < 0.05 for vector in vectors)


def test_batches_are_summed_whole_or_not_at_all() -> None:
    deltas = np.random.default_rng(1).uniform(-1, 1, (9, 5))
    batches = Batches(np.repeat(np.arange(3), 3))
    parameters = LightSecAggParameters(threshold=4, max_colluders=1)
    small = federation(deltas, parameters, batches=batches, leaving={"lightsecagg/masked-input": {4}})
    assert small.run().survivors.tolist() == [0, 1, 2, 6, 7, 8]
    small = federation(deltas, parameters, batches=batches, leaving={"lightsecagg/masked-input": {1, 4}})
    with pytest.raises(RoundAborted, match="too-few-in-whole-batches"):
        small.run()


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
