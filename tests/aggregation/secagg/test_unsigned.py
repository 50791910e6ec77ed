"""SecAgg without signed survivors (``consistency: none``): the remaining checks, and the missing ones."""

import asyncio
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.aggregation.secagg.messages import AdvertiseKeys, UnmaskSurvivors
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.errors import RoundAborted
from tests.aggregation.federations import SmallFederation, Stand
from tests.messages_named import naming
from tests.thoroughness import examples

N, D, T = 6, 5, 5
DELTAS = np.random.default_rng(4).uniform(-1, 1, (N, D)).astype(np.float32)
UNSIGNED = SecAggParameters(threshold=T, consistency="none")


def stages_of(small: Any) -> list[str]:
    return [stage.stage for stage in small.network.exchanges]


@pytest.mark.parametrize("leaving", [{}, {"secagg/masked-input": {1}}, {"secagg/unmask-survivors": {4}}])
def test_the_sum_is_the_same_one_stage_earlier(leaving: dict[str, set[int]]) -> None:
    signed = SmallFederation(DELTAS, SecAggParameters(threshold=T), leaving=leaving)
    unsigned = SmallFederation(DELTAS, UNSIGNED, leaving=leaving)
    assert np.array_equal(signed.run().mean, unsigned.run().mean)
    assert stages_of(unsigned) == ["train", *unsigned.protocol.stages]
    assert stages_of(signed) == ["train", *signed.protocol.stages]
    assert len(stages_of(signed)) == len(stages_of(unsigned)) + 1
    assert SecAgg.stages == signed.protocol.stages


def test_too_few_answers_end_the_round() -> None:
    small = SmallFederation(DELTAS, UNSIGNED, leaving={"secagg/unmask-survivors": {0, 1}})
    with pytest.raises(RoundAborted, match=f"below-threshold: 4 of {T} needed revealed their shares"):
        small.run()


# -- above two thirds, on both sides ---------------------------------------------------------------------------------


@given(participants=st.integers(2, 60), threshold=st.integers(1, 60))
def test_the_threshold_is_above_two_thirds(participants: int, threshold: int) -> None:
    parameters = SecAggParameters(threshold=threshold, consistency="none")
    if Fraction(2 * participants, 3) < threshold <= participants:
        parameters.check(participants)
    else:
        with pytest.raises(ValueError, match=rf"^threshold: t = {threshold} of {participants} participants"):
            parameters.check(participants)


def test_the_server_does_not_begin_below_two_thirds() -> None:
    small = SmallFederation(DELTAS, SecAggParameters(threshold=4, consistency="none"))
    with pytest.raises(RoundAborted, match=naming("threshold-too-low", "t = 4 of 6", "two thirds")):
        small.run()
    assert stages_of(small) == ["train"]
    SmallFederation(DELTAS, SecAggParameters(threshold=4)).run()


def test_clients_do_not_take_part_below_two_thirds() -> None:
    async def play(consistency: Any) -> Any:
        small = SmallFederation(DELTAS, SecAggParameters(threshold=4, consistency=consistency))
        return await Stand(small, await small.begin()).ask(AdvertiseKeys(1, N, 4))

    assert asyncio.run(play("none")) == [(2, "secagg.threshold-too-low")]
    assert asyncio.run(play("signed")) == []


# -- checks of a single client ---------------------------------------------------------------------------------------


async def before_unmasking(parameters: SecAggParameters) -> Any:
    small = SmallFederation(DELTAS, parameters)
    start = await small.begin()
    stand = Stand(small, start)
    await small.protocol.advertise_keys(stand.state)
    await small.protocol.share_keys(stand.state)
    await small.protocol.collect_masked_inputs(stand.state)
    return stand


@pytest.mark.parametrize(
    ("survivors", "check"),
    [
        ([0, 1, 2, 3], "secagg.below-threshold"),
        ([0, 1, 3, 4, 5], "secagg.declared-dropped"),
        ([0, 1, 2, 3, 4, 40], "secagg.unknown-survivor"),
        ([0, 1, 2, 3, 4, 4], "secagg.unknown-survivor"),
    ],
)
def test_what_one_client_can_judge_alone_it_does(survivors: list[int], check: str) -> None:
    async def play() -> Any:
        stand = await before_unmasking(UNSIGNED)
        first = await stand.ask(UnmaskSurvivors(1, survivors))
        return first, await stand.ask(UnmaskSurvivors(1, list(range(N))))

    first, again = asyncio.run(play())
    assert first == [(2, check)]
    assert again == [(2, "secagg.out-of-order")]


def test_it_unmasks_one_set_of_survivors() -> None:
    async def play() -> Any:
        stand = await before_unmasking(UNSIGNED)
        replies = await stand.small.network.ask(np.array([2]), UnmaskSurvivors(1, [1, 2, 3, 4, 5]))
        return replies[2], await stand.ask(UnmaskSurvivors(1, list(range(N))))

    shares, again = asyncio.run(play())
    assert [row.client for row in shares.mask_keys] == [0]
    assert sorted(row.client for row in shares.self_masks) == [1, 2, 3, 4, 5]
    assert again == [(2, "secagg.out-of-order")]


def test_where_survivors_are_signed_nobody_unmasks_without() -> None:
    async def play() -> Any:
        stand = await before_unmasking(SecAggParameters(threshold=T))
        return await stand.ask(UnmaskSurvivors(1, list(range(N))))

    assert asyncio.run(play()) == [(2, "secagg.unsigned-survivors")]


@settings(max_examples=examples(20), deadline=None)
@given(data=st.data(), participants=st.integers(2, 9))
def test_sums_with_drop_outs(data: Any, participants: int) -> None:
    t = data.draw(st.integers(2 * participants // 3 + 1, participants))
    lost = data.draw(st.sets(st.integers(0, participants - 1), max_size=participants - t))
    deltas = np.random.default_rng(participants).uniform(-1, 1, (participants, 3)).astype(np.float32)
    parameters = SecAggParameters(threshold=t, consistency="none")
    small = SmallFederation(deltas, parameters, leaving={"secagg/masked-input": lost})
    aggregate = small.run()
    kept = sorted(set(range(participants)) - lost)
    assert aggregate.survivors.tolist() == kept
    assert np.abs(aggregate.mean - deltas[kept].mean(0)).max() <= 2 / (2**16 - 1)
