"""Fewest survivors, parameters and charges; tests/conformance and test_secure_sums have the sums."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.aggregation.one_shot.server import OneShot
from testbed.errors import ExperimentError, RoundAborted
from tests.aggregation.federations import SmallFederation
from tests.messages_named import naming


def federation(deltas: Any, parameters: OneShotParameters, **more: Any) -> SmallFederation:
    return SmallFederation(deltas, parameters, protocol=OneShot, **more)


def given_committee(*members: int, **more: Any) -> OneShotParameters:
    return OneShotParameters(
        committee={"selection": "given", "members": members}, **{"max_colluders": 1, "min_survivors": 2, **more}
    )


DELTAS = np.random.default_rng(1).uniform(-1, 1, (9, 12))


def test_fewer_survivors_than_the_experiment_says_end_the_round() -> None:
    parameters = given_committee(0, 1, 2, 3, min_survivors=0.6)
    gone = {"one-shot/masked-input": {5, 6, 7}}
    assert len(federation(DELTAS, parameters, leaving=gone).run().survivors) == 6
    gone["one-shot/masked-input"].add(8)
    with pytest.raises(RoundAborted, match=naming("below-threshold", "5 of 6", "input")):
        federation(DELTAS, parameters, leaving=gone).run()


def test_members_need_be_no_participants() -> None:
    small = federation(DELTAS, given_committee(5, 6, 7, 8))

    async def play() -> Any:
        await small.network.begin_round(1)
        start = await small.train()
        chosen = np.arange(4)
        return await small.protocol.aggregate(replace(start, participants=chosen, trained=chosen))

    aggregate = asyncio.run(play())
    assert aggregate.survivors.tolist() == [0, 1, 2, 3]
    assert aggregate.mean.tobytes() == small.mean_of([0, 1, 2, 3]).tobytes()
    assert small.refusals() == []


@pytest.mark.parametrize(
    ("given", "participants", "said"),
    [
        ({"max_colluders": 30}, 10, r"max_colluders: T = 30 of 60 members, with threshold 40; allowed 1 to 19"),
        ({"committee": {"size": 3}}, 10, r"max_colluders: T = 0 of 3 members"),
        ({"committee": {"size": 60, "threshold": 0.51}}, 10, r"T = 19 of 60 .* 31; allowed 1 to 1 "),
        ({"min_survivors": 11}, 10, r"min_survivors: 11 of 10 participants; allowed 2 to 10"),
        ({}, 1, r"protocol: one-shot needs at least 2 participants"),
        ({"bits": 27}, 300, r"bits: 27 .* 255 clients, not of 300; set 28"),
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
    """Nine clients, six members, threshold four; 12 parameters."""
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
