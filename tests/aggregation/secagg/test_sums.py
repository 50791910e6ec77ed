"""The unmasked sum against the plain quantised sum, bit for bit."""

import asyncio
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.aggregation.quantisation import Quantisation
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.crypto.masks import add_masks, mask, word_dtype
from testbed.engine.round import Round, Server, selected_clients
from testbed.errors import ExperimentError, RoundAborted
from testbed.network.sums import add_masks_in_threads
from testbed.selection.contract import Selection, SelectionProtocol, SelectionRound
from tests.aggregation.federations import KeepsTotal, SmallFederation
from tests.messages_named import naming
from tests.thoroughness import examples

STAGES = ("train", *SecAgg.stages)


def quantised(delta: Any, weight: int, coins: bytes, *, clip: float, levels_bits: int, bits: int) -> list[int]:
    """What `Quantisation.encode` must give, one Python integer at a time."""
    highest = 2**levels_bits - 1
    row = []
    for value, coin in zip(delta, mask(coins, len(delta), 16).tolist(), strict=True):
        inside = float(value) * (highest / (2 * clip) * 65536) + (highest / 2 * 65536 + 0.5)
        exact = math.floor(min(max(inside, 0), highest * 65536 + 0.5))
        row.append((exact + coin) // 65536 * weight % 2**bits)
    return [*row, weight % 2**bits]


@st.composite
def rounds(draw: st.DrawFn) -> dict[str, Any]:
    size = draw(st.integers(2, 9))
    dimension = draw(st.integers(1, 40))
    weights = draw(st.sampled_from(["samples", "equal"]))
    samples = draw(st.lists(st.integers(1, 300), min_size=size, max_size=size))
    most = size * (max(samples) if weights == "samples" else 1)
    bits = draw(st.sampled_from([8, 13, 16, 17, 20, 24, 31, 32, 33, 40, 47, 63, 64]))
    room = bits - most.bit_length()
    if room < 1:
        weights, room = "equal", bits - size.bit_length()
    parameters = SecAggParameters(
        threshold=draw(st.integers(size // 2 + 1, size)),
        bits=bits,
        levels_bits=draw(st.integers(1, min(24, room))),
        clip=draw(st.sampled_from([0.25, 1.0, 3.7])),
        weights=weights,
    )
    parameters.check_weights(size, max(samples))
    finite = st.floats(-4, 4, width=32)
    deltas = draw(st.lists(st.lists(finite, min_size=dimension, max_size=dimension), min_size=size, max_size=size))
    # Most clients stay: else few examples would get past the first stages.
    fates = draw(st.lists(st.sampled_from([None] * 8 + list(STAGES)), min_size=size, max_size=size))
    return {"parameters": parameters, "samples": samples, "deltas": deltas, "fates": fates}


@settings(max_examples=examples(120))
@given(rounds())
def test_the_unmasked_sum_is_the_quantised_sum_of_the_survivors(case: dict[str, Any]) -> None:
    parameters, fates = case["parameters"], case["fates"]
    leaving = {stage: {i for i, fate in enumerate(fates) if fate == stage} for stage in STAGES}
    small = SmallFederation(case["deltas"], parameters, samples=case["samples"], protocol=KeepsTotal, leaving=leaving)
    left_after = [[i for i, fate in enumerate(fates) if fate not in STAGES[: k + 1]] for k in range(len(STAGES))]
    survivors = left_after[STAGES.index("secagg/masked-input")]
    if len(left_after[-1]) < parameters.threshold:
        with pytest.raises(RoundAborted) as ended:
            small.run()
        assert ended.value.reason == "below-threshold"
        return
    aggregate = small.run()
    assert aggregate.survivors.tolist() == survivors
    expected = [0] * (len(case["deltas"][0]) + 1)
    for i in survivors:
        weight = case["samples"][i] if parameters.weights == "samples" else 1
        coins = small.randomness.simulation_key(i, 1, "stochastic rounding")
        delta = np.asarray(case["deltas"][i], np.float32)
        row = quantised(
            delta, weight, coins, clip=parameters.clip, levels_bits=parameters.levels_bits, bits=parameters.bits
        )
        expected = [(a + b) % 2**parameters.bits for a, b in zip(expected, row, strict=True)]
    assert small.protocol.total == expected
    lane = word_dtype(parameters.bits)
    mean, weight = parameters.quantisation.decode(np.array(expected, lane), len(survivors))
    assert aggregate.mean.tobytes() == mean.tobytes()
    assert aggregate.weight == weight == expected[-1]
    assert small.misbehaviour() == []


class Everybody(SelectionProtocol):
    """A selection that takes everybody."""

    roles = ()

    async def select(self, round_: SelectionRound) -> Selection:
        return Selection(round_.everyone, round_.population)


@pytest.mark.parametrize("stage", STAGES)
def test_below_t_the_round_is_aborted_and_the_model_stays(stage: str) -> None:
    deltas = np.random.default_rng(1).uniform(-1, 1, (7, 12))
    small = SmallFederation(deltas, SecAggParameters(threshold=4), leaving={stage: {0, 2, 3, 6}})
    model = np.full(12, 0.25, np.float32)
    environment = small.environment
    nobody = np.zeros(7, np.int64)
    start = SelectionRound(
        1, 7, small.network, nobody, environment.directory, small.randomness, environment.experiment_id
    )
    server = Server(Everybody(None, 7), small.protocol)
    outcome = asyncio.run(Round(start, small.network, server, model, selected_clients).run())
    assert outcome.state == "aborted"
    assert outcome.reason.startswith("below-threshold: 3 of 4 needed")
    assert outcome.model.tobytes() == np.full(12, 0.25, np.float32).tobytes()
    assert outcome.survivors.tolist() == []


def test_a_server_that_is_told_nothing_of_shapes_sums_the_same() -> None:
    deltas = np.random.default_rng(1).uniform(-1, 1, (5, 50))
    told, untold = (SmallFederation(deltas, told=told).run() for told in (True, False))
    assert told.mean.tobytes() == untold.mean.tobytes()


@pytest.mark.parametrize("bits", [12, 16, 20, 32, 50, 64])
@pytest.mark.parametrize("count", [1, 15, 16, 40])
def test_masks_added_in_threads_are_masks_added_one_after_the_other(bits: int, count: int) -> None:
    generator = np.random.default_rng(5)
    seeds = [generator.bytes(32) for _ in range(count)]
    signs = generator.choice([1, -1], count).tolist()
    start = generator.integers(0, 2**bits, 1000, np.uint64).astype(word_dtype(bits))
    slow = start.copy()
    for seed, sign in zip(seeds, signs, strict=True):
        add_masks(slow, [seed], [sign], bits)
    add_masks_in_threads(start, seeds, signs, bits)
    assert start.tobytes() == slow.tobytes()


def test_a_ring_too_narrow_for_the_weights_is_refused_before_the_first_round() -> None:
    assert Quantisation(1.0, 16, 32).check(100, 655) is None
    with pytest.raises(ExperimentError, match=naming("aggregation.bits", 100, 656)):
        SecAggParameters(bits=32, levels_bits=16).check_weights(100, 656)
    SecAggParameters(bits=32, levels_bits=16, weights="equal").check_weights(100, 10**6)
