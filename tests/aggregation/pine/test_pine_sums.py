"""The sum from two aggregators' shares against the rounded updates, for dropouts at any stage."""

from typing import Any

import numpy as np
import pytest

from testbed.aggregation.pine.messages import PineSubmission
from testbed.aggregation.pine.parameters import PineParameters
from testbed.aggregation.pine.server import Pine
from testbed.crypto.field64 import PRIME
from testbed.errors import ExperimentError, RoundAborted
from testbed.messages import decode
from tests.aggregation.federations import SmallFederation
from tests.messages_named import naming

STAGES = ("train", *PineParameters.stages)
DELTAS = np.random.default_rng(1).uniform(-0.1, 0.1, (9, 13))


def federation(deltas: Any, parameters: PineParameters | None = None, **more: Any) -> SmallFederation:
    return SmallFederation(deltas, parameters or PineParameters(), protocol=Pine, **more)


def mean_of(small: SmallFederation, members: list[int]) -> Any:
    """`(d,)` the mean of the members' encoded updates, added up without a share."""
    given, deltas = small.parameters, small.workload.deltas
    total = sum(given.encode(deltas[i]) for i in members)
    return total[: small.workload.dimension] / (2**given.fraction_bits * len(members))


@pytest.mark.parametrize("stage", STAGES)
def test_a_lost_helper_ends_the_round_and_a_lost_client_does_not(stage: str) -> None:
    small = federation(DELTAS, leaving={stage: {3, 4}})
    aggregate = small.run()
    assert aggregate.survivors.tolist() == (
        [0, 1, 2, 5, 6, 7, 8] if stage in ("train", "pine/report") else list(range(9))
    )
    assert aggregate.mean.tobytes() == mean_of(small, aggregate.survivors.tolist()).tobytes()
    assert aggregate.weight == len(aggregate.survivors)
    parameters = PineParameters(helper=4)
    with pytest.raises(RoundAborted, match=naming("no-helper", "client 4")) as ended:
        federation(DELTAS, parameters, leaving={stage: {4}}).run()
    assert ended.value.reason == "no-helper"


def test_fewer_reports_than_the_experiment_says_end_the_round() -> None:
    gone = {"pine/report": {5, 6, 7}}
    assert len(federation(DELTAS, PineParameters(min_survivors=0.6), leaving=gone).run().survivors) == 6
    gone["pine/report"].add(8)
    with pytest.raises(RoundAborted, match=naming("below-threshold", "5 of 6", "report")):
        federation(DELTAS, PineParameters(min_survivors=0.6), leaving=gone).run()


def test_updates_that_are_too_long_are_scaled_down_and_valid() -> None:
    small = federation(100 * DELTAS)
    aggregate = small.run()
    assert small.misbehaviour() == []
    scaled = DELTAS / np.linalg.norm(DELTAS, axis=1, keepdims=True)
    assert np.abs(aggregate.mean - scaled.mean(0)).max() < 2**-17


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 1000, 70_001])
def test_rounding_never_takes_an_update_over_the_bound(dimension: int) -> None:
    parameters = PineParameters(fraction_bits=12)
    rng = np.random.default_rng(dimension)
    for scale in (0.5, 1.0, 30.0):
        drawn = rng.normal(size=dimension)
        vector = parameters.encode(np.float32(drawn / np.linalg.norm(drawn) * scale))
        assert int((vector.astype(object) ** 2).sum()) <= parameters.integer_bound**2
    assert not parameters.encode(np.zeros(dimension, np.float32)).any()


def test_neither_aggregator_sees_an_update() -> None:
    """The leader's shares of equal updates differ in every element, and are uniform."""
    small = federation(np.zeros((4, 4000)))
    small.run()
    sent = [
        answers.headers
        for delivery, answers in small.hosts.seen
        if delivery.kind.stage == "pine/report" and answers.headers
    ]
    reports = [decode(PineSubmission, header) for headers in sent for header in headers.values()]
    shares = [np.frombuffer(report.leader[: 8 * 4000], "<u8") for report in reports]
    assert len(shares) == 4
    assert all((left == right).mean() < 0.001 for left in shares for right in shares if left is not right)
    assert all(abs(float((share / PRIME).mean()) - 0.5) < 0.05 for share in shares)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"weights": "samples"}, "weights: .*set weights: equal"),
        ({"norm_bound": 1e6}, "norm_bound: 1e+06 with 20 bits behind the point"),
        ({"norm_bound": 1e-9}, "allowed 1 to"),
        ({"norm_bound": 1e305}, "less than or equal to 30854650"),
    ],
)
def test_what_cannot_be_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("+", r"\+")):
        PineParameters(**keys)


def test_a_bound_that_rounding_fills_is_refused() -> None:
    with pytest.raises(ExperimentError, match=naming("fraction_bits", 4, 1_000_000, "set 12")):
        PineParameters(fraction_bits=4).check_dimension(10, 1_000_000)
    PineParameters(fraction_bits=12).check_dimension(10, 1_000_000)
    with pytest.raises(ValueError, match=naming("helper", "client 5", "0 to 4")):
        PineParameters(helper=5).check_population(5)
    with pytest.raises(ValueError, match=naming("pine", 2, "participants")):
        PineParameters().check(1)
