"""Plain federated averaging."""

import asyncio
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.aggregation.plain import Plain, PlainClient, PlainParameters, SendUpdate, Update
from testbed.errors import RoundAborted
from testbed.messages import Vector
from testbed.parties.client import RoleSpec, handles
from tests.aggregation.federations import SmallFederation

DELTAS = np.random.default_rng(0).uniform(-1, 1, (5, 8)).astype(np.float32)


@given(
    st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=4, max_size=4), min_size=1, max_size=8),
    st.data(),
)
def test_the_mean_is_the_weighted_mean_of_the_survivors(deltas: Any, data: st.DataObject) -> None:
    n = len(deltas)
    samples = data.draw(st.lists(st.integers(0, 500), min_size=n, max_size=n))
    gone = data.draw(st.sets(st.integers(0, n - 1)))
    weights = data.draw(st.sampled_from(["samples", "equal"]))
    small = SmallFederation(
        deltas, PlainParameters(weights=weights), protocol=Plain, samples=samples, leaving={"plain/update": gone}
    )
    shares = {i: samples[i] if weights == "samples" else 1 for i in range(n) if i not in gone}
    shares = {i: share for i, share in shares.items() if share}
    if not shares:
        with pytest.raises(RoundAborted, match="no-updates"):
            small.run()
        return
    aggregate = small.run()
    assert aggregate.survivors.tolist() == sorted(shares)
    assert aggregate.weight == sum(shares.values())
    for k in range(4):
        exact = sum(Fraction(deltas[i][k]) * share for i, share in shares.items()) / sum(shares.values())
        assert abs(Fraction(float(aggregate.mean[k])) - exact) <= len(shares) * Fraction(1, 2**32) + abs(exact) / 2**50


class Sends(PlainClient):
    vector: Vector
    weight = 1

    @handles(SendUpdate)
    def on_send_update(self, message: SendUpdate) -> Update:
        return Update(self.weight, self.vector)


@pytest.mark.parametrize(
    "vector",
    [
        Vector(np.zeros(7, np.float32), 0),
        Vector(np.zeros(9, np.float32), 0),
        Vector(np.zeros(1, np.float32), 0),
        Vector(np.zeros(8, np.uint32), 32),
    ],
)
@pytest.mark.parametrize("who", [0, 3])
def test_an_update_of_another_shape_is_left_out(vector: Vector, who: int) -> None:
    role = type("Odd", (Sends,), {"vector": vector})
    small = SmallFederation(
        DELTAS, PlainParameters(), protocol=Plain, roles=[RoleSpec(role, PlainParameters(), only=frozenset({who}))]
    )
    others = [i for i in range(5) if i != who]
    aggregate = small.run()
    assert aggregate.survivors.tolist() == others
    assert np.allclose(aggregate.mean, DELTAS[others].mean(0), atol=1e-7)


@pytest.mark.parametrize(
    ("vector", "told"),
    [
        (Vector(np.zeros(9, np.float32), 0), True),
        (Vector(np.zeros(9, np.uint32), 32), True),
        (Vector(np.zeros(9, np.uint32), 32), False),
    ],
)
def test_the_majority_does_not_decide_what_the_server_knows(vector: Vector, told: bool) -> None:
    role = type("Odd", (Sends,), {"vector": vector})
    small = SmallFederation(
        DELTAS,
        PlainParameters(),
        protocol=Plain,
        roles=[RoleSpec(role, PlainParameters(), only=frozenset({0, 1, 2}))],
        told=told,
    )
    assert small.run().survivors.tolist() == [3, 4]


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_an_update_that_cannot_be_summed_ends_the_round_and_not_the_run(value: float) -> None:
    role = type("Huge", (Sends,), {"vector": Vector(np.full(8, value, np.float32), 0)})
    small = SmallFederation(
        DELTAS, PlainParameters(), protocol=Plain, roles=[RoleSpec(role, PlainParameters(), only=frozenset({2}))]
    )
    with pytest.raises(RoundAborted, match="update-too-large"):
        small.run()


def test_nobody_sends_what_was_not_trained_in_this_round() -> None:
    async def play() -> Any:
        small = SmallFederation(DELTAS, PlainParameters(), protocol=Plain)
        await small.begin(1)
        replies = await small.network.ask(small.everybody, SendUpdate(2))
        small.network.end_round()
        return len(replies), small.refusals()

    assert asyncio.run(play()) == (0, [(i, "aggregation.no-trained-update") for i in range(5)])
