"""Dropouts at any stage never leave a part of a batch in a sum, and the sum is exact."""

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.aggregation.plain import Plain, PlainParameters
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.aggregation.secagg_plus.protocol import SecAggPlus
from testbed.batches import Batches
from testbed.errors import RoundAborted
from tests.aggregation.federations import KeepsTotal, SmallFederation
from tests.messages_named import naming
from tests.thoroughness import examples

STAGES = ("train", *SecAgg.stages)
UNSIGNED = (*STAGES[:4], "secagg/unmask-survivors")
BEFORE_THE_SUM = STAGES[:4]
DELTAS = np.random.default_rng(5).uniform(-1, 1, (12, 6)).astype(np.float32)
THREES = Batches.consecutive(12, 3)


@st.composite
def rounds(draw: st.DrawFn) -> dict[str, Any]:
    size, count = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    batches = Batches.consecutive(size * count + draw(st.integers(0, size - 1)), size)  # uneven, too
    n = len(batches.of)
    consistency = draw(st.sampled_from(["signed", "none"]))
    least = n // 2 + 1 if consistency == "signed" else 2 * n // 3 + 1
    parameters = SecAggParameters(
        threshold=draw(st.integers(least, n)),
        consistency=consistency,
        smallest_sum=draw(st.sampled_from([None, size, 2 * size])),
    )
    stages = STAGES if consistency == "signed" else UNSIGNED
    fates = draw(st.lists(st.sampled_from([None] * 30 + list(stages)), min_size=n, max_size=n))
    return {"batches": batches, "parameters": parameters, "fates": fates, "stages": stages}


def expected(case: dict[str, Any]) -> list[int] | None:
    """Return the clients that must be in the sum by the rules; None: the round must be aborted."""
    batches, parameters, fates, stages = (case[key] for key in ("batches", "parameters", "fates", "stages"))
    n, t = len(fates), parameters.threshold

    def there(after: int) -> set[int]:
        return {i for i, fate in enumerate(fates) if fate is None or stages.index(fate) > after}

    shared, arrived = there(2), there(3)
    whole = set(batches.members(batches.whole(sorted(shared & arrived))).tolist())
    fewest = t if parameters.smallest_sum is None else parameters.smallest_sum
    if len(arrived) < t or len(whole) < fewest:
        return None
    if stages is STAGES:
        signing = there(4) if parameters.smallest_sum is not None else there(4) & whole
        if len(signing) < t or len(there(5)) < t:
            return None
    elif len(there(4)) < t:
        return None
    assert n
    return sorted(whole)


@settings(max_examples=examples(150))
@given(rounds())
def test_the_sum_is_exact_and_of_whole_batches_or_the_round_is_aborted(case: dict[str, Any]) -> None:
    fates, batches = case["fates"], case["batches"]
    n, generator = len(fates), np.random.default_rng(len(fates))
    small = SmallFederation(
        generator.uniform(-1, 1, (n, 5)),
        case["parameters"],
        samples=generator.integers(1, 20, n).tolist(),
        protocol=KeepsTotal,
        batches=batches,
        leaving={stage: {i for i, fate in enumerate(fates) if fate == stage} for stage in case["stages"]},
    )
    included = expected(case)
    if included is None:
        with pytest.raises(RoundAborted):
            small.run()
    else:
        aggregate = small.run()
        assert aggregate.survivors.tolist() == included
        assert not len(batches.broken(included))
        assert small.protocol.total == small.quantised_sum(included).tolist()
    assert small.refusals() == []
    assert small.misbehaviour() == []


@pytest.mark.parametrize("consistency", ["signed", "none"])
@pytest.mark.parametrize("at", range(6))
def test_one_lost_member_takes_its_batch_along_only_while_there_is_no_sum(consistency: str, at: int) -> None:
    stages = STAGES if consistency == "signed" else UNSIGNED
    if at >= len(stages):
        pytest.skip("this variant has a stage less")
    small = SmallFederation(
        DELTAS, SecAggParameters(threshold=9, consistency=consistency), batches=THREES, leaving={stages[at]: {4}}
    )
    kept = [0, 1, 2, *range(6, 12)] if stages[at] in BEFORE_THE_SUM else list(range(12))
    aggregate = small.run()
    assert aggregate.survivors.tolist() == kept
    assert np.abs(aggregate.mean - DELTAS[kept].mean(0)).max() <= 2 / (2**16 - 1)


def test_who_is_left_out_uploads_nothing_when_that_is_known_before() -> None:
    def uploaded(leaving: dict[str, set[int]]) -> dict[int, int]:
        small = SmallFederation(
            DELTAS.repeat(100, axis=1), SecAggParameters(threshold=9), batches=THREES, leaving=leaving
        )
        small.run()
        stage = next(one for one in small.network.exchanges if one.stage == "secagg/masked-input")
        return dict(zip(stage.clients.tolist(), stage.bytes_up.tolist(), strict=True))

    late, early = uploaded({"secagg/masked-input": {4}}), uploaded({"secagg/share-keys": {4}})
    assert min(late[3], late[5]) > 2400
    assert max(early[3], early[5]) < 200
    assert early[6] > 2400


def test_those_left_out_help_to_unmask() -> None:
    """One batch is left out, and two of the nine others leave before they reveal: 7 and the two batch-mates make 9."""
    leaving = {"secagg/masked-input": {4}, "secagg/unmask": {0, 11}}
    small = SmallFederation(DELTAS, SecAggParameters(threshold=9), batches=THREES, leaving=leaving)
    assert small.run().survivors.tolist() == [0, 1, 2, *range(6, 12)]
    leaving["secagg/unmask"].add(5)
    with pytest.raises(RoundAborted, match="below-threshold"):
        SmallFederation(DELTAS, SecAggParameters(threshold=9), batches=THREES, leaving=leaving).run()


def test_with_a_smallest_sum_of_its_own_a_round_survives_a_loss_in_nearly_every_batch() -> None:
    leaving = {"train": {0}, "secagg/share-keys": {4}, "secagg/masked-input": {8}}
    small = SmallFederation(DELTAS, SecAggParameters(threshold=9, smallest_sum=3), batches=THREES, leaving=leaving)
    assert small.run().survivors.tolist() == [9, 10, 11]
    with pytest.raises(RoundAborted, match=naming("too-few-in-whole-batches", "6 of 9", "shared")):
        SmallFederation(DELTAS, SecAggParameters(threshold=9), batches=THREES, leaving=leaving).run()
    with pytest.raises(RoundAborted, match=naming("too-few-in-whole-batches", "3 of 4", "input")):
        SmallFederation(DELTAS, SecAggParameters(threshold=9, smallest_sum=4), batches=THREES, leaving=leaving).run()


def test_a_round_that_cannot_succeed_any_more_ends_before_the_uploads() -> None:
    small = SmallFederation(DELTAS, SecAggParameters(threshold=9), batches=THREES, leaving={"train": {0, 4}})
    with pytest.raises(RoundAborted, match=naming("too-few-in-whole-batches", "6 of 9", "trained")):
        small.run()
    assert [stage.stage for stage in small.network.exchanges] == ["train"]


def test_ignored_batches_and_batches_of_one_are_as_no_batches() -> None:
    leaving = {"secagg/masked-input": {4}, "secagg/unmask": {7}}
    survivors = [i for i in range(12) if i != 4]
    kept = [
        SmallFederation(DELTAS, SecAggParameters(threshold=7, batches=said), batches=batches, leaving=leaving).run()
        for said, batches in (("whole", None), ("ignored", THREES), ("whole", Batches.consecutive(12, 1)))
    ]
    assert [aggregate.survivors.tolist() for aggregate in kept] == [survivors] * 3
    assert len({aggregate.mean.tobytes() for aggregate in kept}) == 1


def test_without_a_loss_batches_cost_no_byte() -> None:
    def told(said: str) -> list[tuple[str, int, int]]:
        small = SmallFederation(DELTAS, SecAggParameters(threshold=7, batches=said), batches=THREES)
        small.run()
        return [(one.stage, int(one.bytes_down.sum()), int(one.bytes_up.sum())) for one in small.network.exchanges]

    assert told("whole") == told("ignored")


@pytest.mark.parametrize("said", ["whole", "ignored"])
def test_plain_sums_are_those_that_secure_ones_are_compared_with(said: str) -> None:
    parameters = PlainParameters(batches=said)
    small = SmallFederation(DELTAS, parameters, protocol=Plain, batches=THREES, leaving={"plain/update": {4}})
    kept = [i for i in range(12) if i != 4 and (said == "ignored" or i not in (3, 5))]
    assert small.run().survivors.tolist() == kept
    everywhere = SmallFederation(
        DELTAS, parameters, protocol=Plain, batches=THREES, leaving={"plain/update": {0, 4, 7, 9}}
    )
    if said == "whole":
        with pytest.raises(RoundAborted, match="no-whole-batch"):
            everywhere.run()
    else:
        assert len(everywhere.run().survivors) == 8


def test_sums_among_neighbours_leave_out_whole_batches_too() -> None:
    n, batches = 24, Batches.consecutive(24, 3)
    deltas = np.random.default_rng(6).uniform(-1, 1, (n, 4)).astype(np.float32)
    parameters = SecAggPlusParameters(dropouts=0.3, correctness=1, security=1, dishonest=0)
    for stage in ("train", *SecAggPlus.stages[:3]):
        small = SmallFederation(deltas, parameters, protocol=SecAggPlus, batches=batches, leaving={stage: {4, 20}})
        kept = [i for i in range(n) if i // 3 not in (1, 6)]
        aggregate = small.run()
        assert aggregate.survivors.tolist() == kept
        assert np.abs(aggregate.mean - deltas[kept].mean(0)).max() <= 2 / (2**16 - 1)
        assert [event.kind for event in small.network.events] == ["weak-batches"]


def test_a_server_that_is_told_no_dimension_is_not_misled_by_those_that_send_nothing() -> None:
    leaving = {"secagg/share-keys": {0, 4, 8}}
    parameters = SecAggParameters(threshold=7, smallest_sum=3)
    small = SmallFederation(DELTAS, parameters, batches=THREES, leaving=leaving, told=False)
    assert asyncio.run(small.aggregate()).survivors.tolist() == [9, 10, 11]
