"""A malicious server and its accomplices against one victim: its quantised update bit for bit, or not at all."""

import asyncio
import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.adversary.misbehaviour import AttackContext, malicious_server
from testbed.adversary.secagg.dishonest_clients import HandedOver, HandOver
from testbed.adversary.secagg.reconstruction import ContradictDropouts, ReconstructionAttempt
from testbed.adversary.secagg.small_sums import ShrinkTheSum, SplitTheSharing
from testbed.adversary.victims import VictimOptions
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.errors import RoundAborted
from tests.aggregation.federations import SmallFederation
from tests.thoroughness import examples

D = 6
VARIANTS = ["signed", "none"]
INPUT, CONSISTENCY = "secagg/masked-input", "secagg/consistency"


def played(
    kind: Any,
    participants: int,
    threshold: int,
    dishonest: Collection[int],
    consistency: str,
    *,
    victim: int | None = None,
    **keywords: Any,
) -> tuple[Any, ReconstructionAttempt, Any]:
    """The federation after one round of `kind`, the attempt, and the aggregate or why the round was aborted."""
    deltas = np.random.default_rng(participants).uniform(-1, 1, (participants, D)).astype(np.float32)
    context = AttackContext(frozenset(dishonest), {kind: VictimOptions(victim=victim)})
    small = SmallFederation(
        deltas, SecAggParameters(threshold=threshold, consistency=consistency),
        protocol=malicious_server(SecAgg, [kind], context), samples=range(3, participants + 3), **keywords,
    )  # fmt: skip
    try:
        outcome = small.run()
    except RoundAborted as ended:
        outcome = ended.reason
    return small, small.protocol.attempt, outcome


def truth(small: Any, members: Collection[int]) -> Any:
    """Return the sum of the quantised updates of `members`, from their own rounding."""
    quantisation, total = small.parameters.quantisation, np.zeros(D + 1, np.uint32)
    for client in members:
        rounding = small.randomness.simulation_key(client, 1, "stochastic rounding")
        total += quantisation.encode(small.workload.deltas[client], client + 3, rounding)
    return total


def is_honest_mean(small: Any, outcome: Any, survivors: list[int]) -> bool:
    weights = np.arange(3, len(small.everybody) + 3)[survivors]
    expected = np.average(np.array(small.workload.deltas)[survivors], axis=0, weights=weights)
    return outcome.survivors.tolist() == survivors and np.abs(outcome.mean - expected).max() <= 2 / (2**16 - 1)


# -- one victim, two stories -----------------------------------------------------------------------------------------

SIZES = [(3, 3), (4, 3), (5, 4), (7, 5), (9, 7), (10, 7), (12, 9), (13, 13)]


@pytest.mark.parametrize("consistency", VARIANTS)
@pytest.mark.parametrize(("s", "t"), [size for size in SIZES if size[0] != size[1]])
def test_2t_minus_s_accomplices_have_the_update_bit_for_bit(s: int, t: int, consistency: str) -> None:
    for x in {2 * t - s, min(2 * t - s + 1, s - 1)}:
        small, attempt, outcome = played(ContradictDropouts, s, t, range(s - x, s), consistency)
        (victim,) = attempt.members
        assert victim < s - x
        assert np.array_equal(attempt.vector, truth(small, [victim]))
        assert attempt.vector[-1] == victim + 3
        assert small.refusals() == []
        assert is_honest_mean(small, outcome, list(range(s)))


@pytest.mark.parametrize("consistency", VARIANTS)
@pytest.mark.parametrize(("s", "t"), SIZES)
def test_one_accomplice_fewer_has_nothing(s: int, t: int, consistency: str) -> None:
    x = 2 * t - s - 1
    small, attempt, outcome = played(ContradictDropouts, s, t, range(s - x, s), consistency)
    assert attempt.vector is None
    assert not attempt.succeeded
    assert is_honest_mean(small, outcome, list(range(s)))
    of_mask_key = x if consistency == "signed" or s == t else t - 1
    assert f": {of_mask_key} of {t} needed shares of the mask key, {t} of {t} of the self-mask seed; failed: " in (
        attempt.detail
    )
    noticed = {check for _, check in small.refusals()}
    assert noticed == ({"secagg.too-few-signatures"} if consistency == "signed" and s > t > x + 1 else set())


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), s=st.integers(3, 11), consistency=st.sampled_from(VARIANTS))
def test_it_takes_exactly_twice_the_threshold_with_drop_outs_too(data: Any, s: int, consistency: str) -> None:
    """Clients that drop out before unmasking do not count: among the others, h + 2x >= 2t decides."""
    t = data.draw(st.integers(s // 2 + 1 if consistency == "signed" else 2 * s // 3 + 1, s), label="t")
    dishonest = data.draw(st.sets(st.integers(0, s - 1), max_size=s - 1), label="dishonest")
    lost = data.draw(st.sets(st.integers(0, s - 1), max_size=s - t), label="lost")
    early = data.draw(st.booleans(), label="lost before sharing")
    stage = "secagg/share-keys" if early else INPUT
    small, attempt, outcome = played(ContradictDropouts, s, t, dishonest, consistency, leaving={stage: lost})
    kept = sorted(set(range(s)) - lost)
    x, h = len(set(kept) & dishonest), len(set(kept) - dishonest)
    if h > 0 and h + 2 * x >= 2 * t:
        (victim,) = attempt.members
        assert victim in set(kept) - dishonest
        assert np.array_equal(attempt.vector, truth(small, [victim]))
        assert small.refusals() == []
    else:
        assert attempt.vector is None
    assert is_honest_mean(small, outcome, kept)


@pytest.mark.parametrize("consistency", VARIANTS)
def test_who_drops_out_while_it_unmasks_is_counted_out(consistency: str) -> None:
    stage = CONSISTENCY if consistency == "signed" else "secagg/unmask-survivors"
    for lost, succeeds in (({0}, True), ({0, 1, 2}, False)):
        small, attempt, _ = played(
            ContradictDropouts, 10, 7, range(5, 10), consistency, victim=4, leaving={stage: lost}
        )
        assert attempt.succeeded == succeeds
        if succeeds:
            assert np.array_equal(attempt.vector, truth(small, [4]))


@pytest.mark.parametrize("consistency", VARIANTS)
def test_the_record_says_what_was_had(consistency: str) -> None:
    small, attempt, _ = played(ContradictDropouts, 9, 7, range(4, 9), consistency, victim=2)
    events = [(event.party, event.detail) for event in small.network.events if event.kind == "attack"]
    digest = hashlib.sha256(truth(small, [2]).astype("<u4").tobytes()).hexdigest()
    assert events == [("server", f"contradict-dropouts: {attempt.detail}")]
    assert attempt.detail == (
        f"victim 2: 7 of 7 needed shares of the mask key, 7 of 7 of the self-mask seed; "
        f"reconstructed, weight 5, sha256 {digest}"
    )


def test_the_victim_that_is_named_or_drawn() -> None:
    attempts = [played(ContradictDropouts, 9, 7, range(4, 9), "signed", victim=v)[1] for v in range(4)]
    assert [sorted(attempt.members) for attempt in attempts] == [[0], [1], [2], [3]]
    small, attempt, outcome = played(ContradictDropouts, 9, 6, range(4, 9), "signed", victim=3, leaving={INPUT: {3}})
    assert attempt.detail == "failed: the victim has not sent its input"
    assert is_honest_mean(small, outcome, [0, 1, 2, 4, 5, 6, 7, 8])
    drawn = set()
    context = AttackContext(frozenset(range(4, 9)))
    small = SmallFederation(np.zeros((9, D)), SecAggParameters(threshold=7),
                       protocol=malicious_server(SecAgg, [ContradictDropouts], context))  # fmt: skip
    for number in range(1, 13):
        small.run(number)
        drawn |= small.protocol.attempt.members
    assert drawn == {0, 1, 2, 3}


def test_rounds_that_are_not_attacked_are_honest() -> None:
    deltas = np.zeros((9, D))
    context = AttackContext(frozenset(range(4, 9)), from_round=2, every=2)
    protocol = malicious_server(SecAgg, [ContradictDropouts], context)
    small = SmallFederation(deltas, SecAggParameters(threshold=7), protocol=protocol)
    attacked = []
    for number in range(1, 6):
        assert small.run(number).survivors.tolist() == list(range(9))
        attacked.append(small.protocol.attempt is not None)
        stages = [stage.stage for stage in small.network.exchanges]
        assert (stages == ["train", *SecAgg.stages]) == (not attacked[-1])
    assert attacked == [False, True, False, True, False]


def test_an_accomplice_that_lies_to_the_server_spoils_it() -> None:
    """A wrong mask key shows at the public one: the attack fails, and says so."""
    from testbed.adversary.secagg.dishonest_clients import SecAggAccomplice
    from testbed.aggregation.kit.message_parts import ShareOf
    from testbed.parties.client import RoleSpec, handles

    class LiesToIts(SecAggAccomplice):
        @handles(HandOver)
        def on_hand_over(self, message: HandOver) -> HandedOver:
            true = super().on_hand_over(message)
            wrong = [ShareOf(row.client, bytes(33)) for row in true.mask_keys]
            return HandedOver(true.mask_key, wrong, true.self_masks)

    roles = [RoleSpec(LiesToIts, SecAggParameters(threshold=7), only=frozenset({8}))]
    _, attempt, _ = played(ContradictDropouts, 9, 7, range(4, 9), "signed", roles=roles)
    (victim,) = attempt.members
    assert attempt.detail.endswith(f"failed: the shares of client {victim} give another key than its own")
    assert attempt.vector is None


# -- small sums ------------------------------------------------------------------------------------------------------


def smallest(s: int, t: int, x: int) -> int:
    """Honest clients in the smallest sum, counted: each of h denies at most s - t, and t - x must deny one."""
    h, enough = s - x, t - x
    return 1 if enough <= 0 else h - min(h - 1, h * (s - t) // enough)


@pytest.mark.parametrize(("s", "t", "x"), [(7, 5, 2), (10, 7, 0), (10, 7, 3), (10, 7, 4), (12, 9, 5)])
def test_without_signatures_the_sum_shrinks_to_what_counting_allows(s: int, t: int, x: int) -> None:
    small, attempt, outcome = played(ShrinkTheSum, s, t, range(s - x, s), "none")
    assert len(attempt.members) == smallest(s, t, x) < max(2, t - x)
    assert np.array_equal(attempt.vector, truth(small, attempt.members))
    assert small.refusals() == []
    if len(attempt.members) > 1:
        assert is_honest_mean(small, outcome, sorted(attempt.members))


@pytest.mark.parametrize(("s", "t", "x"), [(10, 7, 0), (10, 7, 3), (12, 9, 5)])
@pytest.mark.parametrize("kind", [ShrinkTheSum, SplitTheSharing])
def test_with_signatures_it_does_not(kind: Any, s: int, t: int, x: int) -> None:
    small, attempt, outcome = played(kind, s, t, range(s - x, s), "signed")
    assert attempt.vector is None
    assert outcome == "below-threshold"
    assert {check for _, check in small.refusals()} == {"secagg.too-few-signatures"}


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data(), s=st.integers(4, 10), kind=st.sampled_from([ShrinkTheSum, SplitTheSharing]))
def test_with_signatures_no_sum_is_over_fewer_than_t_minus_x(data: Any, s: int, kind: Any) -> None:
    t = data.draw(st.integers(s // 2 + 1, s), label="t")
    x = data.draw(st.integers(0, 2 * t - s - 1), label="x")
    lost = data.draw(st.sets(st.integers(0, s - 1), max_size=s - t), label="lost")
    _, attempt, _ = played(kind, s, t, range(s - x, s), "signed", leaving={INPUT: lost})
    assert attempt.vector is None or t - x <= len(attempt.members)


@pytest.mark.parametrize(("s", "t", "x"), [(10, 7, 2), (10, 7, 3), (13, 9, 3), (16, 11, 3), (20, 14, 4)])
def test_split_sharing_isolates_one_where_dropouts_alone_cannot(s: int, t: int, x: int) -> None:
    """(t - x)(t - x - 1) <= (s - t)(s - x - 1) is enough: t - x up to 1.6 times s - t, where x >= 2t - s needs 1."""
    assert x < 2 * t - s
    assert (t - x) * (t - x - 1) <= (s - t) * (s - x - 1)
    small, attempt, outcome = played(SplitTheSharing, s, t, range(s - x, s), "none", victim=1)
    assert attempt.members == {1}
    assert np.array_equal(attempt.vector, truth(small, [1]))
    assert small.refusals() == []
    assert outcome.survivors.tolist() == [1]


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data(), s=st.integers(4, 11), kind=st.sampled_from([ShrinkTheSum, SplitTheSharing]))
def test_small_sums_are_right_or_are_not_had(data: Any, s: int, kind: Any) -> None:
    """With dropouts, too: the result is the members' sum bit for bit, and honest clients refuse nothing."""
    t = data.draw(st.integers(2 * s // 3 + 1, s), label="t")
    dishonest = data.draw(st.sets(st.integers(0, s - 1), max_size=s - 2), label="dishonest")
    lost = data.draw(st.sets(st.integers(0, s - 1), max_size=s - t), label="lost")
    small, attempt, _ = played(kind, s, t, dishonest, "none", leaving={INPUT: lost})
    if attempt.vector is not None:
        assert attempt.members
        assert not attempt.members & (dishonest | lost)
        assert np.array_equal(attempt.vector, truth(small, attempt.members))
        assert small.refusals() == []


# -- honest clients: no attack works without the help of accomplices --------------------------------------------------


def test_an_honest_client_hands_nothing_over() -> None:
    """No role of an honest federation answers the question."""
    small = SmallFederation(np.zeros((5, D)), SecAggParameters(threshold=4))
    small.run()
    replies = asyncio.run(small.network.ask(np.array([1]), HandOver(1)))
    assert not replies.valid()
    assert [refusal.check for refusal in replies.missing.refusals] == ["message.unexpected-type"]


def test_an_accomplice_has_nothing_to_hand_over_before_it_has_shares() -> None:
    context = AttackContext(frozenset({3, 4}))
    protocol = malicious_server(SecAgg, [ContradictDropouts], context)

    async def play() -> Mapping[int, Any]:
        small = SmallFederation(np.zeros((5, D)), SecAggParameters(threshold=4), protocol=protocol)
        start = await small.begin()
        await SecAgg.advertise_keys(small.protocol, small.protocol.begin(start))
        return [
            (refusal.client, refusal.check)
            for refusal in (await small.network.ask(np.array([3, 4]), HandOver(1))).missing.refusals
        ]  # type: ignore[return-value]

    assert asyncio.run(play()) == [(3, "secagg.out-of-order"), (4, "secagg.out-of-order")]
