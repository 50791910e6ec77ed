"""Sums with noise in them: exactly the survivors' encoded updates and shares, under every protocol and dropout."""

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from testbed.adversary.clients import SkipNoise
from testbed.adversary.misbehaviour import AttackContext, dishonest_role, malicious_server
from testbed.adversary.secagg.reconstruction import ContradictDropouts
from testbed.adversary.secagg.small_sums import ShrinkTheSum
from testbed.aggregation.plain import Plain, PlainClient, PlainParameters, SendNoisyUpdate, SendUpdate
from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.aggregation.secagg_plus.protocol import SecAggPlus, SecAggPlusClient
from testbed.batches import Batches
from testbed.errors import RoundAborted
from testbed.parties.client import RoleSpec
from testbed.privacy.encoding import rotation_seed
from testbed.privacy.noise import Noise
from tests.aggregation.federations import SmallFederation
from tests.thoroughness import examples

N, D = 12, 20
DELTAS = np.random.default_rng(8).normal(0, 0.1, (N, D)).astype(np.float32)
STAGES = ("train", *SecAgg.stages)
NOISE = Noise(noise_multiplier=0.7, scale=100.5)
GAUSSIAN = Noise(mechanism="discrete-gaussian", noise_multiplier=2.0, clip=0.3)
EXPERIMENT = b"a test's own id."


def secagg(noise: Noise = NOISE, **more: Any) -> SecAggParameters:
    return SecAggParameters(**{"weights": "equal", "noise": noise, "threshold": 7, "bits": 24} | more)


def secagg_plus(noise: Noise = NOISE) -> SecAggPlusParameters:
    return SecAggPlusParameters(
        weights="equal", noise=noise, neighbours=8, threshold=5, dropouts=0.5, accept_weaker=True, bits=24
    )


def plain(noise: Noise = NOISE) -> PlainParameters:
    return PlainParameters(weights="equal", noise=noise, bits=24)


PROTOCOLS: dict[str, tuple[Any, Any]] = {
    "secagg": (SecAgg, secagg),
    "secagg-plus": (SecAggPlus, secagg_plus),
    "plain": (Plain, plain),
}
CLIENTS = {"secagg": SecAggClient, "secagg-plus": SecAggPlusClient, "plain": PlainClient}


def encoded(small: Any, client: int, *, noisy: bool = True) -> Any:
    """Return a client's `(32+1,)` update and its share of the noise of all N, modulo the ring."""
    noise, delta = small.parameters.noise, small.workload.deltas[client]
    encoding = noise.encoding(len(delta), small.parameters.bits)
    rounding = small.randomness.secret(client, 1, "noise rounding")
    vector = encoding.encode(delta, rotation_seed(EXPERIMENT, 1), rounding)
    if noisy:
        planned = len(small.everybody)
        noise.share(planned, len(delta), small.randomness.secret(client, 1, "noise share")).add_to(vector)
    return vector & vector.dtype.type((1 << small.parameters.bits) - 1)


def mean_of(small: Any, clients: list[int]) -> Any:
    """Return the expected mean over these clients."""
    total = np.sum([encoded(small, client) for client in clients], axis=0, dtype=np.uint32)
    total &= np.uint32((1 << small.parameters.bits) - 1)
    encoding = small.parameters.noise.encoding(small.workload.dimension, small.parameters.bits)
    return encoding.decode(total, len(clients), rotation_seed(EXPERIMENT, 1))[0]


@pytest.mark.parametrize("noise", [NOISE, GAUSSIAN], ids=["skellam", "discrete-gaussian"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("stage", [None, *STAGES, "plain/update"])
def test_the_sum_is_that_of_the_survivors_and_their_shares(protocol: str, stage: str | None, noise: Noise) -> None:
    server, parameters = PROTOCOLS[protocol]
    gone = {2, 9} if stage is not None else set()
    small = SmallFederation(DELTAS, parameters(noise), protocol=server, leaving={stage or "": gone})
    aggregate = small.run()
    before_the_sum = (*STAGES[:4], "plain/update") if protocol != "plain" else ("train", "plain/update")
    lost = stage in before_the_sum and (stage == "train" or stage in server.stages)
    survivors = [client for client in range(N) if not (lost and client in gone)]
    assert aggregate.survivors.tolist() == survivors
    assert aggregate.mean.tobytes() == mean_of(small, survivors).tobytes()
    assert aggregate.weight == len(survivors)
    assert aggregate.noise == len(survivors) / N
    assert small.misbehaviour() == []


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.sampled_from([None] * 6 + list(STAGES)), min_size=N, max_size=N), st.integers(1, 3))
def test_drop_outs_at_all_stages_at_once(fates: list[str | None], hosts: int) -> None:
    leaving = {stage: {client for client, fate in enumerate(fates) if fate == stage} for stage in STAGES}
    small = SmallFederation(DELTAS, secagg(), leaving=leaving, hosts=hosts)
    if fates.count(None) < 7:
        with pytest.raises(RoundAborted, match="below-threshold"):
            small.run()
        return
    aggregate = small.run()
    survivors = [client for client, fate in enumerate(fates) if fate is None or STAGES.index(fate) > 3]
    assert aggregate.survivors.tolist() == survivors
    assert aggregate.mean.tobytes() == mean_of(small, survivors).tobytes()
    assert aggregate.noise == len(survivors) / N


def test_all_protocols_and_any_number_of_hosts_have_one_mean() -> None:
    means = {
        SmallFederation(DELTAS, parameters(), protocol=server, hosts=hosts).run().mean.tobytes()
        for server, parameters in PROTOCOLS.values()
        for hosts in (1, 5)
    }
    assert len(means) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_only_whole_batches_are_summed_with_their_noise(protocol: str) -> None:
    server, parameters = PROTOCOLS[protocol]
    stage = "plain/update" if protocol == "plain" else "secagg/masked-input"
    batches = Batches.consecutive(N, 3)
    small = SmallFederation(DELTAS, parameters(), protocol=server, leaving={stage: {4}}, batches=batches)
    aggregate = small.run()
    survivors = [0, 1, 2, 6, 7, 8, 9, 10, 11]
    assert aggregate.survivors.tolist() == survivors
    assert aggregate.mean.tobytes() == mean_of(small, survivors).tobytes()
    assert aggregate.noise == 9 / 12


def test_secrets_from_the_system_make_other_noise_each_time() -> None:
    means = [SmallFederation(DELTAS, secagg(), secrets_from_system=True).run().mean for _ in range(2)]
    assert not np.array_equal(*means)
    assert np.abs(means[0] - means[1]).max() < 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_that_does_not_know_the_rotation_ends_the_round(protocol: str) -> None:
    server, parameters = PROTOCOLS[protocol]
    with pytest.raises(RoundAborted, match="no-rotation"):
        SmallFederation(DELTAS, parameters(), protocol=server, told=False).run()


# -- clients that skip their noise ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("skipping", [0, 3, 9])
def test_the_sum_has_the_noise_of_those_that_added_some(protocol: str, skipping: int) -> None:
    """Updates are 0, so the sum is the noise: its variance is the planned one times the part that added theirs."""
    server, parameters = PROTOCOLS[protocol]
    dimension, dishonest = 1 << 14, frozenset(range(skipping))
    chosen, gone = parameters(Noise(noise_multiplier=0.5)), {11}
    role = dishonest_role(CLIENTS[protocol], [SkipNoise], AttackContext(dishonest))
    small = SmallFederation(
        np.zeros((N, dimension)), chosen, protocol=server, roles=[RoleSpec(role, chosen, dishonest)],
        leaving={"train": gone},
    )  # fmt: skip
    aggregate = small.run()
    assert aggregate.noise == 11 / 12
    honest = aggregate.noise * (11 - skipping) / 11
    planned = (0.5 / 11) ** 2  # of the mean, in squared clips
    found = float(aggregate.mean @ aggregate.mean) / planned
    low, high = (stats.chi2.ppf(tail, dimension) * honest for tail in (1e-4, 1 - 1e-4))
    assert low <= found <= high
    attacks = [event for event in small.network.events if event.kind == "attack"]
    assert [(event.party, event.detail) for event in attacks] == [
        (f"client:{client}", "skip-noise: sent its update without its share of the noise") for client in range(skipping)
    ]


def test_in_rounds_that_are_not_attacked_they_add_their_noise() -> None:
    role = dishonest_role(SecAggClient, [SkipNoise], AttackContext(frozenset({1, 2}), from_round=2))
    small = SmallFederation(DELTAS, secagg(), roles=[RoleSpec(role, secagg(), frozenset({1, 2}))])
    assert small.run().mean.tobytes() == mean_of(small, list(range(N))).tobytes()


# -- a malicious server -----------------------------------------------------------------------------------------------


def test_a_reconstructed_update_has_its_own_share_of_the_noise_alone() -> None:
    """With secure aggregation broken, a twelfth of the variance is left."""
    server = malicious_server(SecAgg, [ContradictDropouts], AttackContext(frozenset(range(2, N))))
    small = SmallFederation(DELTAS, secagg(), protocol=server)
    aggregate = small.run()
    (victim,) = small.protocol.attempt.members
    assert np.array_equal(small.protocol.attempt.vector, encoded(small, victim))
    assert aggregate.noise == 1.0


def test_a_shrunken_sum_has_less_noise() -> None:
    chosen = secagg(consistency="none", threshold=9)
    server = malicious_server(SecAgg, [ShrinkTheSum], AttackContext(frozenset(range(4, N))))
    small = SmallFederation(DELTAS, chosen, protocol=server)
    aggregate = small.run()
    attempt = small.protocol.attempt
    assert attempt.succeeded
    total = np.sum([encoded(small, client) for client in attempt.members], axis=0, dtype=np.uint32)
    assert np.array_equal(attempt.vector, total & np.uint32((1 << 24) - 1))
    assert aggregate.noise == len(aggregate.survivors) / N


# -- refusals of clients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "question", "check"),
    [
        (plain(), SendUpdate(1), "plain.noise-left-out"),
        (PlainParameters(), SendNoisyUpdate(1, 3), "plain.no-noise"),
        (plain(), SendNoisyUpdate(1, 0), "plain.too-many-participants"),
        (plain(), SendNoisyUpdate(1, 13), "plain.too-many-participants"),
        (plain(Noise(noise_multiplier=1e6)), SendNoisyUpdate(1, 2), "aggregation.noise-out-of-range"),
    ],
)
def test_questions_that_clients_refuse(parameters: Any, question: Any, check: str) -> None:
    small = SmallFederation(DELTAS, parameters, protocol=Plain)
    small.environment.maximum_participants = N

    async def play() -> Any:
        await small.begin()
        await small.network.ask(small.everybody, question)
        small.network.end_round()
        return small.refusals()

    assert asyncio.run(play()) == [(client, check) for client in range(N)]
