"""Attacks of dishonest clients on an honest server, and their detection."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from testbed.aggregation.kit.message_parts import ShareOf
from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.messages import (
    KEYS_DOMAIN,
    SURVIVORS_DOMAIN,
    AdvertiseKeys,
    CheckSurvivors,
    KeyAdvert,
    Masked,
    MaskInput,
    RevealedShares,
    SealedForPeers,
    SealedFromPeers,
    ShareKeys,
    SharesFor,
    SurvivorsSignature,
    Unmask,
    survivors_content,
)
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.shamir import PRIME
from testbed.errors import RoundAborted
from testbed.messages import Message, Vector
from testbed.parties.client import Role, RoleSpec, handles
from tests.aggregation.federations import SmallFederation
from tests.messages_named import naming

N, D, T = 7, 9, 4
DELTAS = np.random.default_rng(2).uniform(-1, 1, (N, D)).astype(np.float32)
changed = msgspec.structs.replace


def play(role: type[Role] | None, who: set[int], *, threshold: int = T, **keywords: Any) -> Any:
    parameters = SecAggParameters(threshold=threshold)
    roles = [] if role is None else [RoleSpec(role, parameters, only=frozenset(who))]
    return SmallFederation(DELTAS, parameters, roles=roles, **keywords)


def is_mean_of(aggregate: Any, clients: list[int]) -> bool:
    assert aggregate.survivors.tolist() == clients
    return bool(np.abs(aggregate.mean - DELTAS[clients].mean(0)).max() <= 2 / (2**16 - 1))


def reason_of(small: Any) -> str:
    with pytest.raises(RoundAborted) as ended:
        small.run()
    assert small.network.events or ended.value.detail
    return ended.value.reason


# -- keys ------------------------------------------------------------------------------------------------------------


class SignsNothing(SecAggClient):
    @handles(AdvertiseKeys)
    def on_advertise_keys(self, message: AdvertiseKeys) -> KeyAdvert:
        return changed(super().on_advertise_keys(message), signature=bytes(64))


class SmallOrderKey(SecAggClient):
    """Its signed mask key is a point of small order, with which every agreement fails."""

    key = bytes(32)

    @handles(AdvertiseKeys)
    def on_advertise_keys(self, message: AdvertiseKeys) -> KeyAdvert:
        advert = super().on_advertise_keys(message)
        content = self.advert_content(self.client.number, advert.sealing_key, self.key)
        return KeyAdvert(advert.sealing_key, self.key, self.sign(KEYS_DOMAIN, content))


class OneKeyTwice(SecAggClient):
    @handles(AdvertiseKeys)
    def on_advertise_keys(self, message: AdvertiseKeys) -> KeyAdvert:
        key = super().on_advertise_keys(message).mask_key
        content = self.advert_content(self.client.number, key, key)
        return KeyAdvert(key, key, self.sign(KEYS_DOMAIN, content))


class CopiesAKey(SecAggClient):
    """Advertises client 1's mask key as its own."""

    @handles(AdvertiseKeys)
    def on_advertise_keys(self, message: AdvertiseKeys) -> KeyAdvert:
        own = super().on_advertise_keys(message)
        copied = PrivateKey.from_seed(self.environment.randomness.secret(1, message.round, "secagg mask key")).public
        content = self.advert_content(self.client.number, own.sealing_key, copied)
        return KeyAdvert(own.sealing_key, copied, self.sign(KEYS_DOMAIN, content))


@pytest.mark.parametrize("role", [SignsNothing, SmallOrderKey, OneKeyTwice, CopiesAKey])
def test_keys_that_peers_would_refuse_are_not_passed_on(role: type[Role]) -> None:
    small = play(role, {3})
    assert is_mean_of(small.run(), [0, 1, 2, 4, 5, 6])
    assert [client for client, _ in small.misbehaviour()] == [3]
    assert small.refusals() == []


def test_a_server_without_the_experiments_id_leaves_signatures_to_the_clients() -> None:
    small = play(SignsNothing, {3}, told=False)
    assert reason_of(small) == "below-threshold"
    assert set(small.refusals()) == {(i, "aggregation.keys-or-model-mismatch") for i in (0, 1, 2, 4, 5, 6)}


class SignsAnotherSet(SecAggClient):
    @handles(CheckSurvivors)
    def on_check_survivors(self, message: CheckSurvivors) -> SurvivorsSignature:
        super().on_check_survivors(message)
        self.survivors = self.survivors - {0}
        return SurvivorsSignature(
            self.sign(SURVIVORS_DOMAIN, survivors_content(1, sorted(self.survivors), self.digest))
        )


def test_a_signature_on_another_set_ends_nobodys_round() -> None:
    small = play(SignsAnotherSet, {3})
    assert is_mean_of(small.run(), list(range(N)))
    assert [client for client, _ in small.misbehaviour()] == [3]


# -- sealed shares ---------------------------------------------------------------------------------------------------


class SealsGarbage(SecAggClient):
    """Its peers get ciphertexts that do not open."""

    @handles(ShareKeys)
    def on_share_keys(self, message: ShareKeys) -> SealedForPeers:
        rows = super().on_share_keys(message).shares
        return SealedForPeers([SharesFor(row.client, bytes(98)) for row in rows])


class LeavesOneOut(SecAggClient):
    @handles(ShareKeys)
    def on_share_keys(self, message: ShareKeys) -> SealedForPeers:
        return SealedForPeers(super().on_share_keys(message).shares[1:])


class SharesTwice(SecAggClient):
    @handles(ShareKeys)
    def on_share_keys(self, message: ShareKeys) -> SealedForPeers:
        rows = super().on_share_keys(message).shares
        return SealedForPeers([*rows, rows[0]])


class ShortShares(SecAggClient):
    @handles(ShareKeys)
    def on_share_keys(self, message: ShareKeys) -> SealedForPeers:
        rows = super().on_share_keys(message).shares
        return SealedForPeers([SharesFor(rows[0].client, bytes(97)), *rows[1:]])


@pytest.mark.parametrize("role", [LeavesOneOut, SharesTwice, ShortShares])
def test_who_has_not_shared_with_everybody_has_not_shared(role: type[Role]) -> None:
    small = play(role, {3})
    assert is_mean_of(small.run(), [0, 1, 2, 4, 5, 6])


def test_shares_that_do_not_open_end_the_round_of_the_server_and_nobody_elses_part() -> None:
    """Without a verifiable secret sharing a survivor's self-mask is in its own hands; nothing can save this round."""
    small = play(SealsGarbage, {3})
    with pytest.raises(RoundAborted, match=f"below-threshold: 1 of {T} needed shares for client 3"):
        small.run()
    assert small.refusals() == []


def test_garbage_for_fewer_than_the_spare_peers_harms_nobody() -> None:
    class SealsSomeGarbage(SecAggClient):
        @handles(ShareKeys)
        def on_share_keys(self, message: ShareKeys) -> SealedForPeers:
            rows = super().on_share_keys(message).shares
            return SealedForPeers([SharesFor(row.client, bytes(98)) for row in rows[:2]] + rows[2:])

    assert is_mean_of(play(SealsSomeGarbage, {3}).run(), list(range(N)))


# -- inputs ----------------------------------------------------------------------------------------------------------


class InputOf(SecAggClient):
    vector: Vector

    @handles(MaskInput)
    def on_mask_input(self, message: MaskInput, private: SealedFromPeers) -> Masked:
        super().on_mask_input(message, private)
        return Masked(self.vector)


@pytest.mark.parametrize(
    "vector",
    [
        Vector(np.zeros(D, np.uint32), 32),
        Vector(np.zeros(D + 2, np.uint32), 32),
        Vector(np.zeros(0, np.uint32), 32),
        Vector(np.zeros(D + 1, np.uint32), 31),
        Vector(np.zeros(D + 1, np.uint64), 64),
        Vector(np.zeros(D + 1, np.float32), 0),
    ],
)
@pytest.mark.parametrize("told", [True, False])
def test_an_input_of_another_shape_has_not_survived(vector: Vector, told: bool) -> None:
    role = type("WrongShape", (InputOf,), {"vector": vector})
    small = play(role, {3}, told=told)
    assert is_mean_of(small.run(), [0, 1, 2, 4, 5, 6])
    assert small.misbehaviour() == [(3, f"masked input: RemoteVector(<{len(vector)} elements>, bits={vector.bits})")]


def test_an_input_without_its_masks_is_noticed() -> None:
    role = type("Unmasked", (InputOf,), {"vector": Vector(np.ones(D + 1, np.uint32), 32)})
    assert reason_of(play(role, {3})) == "implausible-sum"


def test_a_client_can_still_lie_within_the_range_of_an_update() -> None:
    """Secure aggregation hides inputs, it does not judge them: this is documented, not prevented."""

    class TwiceItsWeight(SecAggClient):
        @handles(MaskInput)
        def on_mask_input(self, message: MaskInput, private: SealedFromPeers) -> Masked:
            assert self.client.local_update is not None
            self.client.local_update = replace(self.client.local_update, samples=30)
            return super().on_mask_input(message, private)

    assert play(TwiceItsWeight, {3}).run().weight == N - 1 + 30


def test_where_all_weights_are_equal_no_other_weight_is_accepted() -> None:
    class WeighsTwo(SecAggClient):
        @handles(MaskInput)
        def on_mask_input(self, message: MaskInput, private: SealedFromPeers) -> Masked:
            assert self.client.local_update is not None
            self.client.local_update = replace(self.client.local_update, samples=2)
            self.noise = SecAggParameters(threshold=T).noise_policy()
            return super().on_mask_input(message, private)

    parameters = SecAggParameters(threshold=T, weights="equal")
    small = SmallFederation(DELTAS, parameters, roles=[RoleSpec(WeighsTwo, parameters, only=frozenset({3}))])
    with pytest.raises(RoundAborted, match=naming("implausible-sum", 7, 8)):
        small.run()


def test_a_server_that_knows_the_dimension_is_not_outvoted_about_it() -> None:
    role = type("WrongShape", (InputOf,), {"vector": Vector(np.zeros(D + 2, np.uint32), 32)})
    assert is_mean_of(play(role, set(), threshold=4).run(), list(range(N)))
    with pytest.raises(RoundAborted, match=naming("below-threshold", "3 of 4", "input")):
        play(role, {3, 4, 5, 6}).run()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_is_not_handed_on(value: float) -> None:
    deltas = DELTAS.copy()
    deltas[3, 4] = value
    small = SmallFederation(deltas, SecAggParameters(threshold=T))
    assert is_mean_of(small.run(), [0, 1, 2, 4, 5, 6])
    assert small.refusals() == [(3, "train.diverged")]


def test_a_client_without_samples_has_nothing_to_weigh() -> None:
    small = SmallFederation(DELTAS, SecAggParameters(threshold=T), samples=[1, 1, 1, 0, 1, 1, 1])
    assert is_mean_of(small.run(), [0, 1, 2, 4, 5, 6])
    assert small.refusals() == [(3, "aggregation.no-weight")]


def test_an_update_of_another_dimension_is_not_handed_on() -> None:
    small = SmallFederation(DELTAS, SecAggParameters(threshold=T))
    small.workload.deltas[3] = np.zeros(D + 1, np.float32)
    assert is_mean_of(small.run(), [0, 1, 2, 4, 5, 6])
    assert small.refusals() == [(3, "train.dimension-mismatch")]


# -- revealed shares -------------------------------------------------------------------------------------------------


class RevealsWrongly(SecAggClient):
    """Adds one to every share that it reveals."""

    @handles(Unmask)
    def on_unmask(self, message: Unmask) -> RevealedShares:
        honest = super().on_unmask(message)

        def off(rows: list[ShareOf]) -> list[ShareOf]:
            values = [(int.from_bytes(row.share, "big") + 1) % int(PRIME) for row in rows]
            return [ShareOf(row.client, value.to_bytes(33, "big")) for row, value in zip(rows, values, strict=True)]

        return RevealedShares(off(honest.mask_keys), off(honest.self_masks))


LEAVING = {"secagg/masked-input": {6}}


@pytest.mark.parametrize(("threshold", "liars"), [(4, {0}), (4, {5}), (4, set())])
def test_wrong_shares_are_corrected_while_enough_are_to_spare(threshold: int, liars: set[int]) -> None:
    """Six clients reveal with t = 4: one wrong share of each secret can be found."""
    small = play(RevealsWrongly, liars, threshold=threshold, leaving=LEAVING)
    assert is_mean_of(small.run(), [0, 1, 2, 3, 4, 5])
    assert [holder for holder, _ in small.misbehaviour()] == sorted(liars) * N


@pytest.mark.parametrize(("threshold", "liars"), [(4, {1, 4, 5}), (6, {0})])
def test_without_t_true_shares_there_is_no_sum(threshold: int, liars: set[int]) -> None:
    """With t = 6 of 6 a wrong mask key shows at its public key alone."""
    assert reason_of(play(RevealsWrongly, liars, threshold=threshold, leaving=LEAVING)) == "below-threshold"


def test_without_a_share_to_spare_a_wrong_self_mask_shows_in_the_sum() -> None:
    """Nothing public belongs to a self-mask's seed: that it was wrong shows only in a sum that can be no sum."""
    assert reason_of(play(RevealsWrongly, {0}, threshold=7)) == "implausible-sum"


class DealsInconsistently(SecAggClient):
    """Its self-mask shares lie on no polynomial of degree t - 1."""

    def share_among(self, holders: list[int]) -> list[SharesFor]:
        true = self.graph.threshold
        self.graph.threshold = len(holders)
        sealed = super().share_among(holders)
        self.graph.threshold = true
        return sealed


def test_a_dealer_of_inconsistent_shares_ends_the_round() -> None:
    small = play(DealsInconsistently, {3})
    with pytest.raises(RoundAborted, match=naming("wrong-shares", "client 3", 7)):
        small.run()


def test_shares_that_are_no_field_elements_are_as_good_as_missing() -> None:
    class TooLarge(SecAggClient):
        @handles(Unmask)
        def on_unmask(self, message: Unmask) -> RevealedShares:
            honest = super().on_unmask(message)
            return RevealedShares([], [ShareOf(row.client, b"\xff" * 33) for row in honest.self_masks])

    for threshold in (4, 6):  # with t = 6 of 7 a wrong share could not be corrected, a missing one is not missed
        assert is_mean_of(play(TooLarge, {3}, threshold=threshold).run(), list(range(N)))


def test_shares_of_strangers_and_repeated_rows_are_ignored() -> None:
    class Talkative(SecAggClient):
        @handles(Unmask)
        def on_unmask(self, message: Unmask) -> RevealedShares:
            honest = super().on_unmask(message)
            more = [ShareOf(99, bytes(33)), ShareOf(0, bytes(33))]
            return RevealedShares(more, [*more, *honest.self_masks])

    assert is_mean_of(play(Talkative, {3}).run(), list(range(N)))


class Silent(SecAggClient):
    @handles(AdvertiseKeys)
    def on_advertise_keys(self, message: AdvertiseKeys) -> Message | None:  # type: ignore[override]
        return None


def test_silence_is_a_drop_out() -> None:
    assert is_mean_of(play(Silent, {3}).run(), [0, 1, 2, 4, 5, 6])


def test_no_single_misbehaving_client_crashes_the_run() -> None:
    """For any answer of one client, the round completes or is aborted; no other exception is raised."""
    roles = [value for value in list(globals().values()) if isinstance(value, type) and issubclass(value, SecAggClient)]
    outcomes: dict[str, int | str] = {}
    for role in roles:
        if role in (SecAggClient, InputOf):
            continue
        small = play(role, {3})
        try:
            outcomes[role.__name__] = len(asyncio.run(small.aggregate()).survivors)
        except RoundAborted as ended:
            outcomes[role.__name__] = ended.reason
    assert len(outcomes) >= 10
    assert {v for v in outcomes.values() if isinstance(v, str)} == {"below-threshold", "wrong-shares"}
