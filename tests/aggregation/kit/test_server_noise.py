"""The server's correlated noise: what is released of sums, against the whole matrix; and how it is distributed."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.kit.ring_elements import ServerAddedNoise
from testbed.aggregation.kit.server_noise import ServerNoise
from testbed.aggregation.plain import Plain, PlainParameters
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.aggregation.secagg_plus.protocol import SecAggPlus
from testbed.arrays import Floats
from testbed.emulation.compute.cost import metered
from testbed.errors import ExperimentError, RoundAborted
from testbed.privacy.encoding import padded, rotation_seed
from testbed.privacy.gaussian import gaussian
from testbed.privacy.matrix.section import CorrelatedNoise
from testbed.privacy.participation_pattern import ParticipationPattern
from testbed.randomness import Randomness
from tests.aggregation.federations import SmallFederation
from tests.privacy.matrix import oracles
from tests.thoroughness import examples

ROUNDS, APART = 12, 4
STRATEGIES = ["blt", "band", "identity", "prefix-sum"]


def section(strategy: str = "blt", participants: int = 5, **more: Any) -> CorrelatedNoise:
    keys: dict[str, Any] = {"mechanism": "correlated", "strategy": strategy, "noise_multiplier": 1.25, "clip": 0.5}
    noise = CorrelatedNoise(**(keys | more)).planned_for(ROUNDS, 0.01)
    return noise.planned_under(participants, ParticipationPattern(APART))


def server_round(number: int, memory: dict[str, Any], randomness: Randomness | None = None) -> AggregationRound:
    nobody: Any = None
    everybody = np.arange(3)
    return AggregationRound(
        number, nobody, everybody, everybody, nobody, randomness=randomness or Randomness(5), memory=memory
    )


EXACT = {"scale": 2.0**28}


def planned_rows(noise: CorrelatedNoise, dimension: int) -> Floats:
    """`(n, d)` C^-1 z by the whole matrix."""
    secrets, length = Randomness(5), padded(dimension)
    rows = [gaussian(secrets.secret("server", step, "correlated noise"), length) for step in range(1, ROUNDS + 1)]
    matrix = oracles.dense(noise.matrix.coefficients)
    return oracles.solved(matrix, noise.deviation(dimension) * np.array(rows))[:, :dimension]


def released(noise: CorrelatedNoise, number: int, memory: dict[str, Any], sent: Any) -> tuple[Floats, Floats]:
    """What a round says of the sum of one update, times the participants planned; and the sum itself."""
    encoding, rotation = noise.encoding(len(sent), 64), rotation_seed(b"id", number)
    total = encoding.encode(np.asarray(sent, np.float32), rotation, bytes(32))
    noised = ServerNoise(noise).noised(total, encoding, rotation, server_round(number, memory))
    return encoding.decode(noised, 1, rotation)[0], encoding.decode(total, 1, rotation)[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(ended_early=st.sets(st.integers(1, ROUNDS)))
@settings(max_examples=examples(15))
def test_every_model_has_the_noise_of_its_prefix_sum(strategy: str, ended_early: set[int]) -> None:
    """Whichever rounds end early: theirs is in the next that does not, but where noise is independent."""
    noise, sums = section(strategy, **EXACT), np.random.default_rng(1).normal(0, 0.1, (ROUNDS, 6))
    memory: dict[str, Any] = {}
    rows, shown, true = planned_rows(noise, 6), np.zeros(6), np.zeros(6)
    if strategy == "identity":
        rows[[number - 1 for number in ended_early]] = 0
    for number in range(1, ROUNDS + 1):
        memory = {name: np.array(kept) for name, kept in memory.items()}  # as from a checkpoint
        if number in ended_early:
            continue
        with_noise, without = released(noise, number, memory, sums[number - 1])
        shown, true = shown + with_noise, true + without
        np.testing.assert_allclose(shown, true + rows[:number].sum(axis=0), atol=1e-6)


def test_noise_hides_a_sum_before_it_is_read() -> None:
    """At the edge of the ring, where one more step makes a sum the least instead of the most there is."""
    noise = section(participants=1, scale=64)
    encoding, rotation = noise.encoding(16, 16), rotation_seed(b"id", 1)
    sums = [np.append(np.full(16, edge, np.uint16), np.uint16(1)) for edge in (2**15 - 1, 2**15)]
    shown = [ServerNoise(noise).noised(total, encoding, rotation, server_round(1, {})) for total in sums]
    assert (shown[1] - shown[0]).tolist() == [1] * 16 + [0]
    assert len(set(shown[0].tolist())) > 10


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_noise_has_the_planned_covariance(strategy: str) -> None:
    """C times what was released is independent, of the planned deviation, in 16,384 coordinates of 12 rounds."""
    noise, dimension = section(strategy, **EXACT), 2**14
    memory: dict[str, Any] = {}
    shown = [released(noise, number, memory, np.zeros(dimension))[0] for number in range(1, ROUNDS + 1)]
    independent = oracles.dense(noise.matrix.coefficients) @ np.array(shown) / noise.deviation(dimension)
    low, high = stats.chi2.interval(1 - 1e-6, dimension)
    assert all(low < squares < high for squares in np.square(independent).sum(axis=1))
    products = np.corrcoef(independent)[np.triu_indices(ROUNDS, 1)]
    assert np.abs(products).max() < 5 / math.sqrt(dimension)
    assert stats.kstest(independent.ravel()[:20_000], "norm").pvalue > 1e-4


def test_the_deviation_is_the_multiplier_times_what_a_client_can_change() -> None:
    """An encoded update is never longer than `contribution`; the sensitivity is that of the rounds 0, 4, 8."""
    noise = section("band", noise_multiplier=2.0)
    column = noise.matrix.coefficients
    assert noise.deviation(30) == pytest.approx(2 * noise.contribution(30) * math.sqrt(3 * np.square(column).sum()))
    assert 0.5 < noise.contribution(30) < 0.55


def test_noise_is_drawn_for_no_round_twice_and_for_none_beyond_the_last() -> None:
    memory: dict[str, Any] = {}
    released(section(), 2, memory, np.zeros(3))
    for number in (1, 2, ROUNDS + 1):
        with pytest.raises(RoundAborted, match="no-noise"):
            released(section(), number, memory, np.zeros(3))
    with pytest.raises(RoundAborted, match="other-noise"):
        released(section("band"), 3, memory, np.zeros(3))


def test_a_sum_that_is_none_uses_up_no_noise() -> None:
    """A dishonest client whose update says that it is two ends the round; its row is in the next all the same."""
    policy = ServerAddedNoise(section(), 32)

    def mean(number: int, count: int, memory: dict[str, Any]) -> bytes:
        total = np.zeros(policy.length(10), np.uint32)
        total[-1] = count
        return policy.mean(total, 5, replace(server_round(number, memory), dimension=10, experiment_id=b"id"))[
            0
        ].tobytes()

    forged: dict[str, Any] = {}
    ended: dict[str, Any] = {}
    assert mean(1, 5, forged) == mean(1, 5, ended)
    with pytest.raises(RoundAborted, match="implausible-sum"):
        mean(2, 6, forged)
    assert mean(3, 5, forged) == mean(3, 5, ended)


def test_it_is_charged_by_element() -> None:
    noise = section(buffers=3)
    encoding = noise.encoding(10, 32)
    with metered() as work:  # of the second round, as the first ended early
        ServerNoise(noise).noised(np.zeros(17, np.uint32), encoding, bytes(32), server_round(2, {}))
    assert work.counts == {"gaussian.element": 2 * 16, "correlate.element": 2 * 16 * (3 + 1), "rotate.element": 16}


N, D = 12, 20
DELTAS = np.random.default_rng(8).normal(0, 0.05, (N, D)).astype(np.float32)
SECTION = section("blt", 10, scale=4096)
PROTOCOLS: dict[str, Any] = {
    "plain": (Plain, PlainParameters(weights="equal", noise=SECTION, bits=32)),
    "secagg": (SecAgg, SecAggParameters(weights="equal", noise=SECTION, threshold=7, bits=32)),
    "secagg-plus": (
        SecAggPlus,
        SecAggPlusParameters(
            weights="equal", noise=SECTION, neighbours=8, threshold=5, dropouts=0.5, accept_weaker=True, bits=32
        ),
    ),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_sum_of_those_left_is_divided_by_those_planned(protocol: str) -> None:
    kind, parameters = PROTOCOLS[protocol]
    small = SmallFederation(DELTAS, parameters, protocol=kind, leaving={"train": {2, 7}})
    found = small.run()
    assert found.survivors.tolist() == [one for one in range(N) if one not in (2, 7)]
    assert (found.weight, found.noise) == (10.0, 1.0)
    row = gaussian(small.randomness.secret("server", 1, "correlated noise"), padded(D))[:D] * SECTION.deviation(D)
    expected = (DELTAS[found.survivors].sum(axis=0) + row) / 10
    np.testing.assert_allclose(found.mean, expected, atol=2e-4)  # steps of 1/8192


def test_protocols_release_the_same() -> None:
    found = [
        SmallFederation(DELTAS, parameters, protocol=kind).run().mean.tobytes()
        for kind, parameters in PROTOCOLS.values()
    ]
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"noise_multiplier": None}, "noise_multiplier: set either this or epsilon"),
        ({"epsilon": 2.0}, "noise_multiplier: set either this or epsilon"),
        ({"delta": 0.1}, "delta: allowed only with epsilon"),
        ({"bands": 3}, "bands: allowed only with strategy: band"),
        ({"strategy": "identity", "buffers": 3}, "buffers: allowed only with strategy: blt"),
    ],
)
def test_what_does_not_hold_together_is_refused(keys: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        CorrelatedNoise(**({"mechanism": "correlated", "noise_multiplier": 1.0} | keys))


def test_noise_that_cannot_be_drawn_exactly_is_refused() -> None:
    with pytest.raises(ExperimentError, match=r"noise\.scale: at 16 steps to the clip the server's noise has"):
        section(noise_multiplier=0.01, scale=16).check(5, 10, 32)
    with pytest.raises(ExperimentError, match=r"aggregation\.bits: 5 updates of 32 steps to the clip and their"):
        section().check(5, 10, 8)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_ring_has_room_for_the_noise_of_rounds_that_ended_early(strategy: str) -> None:
    """The most that any number of rows in a row have together, but for independent noise, of which one is released."""
    matrix = section(strategy).matrix
    inverse = oracles.solved(oracles.dense(matrix.coefficients), np.eye(ROUNDS))
    sums = [inverse[begin:end].sum(axis=0) for end in range(1, ROUNDS + 1) for begin in range(end)]
    largest = 1.0 if strategy == "identity" else max(float(np.linalg.norm(one)) for one in sums)
    assert matrix.largest_release == pytest.approx(largest, rel=1e-9)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_epsilon_is_kept_and_hardly_more(strategy: str) -> None:
    noise = section(strategy, noise_multiplier=None, epsilon=3.0)
    assert noise.delta == 0.01
    assert 2.998 < noise.accountant().epsilon({1.0: 3}, 0.01) <= 3.0
