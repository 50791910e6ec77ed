"""Noise as planned for any number of dropouts, measured in sums, and the shares revealed for it."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import chi2

from testbed.aggregation.kit.message_parts import ShareOf
from testbed.aggregation.plain import PlainParameters
from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.messages import CheckSurvivors, ShareKeys, SharesFor, seal_shares
from testbed.aggregation.secagg.noise import SharesAndNoise, UnmaskAndRemove
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.round import SecAggRound
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.crypto.shamir import SHARE_BYTES
from testbed.emulation.compute.cost import metered
from testbed.errors import RoundAborted
from testbed.messages import decode
from testbed.network.sums import add_in_threads
from testbed.parties.client import RoleSpec, handles
from testbed.privacy.noise import NoiseShare, RemovableNoise
from tests.aggregation.federations import SmallFederation, refused_by_the_victim
from tests.messages_named import naming

N, D, T = 8, 4000, 3
MULTIPLIER, SCALE = 1.5, 64.0
STAGES = ("secagg/advertise-keys", "secagg/share-keys", "secagg/masked-input", "secagg/consistency", "secagg/unmask")
BEFORE = STAGES[:3]  # clients that leave in them are not in the sum


def parameters(enforced: bool = True, **changes: Any) -> SecAggParameters:
    noise: dict[str, Any] = {"noise_multiplier": MULTIPLIER, "scale": SCALE}
    if enforced:
        noise["enforcement"] = {"tolerated_dropouts": T}
    return SecAggParameters(**{"threshold": 5, "weights": "equal", "noise": noise} | changes)


def play(dropouts: int, stage: str, **keywords: Any) -> tuple[Any, Any]:
    small = SmallFederation(
        np.zeros((N, D)), keywords.pop("parameters", parameters()),
        leaving={stage: set(range(1, 1 + dropouts))}, **keywords,
    )  # fmt: skip
    return small, small.run()


def variance_of(small: Any, aggregate: Any) -> float:
    """Return the variance of the sum's coordinates, as a share of the plan; updates are 0, so all of it is noise."""
    noise = small.parameters.noise
    in_steps = aggregate.mean * len(aggregate.survivors) * noise.steps(D) / noise.clip
    return float(np.square(in_steps).mean() / (MULTIPLIER * SCALE) ** 2)


BAND = chi2.ppf((1e-6, 1 - 1e-6), D) / D  # of the variance of D coordinates (rotated: close to Gaussian)
ROUNDING = N * 0.25 / (MULTIPLIER * SCALE) ** 2


@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("dropouts", range(T + 1))
def test_the_sum_has_the_planned_noise(dropouts: int, stage: str, seeded: bool) -> None:
    """Also without a seed, the dealt secrets are those of the added noise."""
    small, aggregate = play(dropouts, stage, secrets_from_system=not seeded)
    assert len(aggregate.survivors) == (N - dropouts if stage in BEFORE else N)
    assert aggregate.noise == 1.0
    assert BAND[0] <= variance_of(small, aggregate) <= BAND[1] + ROUNDING
    assert small.refusals() == []
    assert small.misbehaviour() == []


def test_without_it_dropouts_take_their_noise_along() -> None:
    small, aggregate = play(T, "secagg/masked-input", parameters=parameters(enforced=False))
    assert aggregate.noise == (N - T) / N
    assert BAND[0] * (N - T) / N <= variance_of(small, aggregate) <= BAND[1] * (N - T) / N + ROUNDING


def test_more_dropouts_than_tolerated_cost_noise() -> None:
    loose = parameters(noise={"noise_multiplier": MULTIPLIER, "scale": SCALE, "enforcement": {"tolerated_dropouts": 1}})
    small, aggregate = play(3, "secagg/masked-input", parameters=loose)
    assert aggregate.noise == pytest.approx(5 / 7)
    assert BAND[0] * 5 / 7 <= variance_of(small, aggregate) <= BAND[1] * 5 / 7 + ROUNDING


def test_the_mean_is_that_of_the_survivors() -> None:
    deltas = np.random.default_rng(5).normal(size=(N, D))
    deltas *= 0.9 / np.linalg.norm(deltas, axis=1, keepdims=True)
    little = parameters(noise={"noise_multiplier": 1e-3, "scale": 4096.0, "enforcement": {"tolerated_dropouts": T}})
    small = SmallFederation(deltas, little, leaving={"secagg/share-keys": {2}, "secagg/consistency": {6}})
    aggregate = small.run()
    assert aggregate.survivors.tolist() == [0, 1, 3, 4, 5, 6, 7]
    assert np.linalg.norm(aggregate.mean - deltas[aggregate.survivors].mean(axis=0)) < 0.02


def test_the_same_seed_gives_the_same_sum() -> None:
    first, again = (play(2, "secagg/masked-input")[1].mean for _ in range(2))
    assert (first == again).all()


# -- revealed shares -------------------------------------------------------------------------------------------------


class Remembers(SecAggClient):
    """An honest client that keeps its secrets for the test."""

    kept: dict[int, list[bytes]]

    @handles(ShareKeys)
    def on_share_keys(self, message: ShareKeys) -> Any:
        self.kept[self.client.number] = self.noise.secrets_of(self, self.graph.participants, self.round)
        return super().on_share_keys(message)


@pytest.mark.parametrize("dropouts", range(T + 1))
def test_no_secret_travels_in_the_clear(dropouts: int) -> None:
    Remembers.kept = {}
    small, _ = play(dropouts, "secagg/masked-input", roles=[RoleSpec(Remembers, parameters(), only=set(range(N)))])
    assert len(Remembers.kept) == N
    seen = b"".join(
        part
        for delivery, answers in small.hosts.seen
        for part in (delivery.header, *(delivery.private or {}).values(), *answers.headers.values())
    )
    assert len(seen) > 10_000
    for secrets in Remembers.kept.values():
        assert len(secrets) == T
        assert not any(secret in seen for secret in secrets)


def revealed_noise(small: Any) -> dict[int, list[int]]:
    """Return (holder, owner) of the revealed shares of noise."""
    found = {}
    for delivery, answers in small.hosts.seen:
        if delivery.kind is UnmaskAndRemove:
            for client, header in answers.headers.items():
                found[client] = [row.client for row in decode(SharesAndNoise, header).noise]
    return found


def test_shares_are_revealed_of_survivors_alone_and_of_nobody_once_all_noise_is_needed() -> None:
    small, aggregate = play(1, "secagg/masked-input")
    assert revealed_noise(small) == dict.fromkeys(aggregate.survivors.tolist(), aggregate.survivors.tolist())
    small, _ = play(T, "secagg/masked-input")
    assert set(map(tuple, revealed_noise(small).values())) == {()}


def test_nothing_is_revealed_of_noise_where_all_of_it_stays() -> None:
    assert refused_by_the_victim("unmask", lambda stand: (UnmaskAndRemove(1, stand.signatures),)) == [
        "secagg.no-removable-noise"
    ]


# -- servers that want more noise removed ----------------------------------------------------------------------------


class HidesADropout(SecAgg):
    """Names a survivor that has sent no input, so that one component more is removed."""

    async def check_consistency(self, state: SecAggRound) -> None:
        true, state.survivors = state.survivors, np.arange(N, dtype=np.int64)
        await super().check_consistency(state)
        self.signed = len(state.signed)
        state.survivors = true


def test_a_server_that_hides_a_dropout_gets_no_sum() -> None:
    """All clients sign and reveal that component; but the masks with the missing client stay."""
    small = SmallFederation(
        np.zeros((N, D)), parameters(), protocol=HidesADropout, leaving={"secagg/masked-input": {1}}, hosts=1
    )
    with pytest.raises(RoundAborted, match=naming("below-threshold", "0 of 5", "client 1")):
        small.run()
    assert small.protocol.signed == N - 1


class ShowsTwoSets(SecAgg):
    """Has one set of survivors signed, and wants noise removed for a larger one."""

    async def check_consistency(self, state: SecAggRound) -> None:
        await super().check_consistency(state)
        again = CheckSurvivors(state.start.number, [*state.survivors.tolist(), 1])
        self.again = await state.start.network.ask(state.survivors, again)


def test_a_server_that_shows_another_set_afterwards_is_refused() -> None:
    small = SmallFederation(np.zeros((N, D)), parameters(), protocol=ShowsTwoSets, leaving={"secagg/masked-input": {1}})
    aggregate = small.run()
    assert {check for _, check in small.refusals()} == {"secagg.out-of-order"}
    assert len(small.protocol.again) == 0
    assert BAND[0] <= variance_of(small, aggregate) <= BAND[1] + ROUNDING


class TellsSomeOthers(SecAgg):
    """Tells the first half that nobody dropped out, and passes on the signatures of all."""

    async def check_consistency(self, state: SecAggRound) -> None:
        round_, survivors = state.start, state.survivors
        half = len(survivors) // 2
        first = await round_.network.ask(survivors[:half], CheckSurvivors(round_.number, list(range(N))))
        second = await round_.network.ask(survivors[half:], CheckSurvivors(round_.number, survivors.tolist()))
        state.signed = {c: answer.signature for part in (first, second) for c, answer in part.valid().items()}


def test_a_server_that_tells_some_of_fewer_dropouts_is_refused() -> None:
    small = SmallFederation(
        np.zeros((N, D)), parameters(), protocol=TellsSomeOthers, leaving={"secagg/masked-input": {1}}
    )
    with pytest.raises(RoundAborted, match="below-threshold: 0 of 5"):
        small.run()
    assert {check for _, check in small.refusals()} == {"secagg.inconsistent-survivors"}


# -- clients that do not follow the protocol -------------------------------------------------------------------------


class RevealsWrongShares(SecAggClient):
    @handles(UnmaskAndRemove)
    def on_unmask_and_remove(self, message: UnmaskAndRemove) -> SharesAndNoise:
        answer = super().on_unmask_and_remove(message)
        wrong = [ShareOf(row.client, bytes(2) + bytes(reversed(row.share[2:]))) for row in answer.noise]
        return SharesAndNoise(answer.mask_keys, answer.self_masks, wrong)


def test_a_wrong_share_is_found_and_left_out() -> None:
    wrong = [RoleSpec(RevealsWrongShares, parameters(), only={4})]
    small, aggregate = play(1, "secagg/masked-input", roles=wrong)
    assert BAND[0] <= variance_of(small, aggregate) <= BAND[1] + ROUNDING
    found = small.misbehaviour()
    assert {client for client, _ in found} == {4}
    assert all(detail.startswith("unmask: wrong share of the noise of client") for _, detail in found)


class AddsNoNoise(SecAggClient):
    def noise_to_add(self, participants: int, dimension: int, round_number: int) -> list[NoiseShare]:
        return []


def test_removing_what_was_never_added_hides_nothing_and_costs_accuracy() -> None:
    """The server takes away components 1 to T of a client that has added none: noise that it knows itself."""
    small, aggregate = play(0, "none", roles=[RoleSpec(AddsNoNoise, parameters(), only={3})])
    plan = RemovableNoise(N, T)
    expected = (N - 1) / N + sum(plan.part(k) for k in range(1, T + 1))
    assert BAND[0] * expected <= variance_of(small, aggregate) <= BAND[1] * expected + ROUNDING


class SealsMore(SecAggClient):
    """One share more than everybody else deals."""

    def share_among(self, holders: list[int]) -> list[SharesFor]:
        plain = super().share_among(holders)
        sealed = []
        for row in plain:
            me, holder = self.client.number, row.client
            shares = bytes(len(self.own_shares) + SHARE_BYTES)
            bundle = seal_shares(self.sealing_keys[holder], me, holder, shares, self.associated(me, holder))
            sealed.append(SharesFor(holder, bundle))
        return sealed


class TakesAnything(SecAgg):
    def complete_shares(self, state: SecAggRound, replies: Any) -> Any:
        return {client: {row.client: row.sealed for row in a.shares} for client, a in replies.valid().items()}


@pytest.mark.parametrize("enforced", [False, True])
def test_more_shares_than_everybody_deals_are_none(enforced: bool) -> None:
    more = [RoleSpec(SealsMore, parameters(enforced), only={3})]
    small, aggregate = play(0, "none", parameters=parameters(enforced), roles=more)
    assert aggregate.survivors.tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert small.misbehaviour() == [(3, "shared keys: does not have shares for every peer")]
    small = SmallFederation(np.zeros((N, D)), parameters(enforced), protocol=TakesAnything, roles=more)
    with pytest.raises(RoundAborted, match=naming("below-threshold", "1 of 5", "client 3")):
        small.run()
    assert small.refusals() == []


# -- experiments that cannot be ---------------------------------------------------------------------------------------

NOISE = {"noise_multiplier": 1.0, "enforcement": {"tolerated_dropouts": 3}}


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: PlainParameters(weights="equal", noise=NOISE), "noise.enforcement: only protocol: secagg can"),
        (lambda: SecAggPlusParameters(weights="equal", noise=NOISE), "noise.enforcement: only protocol: secagg can"),
        (
            lambda: SecAggParameters(weights="equal", noise=NOISE, threshold=0.7, consistency="none"),
            "noise.enforcement: needs consistency: signed",
        ),
        (
            lambda: SecAggParameters(weights="equal", noise=NOISE | {"mechanism": "discrete-gaussian"}),
            "enforcement: needs mechanism: skellam",
        ),
        (
            lambda: SecAggParameters(weights="equal", noise=NOISE | {"enforcement": {"tolerated_dropouts": 0}}),
            "greater than or equal to 1",
        ),
    ],
)
def test_what_does_not_go_with_it(make: Any, line: str) -> None:
    with pytest.raises(ValidationError, match=line):
        make()


def test_no_more_are_tolerated_than_leave_a_threshold() -> None:
    section = SecAggParameters(weights="equal", noise=NOISE, threshold=8)
    section.check(11)
    with pytest.raises(ValueError, match=r"^noise.enforcement.tolerated_dropouts: 3 of 10; at most 2, since a round"):
        section.check(10)


def test_threads_charge_what_one_would() -> None:
    shares = [NoiseShare("skellam", 4.0, bytes([number]) * 32) for number in range(6)]

    def take_away(part: Any, some: Any) -> None:
        for share in some:
            share.add_to(part, -1)

    totals, charges = [], []
    for at_least in (1, 100):
        total = np.zeros(1000, np.uint32)
        with metered() as meter:
            add_in_threads(total, shares, take_away, 20, at_least)
        totals.append(total)
        charges.append(meter.counts)
    assert (totals[0] == totals[1]).all()
    assert totals[0].max() < 2**20
    assert charges[0] == charges[1] == {"noise.element": 6 * 999}


class DealsNoNoise(SecAggClient):
    """Numbers instead of shares of the secrets of its noise."""

    def deal(self, secrets: Any, points: Any) -> dict[str, list[bytes]]:
        dealt = super().deal(secrets, points)
        noise = [name for name in secrets if name.startswith("the noise")]
        return dealt | {name: [bytes([0, *part[:0:-1]]) for part in dealt[name]] for name in noise}


def test_noise_whose_shares_contradict_each_other_stays_in_the_sum() -> None:
    """One dealer ends nobody's round: the sum has more noise than it should, and that protects no less."""
    small, aggregate = play(0, "none", roles=[RoleSpec(DealsNoNoise, parameters(), only={3})])
    assert len(aggregate.survivors) == N
    assert {client for client, _ in small.misbehaviour()} == {3}
    assert "the shares of its noise contradict each other" in small.misbehaviour()[0][1]
    plan = RemovableNoise(N, T)
    expected = 1 + sum(plan.part(k) for k in range(1, T + 1))
    assert BAND[0] * expected <= variance_of(small, aggregate) <= BAND[1] * expected + ROUNDING
