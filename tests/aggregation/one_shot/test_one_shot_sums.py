"""The thresholds, masks, batches, parameters and charges; tests/conformance has the sums."""

import itertools
from typing import Any

import numpy as np
import pytest

from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.aggregation.one_shot.server import OneShot
from testbed.batches import Batches
from testbed.errors import ExperimentError, RoundAborted
from tests.aggregation.federations import SmallFederation

STAGES = ("train", *OneShotParameters.stages)
INPUT = STAGES.index("one-shot/masked-input")


def federation(deltas: Any, parameters: OneShotParameters, **more: Any) -> SmallFederation:
    return SmallFederation(deltas, parameters, protocol=OneShot, **more)


def given_committee(*members: int, **more: Any) -> OneShotParameters:
    return OneShotParameters(
        committee={"selection": "given", "members": members}, **{"max_colluders": 1, "min_survivors": 2, **more}
    )


def mean_of(small: SmallFederation, members: list[int]) -> Any:
    """`(d,)` the mean of the members' quantised updates, added up one by one without a mask."""
    given, workload = small.parameters, small.workload
    rows = []
    for i in members:
        weight = int(workload.sample_counts[i]) if given.weights == "samples" else 1
        coins = small.randomness.simulation_key(i, 1, "stochastic rounding")
        rows.append(given.quantisation.encode(workload.deltas[i], weight, coins).astype(object))
    return given.quantisation.decode(np.array(sum(rows), np.uint64), len(members))[0]


DELTAS = np.random.default_rng(1).uniform(-1, 1, (9, 12))


@pytest.mark.parametrize("stage", STAGES)
def test_clients_that_drop_out_cost_nothing_and_members_up_to_the_threshold_neither(stage: str) -> None:
    """Six members, of whom four must answer."""
    parameters = given_committee(0, 1, 2, 3, 4, 5)
    aggregate = federation(DELTAS, parameters, leaving={stage: {3, 6, 7, 8}}).run()
    members = [0, 1, 2, 4, 5] if STAGES.index(stage) <= INPUT else list(range(9))
    assert aggregate.survivors.tolist() == members
    assert np.abs(aggregate.mean - np.float32(DELTAS)[members].mean(0)).max() <= 2 / (2**16 - 1)
    with pytest.raises(RoundAborted, match=r"below-threshold.*3 of 4 needed members"):
        federation(DELTAS, parameters, leaving={stage: {1, 2, 3}}).run()


def test_fewer_survivors_than_the_experiment_says_end_the_round() -> None:
    parameters = given_committee(0, 1, 2, 3, min_survivors=0.6)
    gone = {"one-shot/masked-input": {5, 6, 7}}
    assert len(federation(DELTAS, parameters, leaving=gone).run().survivors) == 6
    gone["one-shot/masked-input"].add(8)
    with pytest.raises(RoundAborted, match=r"below-threshold: 5 of 6 needed sent their input"):
        federation(DELTAS, parameters, leaving=gone).run()


def test_members_need_be_no_participants() -> None:
    from dataclasses import replace

    small = federation(DELTAS, given_committee(5, 6, 7, 8))

    async def play() -> Any:
        await small.network.begin_round(1)
        start = await small.train()
        chosen = np.arange(4)
        return await small.protocol.aggregate(replace(start, participants=chosen, trained=chosen))

    import asyncio

    aggregate = asyncio.run(play())
    assert aggregate.survivors.tolist() == [0, 1, 2, 3]
    assert aggregate.mean.tobytes() == mean_of(small, [0, 1, 2, 3]).tobytes()
    assert small.refusals() == []


def test_what_is_uploaded_is_masked() -> None:
    """Clients with one update send different vectors, uniform modulo each prime: none shows its update."""
    small = federation(np.zeros((5, 9000)), given_committee(0, 1, 2, 3, weights="equal"))
    small.run()
    stage = next(host for host in small.hosts.hosts if host._vectors)
    vectors = [vector.values for found in stage._vectors.values() for vector in found.values() if vector.bits]
    assert len(vectors) >= 2
    for left, right in itertools.combinations(vectors, 2):
        assert (left == right).mean() < 0.001
    assert all(abs(float(vector.mean()) / 2**30 - 1) < 0.05 for vector in vectors)


def test_batches_are_summed_whole_or_not_at_all() -> None:
    batches = Batches(np.repeat(np.arange(3), 3))
    parameters = given_committee(0, 1, 2, 3, 6, 7, min_survivors=4)
    small = federation(DELTAS, parameters, batches=batches, leaving={"one-shot/masked-input": {4}})
    assert small.run().survivors.tolist() == [0, 1, 2, 6, 7, 8]
    small = federation(DELTAS, parameters, batches=batches, leaving={"one-shot/masked-input": {5, 8}})
    with pytest.raises(RoundAborted, match="too-few-in-whole-batches"):
        small.run()


@pytest.mark.parametrize(
    ("given", "participants", "said"),
    [
        ({"max_colluders": 30}, 10, r"max_colluders: T = 30 of 60 members, 40 of whom must answer; allowed 1 to 19"),
        ({"committee": {"size": 3}}, 10, r"max_colluders: T = 0 of 3 members"),
        ({"committee": {"size": 60, "threshold": 0.51}}, 10, r"T = 19 of 60 members, 31 of .*allowed 1 to 1 "),
        ({"min_survivors": 11}, 10, r"min_survivors: 11 of 10 participants; allowed 2 to 10"),
        ({}, 1, r"protocol: one-shot needs at least 2 participants"),
        ({"bits": 27}, 300, r"bits: 27 leave room for the errors of 255 clients, not of 300; set 28"),
    ],
)
def test_what_cannot_be_is_one_line(given: dict[str, Any], participants: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        OneShotParameters(**given).check(participants)


def test_sums_beyond_the_bits_are_refused() -> None:
    parameters = OneShotParameters(bits=27)
    parameters.check_weights(100, 20)
    with pytest.raises(ExperimentError, match=r"bits to 28, or aggregation\.levels_bits to 15, or .* equal"):
        parameters.check_weights(100, 21)
    with pytest.raises(ExperimentError, match=r"lower selection\.participants"):
        OneShotParameters(levels_bits=24, weights="equal").check_weights(2**31, 1)


def test_everybody_is_charged_for_its_work() -> None:
    """Of nine clients, six members, of whom four must answer; 12 parameters."""
    parameters = given_committee(0, 1, 2, 3, 4, 5)
    small = federation(DELTAS, parameters)
    small.run()
    of_stage = {exchange.stage: exchange for exchange in small.network.exchanges}
    members, needed, piece, coefficients = 6, 4, 1366, 7  # two elements a coefficient; 4,096 / (4 - 1)
    tested, row = 4, 1366 + 4  # binomial(6, 5) sets of rows: 2**-100 takes four combinations
    client = {
        "quantise.element": 12, "sha256.byte": 4 * 12 + members * 4 * row, "ring_lwe.error": 4096 + coefficients,
        "ring_lwe.multiply": 3 * coefficients, "ring_lwe.add": 3 * (coefficients + 13),
        "mask.element": 3 * coefficients + piece + tested * (needed + piece),
        "field.multiply": members * needed * row + tested * needed * piece,
        "x25519.agree": members, "aead.seal": members, "aead.byte": members * 4 * row,
    }  # fmt: skip
    opening = {
        "x25519.agree": 9, "aead.open": 9, "aead.byte": 9 * 4 * row, "sha256.byte": 9 * 4 * row,
        "mask.element": 9 * tested * piece, "field.multiply": 9 * tested * piece,
    }  # fmt: skip
    summing = {"ed25519.verify": needed, "field.add.element": 9 * piece}
    for stage, counts in zip(parameters.stages, (client, opening, {"ed25519.sign": 1}, summing), strict=True):
        expected = small.compute.modelled_s(counts)
        assert of_stage[stage].compute_s == pytest.approx(expected, rel=1e-9), stage
