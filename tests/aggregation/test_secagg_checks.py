"""What a client refuses: every check of the client, provoked by a server that does not follow the protocol."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

from testbed.aggregation.secagg import SecAgg, SecAggParameters
from testbed.aggregation.secagg_client import SecAggClient
from testbed.aggregation.secagg_messages import (
    AdvertiseKeys,
    AdvertOf,
    CheckSurvivors,
    MaskInput,
    SealedFromPeers,
    ShareKeys,
    SharesFor,
    SignatureOf,
    Unmask,
)
from testbed.crypto.key_agreement import PrivateKey
from testbed.errors import RoundAborted

N = 6
T = 4
EVERYBODY = np.arange(N, dtype=np.int64)
VICTIM = np.array([2], np.int64)
STRANGER = 40

changed = msgspec.structs.replace


def sets_of(*clients: int) -> Any:
    return np.array(clients, np.int64)


@dataclass
class Stand:
    """Where an honest run has got to."""

    small: Any
    start: Any
    adverts: Any = None
    bundles: Any = None
    survivors: Any = None
    signed: Any = None

    @property
    def listed(self) -> list[AdvertOf]:
        return [AdvertOf(c, a.sealing_key, a.mask_key, a.signature) for c, a in self.adverts.items()]

    def sealed_for(self, client: int) -> list[SharesFor]:
        return [SharesFor(peer, self.bundles[peer][client]) for peer in self.bundles if peer != client]

    @property
    def signatures(self) -> list[SignatureOf]:
        return [SignatureOf(client, signature) for client, signature in self.signed.items()]

    async def ask(self, message: Any, private: Any = None, who: Any = VICTIM) -> list[tuple[int, str]]:
        """The refusals that a question brings."""
        known = None if private is None else dict.fromkeys(who.tolist(), private)
        replies = await self.small.network.ask(who, message, private=known)
        assert len(replies) + len(replies.missing.refused) == len(who)
        return [(refusal.client, refusal.check) for refusal in replies.missing.refusals]


async def stand_before(federation: Any, stage: str, **keywords: Any) -> Stand:
    """Run honestly until `stage` is next."""
    small = federation(
        np.random.default_rng(3).uniform(-1, 1, (N, 5)), SecAggParameters(threshold=T, bits=32), **keywords
    )
    protocol, start = small.protocol, await small.begin()
    stand = Stand(small, start)
    if stage == "advertise":
        return stand
    stand.adverts = await protocol.advertise_keys(start, T)
    if stage == "share":
        return stand
    stand.bundles = await protocol.share_keys(start, T, stand.adverts)
    if stage == "mask":
        return stand
    _, stand.survivors = await protocol.collect_inputs(start, T, stand.bundles)
    if stage == "check":
        return stand
    stand.signed = await protocol.check_consistency(start, T, stand.survivors)
    return stand


def refused(federation: Any, stage: str, question: Callable[[Stand], tuple[Any, ...]], **keywords: Any) -> Any:
    """The names of the checks with which the victim answers a dishonest question before `stage`."""

    async def play() -> Any:
        stand = await stand_before(federation, stage, **keywords)
        return await stand.ask(*question(stand))

    return [check for client, check in asyncio.run(play()) if client == 2]


def with_advert(stand: Stand, of: int, **fields: Any) -> ShareKeys:
    rows = [changed(row, **fields) if row.client == of else row for row in stand.listed]
    return ShareKeys(1, rows)


# -- advertise keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "check"),
    [
        (AdvertiseKeys(1, N, T - 1), "secagg.other-threshold"),
        (AdvertiseKeys(1, N, N), "secagg.other-threshold"),
        (AdvertiseKeys(1, 2 * T, T), "secagg.threshold-too-low"),
        (AdvertiseKeys(1, 1, T), "secagg.alone"),
        (AdvertiseKeys(1, 0, T), "secagg.alone"),
        (AdvertiseKeys(2, N, T), "aggregation.nothing-trained"),
        (AdvertiseKeys(0, N, T), "aggregation.nothing-trained"),
    ],
)
def test_what_the_server_announces_is_checked(federation: Any, message: AdvertiseKeys, check: str) -> None:
    assert refused(federation, "advertise", lambda stand: (message,)) == [check]


def test_a_fraction_as_threshold_is_checked_too(federation: Any) -> None:
    async def play() -> Any:
        small = federation(np.zeros((N, 3)), SecAggParameters(threshold=0.6))
        start = await small.begin()
        return await Stand(small, start).ask(AdvertiseKeys(1, N, 3))

    assert asyncio.run(play()) == [(2, "secagg.other-threshold")]


def test_nobody_aggregates_before_training(federation: Any) -> None:
    async def play() -> Any:
        small = federation(np.zeros((N, 3)), SecAggParameters(threshold=T))
        await small.network.begin_round(1)
        return await Stand(small, None).ask(AdvertiseKeys(1, N, T))

    assert asyncio.run(play()) == [(2, "aggregation.nothing-trained")]


def test_a_round_number_serves_once(federation: Any) -> None:
    """A seeded run derives masks from it: the same number again would hide two updates under one mask."""

    async def play() -> Any:
        small = federation(np.zeros((N, 3)), SecAggParameters(threshold=T))
        await small.aggregate(3)
        await small.network.begin_round(4)  # as far as clients know, a new round
        again = await small.train(3)
        first = small.refusals()
        skipping = await Stand(small, again).ask(AdvertiseKeys(3, N, T))
        return first, skipping, again.trained.tolist(), (await small.aggregate(4)).survivors.tolist()

    first, skipping, trained, survivors = asyncio.run(play())
    assert first == [(i, "train.round-used") for i in range(N)]
    assert skipping == [(2, "aggregation.nothing-trained")]
    assert trained == []
    assert survivors == list(range(N))


def test_a_client_trains_once_in_a_round(federation: Any) -> None:
    async def play() -> Any:
        small = federation(np.zeros((N, 3)), SecAggParameters(threshold=T))
        await small.begin(1)
        await small.train(1)
        return small.refusals()

    assert asyncio.run(play()) == [(i, "train.round-used") for i in range(N)]


# -- share keys -----------------------------------------------------------------------------------------------------

FRESH = PrivateKey.from_seed(bytes(range(32))).public


@pytest.mark.parametrize(
    ("question", "check"),
    [
        (lambda s: ShareKeys(1, [*s.listed, s.listed[0]]), "secagg.listed-twice"),
        (lambda s: ShareKeys(1, s.listed[: T - 1]), "secagg.wrong-size"),
        (lambda s: ShareKeys(1, [row for row in s.listed if row.client != 2]), "secagg.own-keys-changed"),
        (lambda s: with_advert(s, 2, mask_key=FRESH), "secagg.own-keys-changed"),
        (lambda s: with_advert(s, 2, sealing_key=FRESH), "secagg.own-keys-changed"),
        (lambda s: with_advert(s, 4, mask_key=s.adverts[0].mask_key), "secagg.key-used-twice"),
        (lambda s: with_advert(s, 4, sealing_key=s.adverts[0].mask_key), "secagg.key-used-twice"),
        (lambda s: with_advert(s, 4, sealing_key=s.adverts[4].mask_key), "secagg.key-used-twice"),
        (lambda s: with_advert(s, 4, mask_key=FRESH), "secagg.forged-keys"),
        (lambda s: with_advert(s, 4, sealing_key=FRESH), "secagg.forged-keys"),
        (lambda s: with_advert(s, 4, signature=s.adverts[0].signature), "secagg.forged-keys"),
        (lambda s: with_advert(s, 4, signature=bytes(64)), "secagg.forged-keys"),
        # the keys of client 4 under another name: signed, but not for that client
        (lambda s: ShareKeys(1, [*s.listed[:4], changed(s.listed[4], client=5)]),
         "secagg.forged-keys"),
        (lambda s: with_advert(s, 4, client=STRANGER), "pki.unknown-client"),
        (lambda s: ShareKeys(2, s.listed), "secagg.out-of-order"),
    ],
)  # fmt: skip
def test_the_list_of_keys_is_checked(federation: Any, question: Callable[[Stand], Any], check: str) -> None:
    assert refused(federation, "share", lambda stand: (question(stand),)) == [check]


def test_keys_of_an_earlier_round_are_refused(federation: Any) -> None:
    async def play() -> Any:
        stand = await stand_before(federation, "share")
        old = stand.listed
        await stand.small.network.begin_round(2)
        start = await stand.small.train(2)
        adverts = await stand.small.protocol.advertise_keys(start, T)
        mixed = [row if row.client != 4 else old[4] for row in Stand(stand.small, start, adverts).listed]
        return await stand.ask(ShareKeys(2, mixed))

    assert asyncio.run(play()) == [(2, "secagg.forged-keys")]


def test_more_clients_than_were_announced_are_refused(federation: Any) -> None:
    """With fewer participants announced, t of them could be half of those who share."""

    async def play() -> Any:
        small = federation(np.zeros((N, 3)), SecAggParameters(threshold=0.6))
        stand = Stand(small, await small.begin())
        replies = await small.network.ask(EVERYBODY, AdvertiseKeys(1, N - 1, 3))
        stand.adverts = replies.valid()
        return await stand.ask(ShareKeys(1, stand.listed))

    assert asyncio.run(play()) == [(2, "secagg.wrong-size")]


# -- masked input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "check"),
    [
        (lambda s: [*s.sealed_for(2), s.sealed_for(2)[0]], "secagg.foreign-shares"),
        (lambda s: [*s.sealed_for(2), changed(s.sealed_for(2)[0], client=STRANGER)], "secagg.foreign-shares"),
        (lambda s: [*s.sealed_for(2), changed(s.sealed_for(2)[0], client=2)], "secagg.foreign-shares"),
        (lambda s: s.sealed_for(2)[: T - 2], "secagg.too-few"),
        (lambda s: [], "secagg.too-few"),
    ],
)
def test_who_has_shared_is_checked(federation: Any, rows: Callable[[Stand], Any], check: str) -> None:
    assert refused(federation, "mask", lambda stand: (MaskInput(1), SealedFromPeers(rows(stand)))) == [check]


# -- consistency check ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("survivors", "check"),
    [
        ([0, 1, 2, 3, 4, 5, 5], "secagg.foreign-survivor"),
        ([0, 1, 2, 3, STRANGER], "secagg.foreign-survivor"),
        ([0, 1, 3, 4, 5], "secagg.declared-dead"),
        ([1, 2, 3], "secagg.too-few"),
        ([], "secagg.declared-dead"),
    ],
)
def test_the_survivors_are_checked(federation: Any, survivors: list[int], check: str) -> None:
    assert refused(federation, "check", lambda stand: (CheckSurvivors(1, survivors),)) == [check]


def test_a_survivor_that_has_not_shared_is_refused(federation: Any) -> None:
    """Client 5 advertised keys and left: no share of its self-mask exists, so it cannot be a survivor."""
    leaving = {"secagg/share-keys": {5}}
    assert refused(federation, "check", lambda stand: (CheckSurvivors(1, list(range(N))),), leaving=leaving) == [
        "secagg.foreign-survivor"
    ]


# -- unmask ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "check"),
    [
        (lambda s: s.signatures[: T - 1], "secagg.too-few-signatures"),
        (lambda s: [*s.signatures, s.signatures[0]], "secagg.foreign-signature"),
        (lambda s: [*s.signatures[:T], changed(s.signatures[0], client=STRANGER)], "secagg.foreign-signature"),
        (lambda s: [changed(s.signatures[0], signature=s.signatures[1].signature), *s.signatures[1:]],
         "secagg.inconsistent-survivors"),
        (lambda s: [changed(s.signatures[0], signature=bytes(64)), *s.signatures[1:]],
         "secagg.inconsistent-survivors"),
    ],
)  # fmt: skip
def test_the_signatures_on_the_survivors_are_checked(federation: Any, rows: Callable[[Stand], Any], check: str) -> None:
    assert refused(federation, "unmask", lambda stand: (Unmask(1, rows(stand)),)) == [check]


def test_a_signature_of_somebody_declared_dead_is_refused(federation: Any) -> None:
    async def play() -> Any:
        stand = await stand_before(federation, "check")
        stand.signed = await stand.small.protocol.check_consistency(stand.start, T, sets_of(0, 1, 2, 3, 4))
        return await stand.ask(Unmask(1, [*stand.signatures, changed(stand.signatures[0], client=5)]))

    assert asyncio.run(play()) == [(2, "secagg.foreign-signature")]


def test_contradictory_sets_of_survivors_are_noticed(federation: Any) -> None:
    async def play() -> Any:
        stand = await stand_before(federation, "check")
        network = stand.small.network
        first = await network.ask(sets_of(0, 1, 2), CheckSurvivors(1, [0, 1, 2, 3, 4, 5]))
        second = await network.ask(sets_of(3, 4, 5), CheckSurvivors(1, [1, 2, 3, 4, 5]))
        rows = [SignatureOf(c, a.signature) for c, a in {**first.valid(), **second.valid()}.items()]
        assert len(rows) == N
        of_halves = [
            await stand.ask(Unmask(1, rows[:3]), who=sets_of(0, 1)),
            await stand.ask(Unmask(1, rows[3:]), who=sets_of(3, 4)),
        ]
        of_all = [
            await stand.ask(Unmask(1, rows), who=sets_of(2)),
            await stand.ask(Unmask(1, rows[1:]), who=sets_of(5)),
        ]
        return of_halves, of_all

    of_halves, of_all = asyncio.run(play())
    assert of_halves == [
        [(0, "secagg.too-few-signatures"), (1, "secagg.too-few-signatures")],
        [(3, "secagg.too-few-signatures"), (4, "secagg.too-few-signatures")],
    ]
    assert of_all == [[(2, "secagg.inconsistent-survivors")], [(5, "secagg.inconsistent-survivors")]]


# -- order ----------------------------------------------------------------------------------------------------------


def questions(stand: Stand) -> list[tuple[Any, Any]]:
    """The five questions as an honest server would ask client 2, as far as they exist."""
    asked: list[tuple[Any, Any]] = [(AdvertiseKeys(1, N, T), None)]
    asked.append((ShareKeys(1, stand.listed if stand.adverts else []), None))
    asked.append((MaskInput(1), SealedFromPeers(stand.sealed_for(2) if stand.bundles else [])))
    asked.append((CheckSurvivors(1, list(range(N))), None))
    asked.append((Unmask(1, stand.signatures if stand.signed else []), None))
    return asked


@pytest.mark.parametrize("position", range(5))
def test_every_stage_comes_in_its_order(federation: Any, position: int) -> None:
    stages = ["advertise", "share", "mask", "check", "unmask"]

    async def play() -> Any:
        stand = await stand_before(federation, stages[position])
        asked = questions(stand)
        early = [await stand.ask(*asked[later]) for later in range(5) if later != position]
        in_order = await stand.ask(*asked[position])
        again = await stand.ask(*asked[position])
        return early, in_order, again

    early, in_order, again = asyncio.run(play())
    assert early == [[(2, "secagg.out-of-order")]] * 4
    assert in_order == []
    assert again == [(2, "secagg.out-of-order")]


@pytest.mark.parametrize("position", range(1, 5))
def test_a_stage_of_another_round_is_out_of_order(federation: Any, position: int) -> None:
    async def play() -> Any:
        stand = await stand_before(federation, ["advertise", "share", "mask", "check", "unmask"][position])
        message, private = questions(stand)[position]
        return await stand.ask(changed(message, round=2), private)

    assert asyncio.run(play()) == [(2, "secagg.out-of-order")]


@pytest.mark.parametrize("position", range(5))
def test_after_a_refusal_nothing_more_is_answered(federation: Any, position: int) -> None:
    bad = [
        lambda s: (AdvertiseKeys(1, 1, T), None),
        lambda s: (ShareKeys(1, []), None),
        lambda s: (MaskInput(1), SealedFromPeers([])),
        lambda s: (CheckSurvivors(1, []), None),
        lambda s: (Unmask(1, []), None),
    ]

    async def play() -> Any:
        stand = await stand_before(federation, ["advertise", "share", "mask", "check", "unmask"][position])
        first = await stand.ask(*bad[position](stand))
        return first, [await stand.ask(*asked) for asked in questions(stand)]

    first, rest = asyncio.run(play())
    assert first[0][1] != "secagg.out-of-order"
    assert rest == [[(2, "secagg.out-of-order")]] * 5


def test_no_client_ever_reveals_both_shares_of_a_peer(federation: Any) -> None:
    """Over everything that a client answers to a server that asks on, for other sets, in the same round."""

    async def play() -> Any:
        stand = await stand_before(federation, "check", leaving={"secagg/masked-input": {5}})
        stand.signed = await stand.small.protocol.check_consistency(stand.start, T, stand.survivors)
        revealed = []
        for _ in range(2):
            for survivors in ([0, 1, 2, 3, 4], [1, 2, 3, 4]):
                await stand.small.network.ask(sets_of(1, 2, 3, 4), CheckSurvivors(1, survivors))
                replies = await stand.small.network.ask(sets_of(1, 2, 3, 4), Unmask(1, stand.signatures))
                revealed += list(replies.valid().items())
        return revealed

    revealed = asyncio.run(play())
    assert sorted(client for client, _ in revealed) == [1, 2, 3, 4]
    for _, shares in revealed:
        assert {row.client for row in shares.mask_keys} == {5}
        assert {row.client for row in shares.self_masks} == {0, 1, 2, 3, 4}


# -- agreed participants --------------------------------------------------------------------------------------------


def agree(small: Any, clients: list[int], number: int = 1) -> None:
    """As if the clients had verified a participant list (Lotto)."""
    for client in clients:
        identity = small.client(client)
        identity.agreed_participants = {i: small.environment.directory.signing_key(i) for i in clients}
        identity.last_round = number


def test_without_an_agreed_list_nobody_trains_or_aggregates(federation: Any) -> None:
    async def play() -> Any:
        small = federation(np.zeros((N, 3)), SecAggParameters(threshold=T), agreed=True)
        await small.begin()
        trained = small.refusals()
        return trained, await Stand(small, None).ask(AdvertiseKeys(1, N, T))

    trained, asked = asyncio.run(play())
    assert trained == [(i, "train.not-agreed") for i in range(N)]
    assert asked == [(2, "secagg.not-agreed")]


def test_participants_are_those_that_were_agreed_on(federation: Any) -> None:
    async def play() -> Any:
        small = federation(np.zeros((N, 3)), SecAggParameters(threshold=0.6), agreed=True)
        await small.network.begin_round(1)
        agree(small, [0, 1, 2, 3, 4])
        await small.train(1)
        stand = Stand(small, None)
        other_number = await stand.ask(AdvertiseKeys(1, N, 4), who=sets_of(1))
        replies = await small.network.ask(sets_of(0, 2, 3, 4), AdvertiseKeys(1, 5, 3))
        stand.adverts = replies.valid()
        row = changed(stand.listed[0], client=5, sealing_key=FRESH, mask_key=bytes(31) + b"\x09")
        foreign = await stand.ask(ShareKeys(1, [*stand.listed, row]))
        return other_number, foreign

    other_number, foreign = asyncio.run(play())
    assert other_number == [(1, "secagg.other-participants")]
    assert foreign == [(2, "secagg.foreign-participant")]


def test_peers_keys_come_from_the_agreed_list_and_the_pki_is_not_asked(federation: Any) -> None:
    async def play(agreed: bool) -> Any:
        small = federation(np.eye(N), SecAggParameters(threshold=T), agreed=agreed)
        await small.network.begin_round(1)
        if agreed:
            agree(small, list(range(N)))
        start = await small.train(1)
        aggregate = await small.protocol.aggregate(start)
        asked = sum(int(stage.pki_bytes_up.sum()) for stage in small.network.exchanges)
        small.network.end_round()
        return aggregate.survivors.tolist(), asked > 0

    assert asyncio.run(play(True)) == (list(range(N)), False)
    assert asyncio.run(play(False)) == (list(range(N)), True)


@pytest.mark.parametrize("stage", ["share", "unmask"])
def test_the_agreed_list_goes_before_the_bulletin_board(federation: Any, stage: str) -> None:
    """Signatures are checked under the keys that all participants have agreed on, whatever the board says later."""

    async def play() -> Any:
        small = federation(np.eye(N), SecAggParameters(threshold=T), agreed=True)
        await small.network.begin_round(1)
        agree(small, list(range(N)))
        start = await small.train(1)
        protocol, stand = small.protocol, Stand(small, start)
        board = small.environment.directory.signing
        stand.adverts = await protocol.advertise_keys(start, T)
        if stage == "share":
            small.client(2).agreed_participants[4] = board[5].tobytes()
            return await stand.ask(ShareKeys(1, stand.listed))
        stand.bundles = await protocol.share_keys(start, T, stand.adverts)
        _, survivors = await protocol.collect_inputs(start, T, stand.bundles)
        stand.signed = await protocol.check_consistency(start, T, survivors)
        board[4] = board[5]
        honest = await stand.ask(Unmask(1, stand.signatures), who=sets_of(3))
        small.client(2).agreed_participants[4] = board[5].tobytes()
        return honest + await stand.ask(Unmask(1, stand.signatures))

    assert asyncio.run(play()) == [(2, "secagg.forged-keys" if stage == "share" else "secagg.inconsistent-survivors")]


def test_a_round_number_must_be_the_one_that_was_agreed_on(federation: Any) -> None:
    async def play() -> Any:
        small = federation(np.zeros((N, 3)), SecAggParameters(threshold=T), agreed=True)
        await small.network.begin_round(1)
        agree(small, list(range(N)), number=5)
        await small.train(4)
        await small.train(6)
        return small.refusals()

    assert asyncio.run(play()) == [(i, "train.round-used") for i in range(N)] * 2


# -- what the server does with refusals -----------------------------------------------------------------------------


class Announces(SecAgg):
    """Announces another threshold than the experiment's."""

    async def advertise_keys(self, round_: Any, t: int) -> Any:
        return await super().advertise_keys(round_, t - 1)


def test_refusals_end_the_round_and_are_named(federation: Any) -> None:
    small = federation(np.zeros((N, 3)), SecAggParameters(threshold=T), protocol=Announces)
    with pytest.raises(RoundAborted, match=r"below-threshold: 0 of 3 .*refusals: secagg\.other-threshold"):
        small.run()
    assert small.refusals() == [(i, "secagg.other-threshold") for i in range(N)]


@pytest.mark.parametrize(
    ("threshold", "size", "reason"),
    [
        (4, 8, "threshold-too-low"),
        (9, 8, "below-threshold"),
        (0.5, 8, "threshold-too-low"),
        (0.9, 1, "below-threshold"),
    ],
)
def test_rounds_that_clients_would_refuse_are_not_begun(
    federation: Any, threshold: float, size: int, reason: str
) -> None:
    small = federation(np.zeros((size, 3)), SecAggParameters(threshold=threshold))
    with pytest.raises(RoundAborted) as ended:
        small.run()
    assert ended.value.reason == reason
    assert [stage.stage for stage in small.network.exchanges] == ["train"]


# -- what the checks are worth ---------------------------------------------------------------------------------------


def _both_kinds_of_shares(federation: Any, colluders: int) -> tuple[int, int]:
    """How many shares of client 0's self-mask and mask key a server can have with so many colluders, of N = 6."""

    async def play() -> tuple[int, int]:
        stand = await stand_before(federation, "check")
        small, network = stand.small, stand.small.network
        bad = list(range(N - colluders, N))
        honest = list(range(N - colluders))
        halves = [honest[: (len(honest) + 1) // 2], honest[(len(honest) + 1) // 2 :]]
        found = []
        for half, survivors in zip(halves, ([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5]), strict=True):
            told = np.array(half, np.int64)
            signed = {c: a.signature for c, a in (await network.ask(told, CheckSurvivors(1, survivors))).items()}
            for client in bad:  # a colluder signs both sets
                role = small.client(client).role(SecAggClient, small.parameters)
                role._next_step = 3
                signed[client] = role.on_check_survivors(CheckSurvivors(1, survivors)).signature
            rows = [SignatureOf(c, s) for c, s in sorted(signed.items())]
            revealed = (await network.ask(told, Unmask(1, rows))).valid()
            kind = "self_masks" if 0 in survivors else "mask_keys"
            of_victim = sum(row.client == 0 for shares in revealed.values() for row in getattr(shares, kind))
            found.append(of_victim + len(bad))
        return found[0], found[1]

    return asyncio.run(play())


def test_it_takes_2t_minus_s_colluders_to_have_both_shares_of_a_client(federation: Any) -> None:
    """Lotto, Corollary 1: secagg holds against fewer than 2t - s dishonest participants, and no check can do more."""
    assert 2 * T - N == 2
    assert min(_both_kinds_of_shares(federation, colluders=2)) >= T
    assert min(_both_kinds_of_shares(federation, colluders=1)) < T


@pytest.mark.parametrize(("minimum", "checks"), [(N, []), (N + 1, ["secagg.too-few-participants"])])
def test_fewer_participants_than_an_honest_server_takes_are_refused(
    federation: Any, minimum: int, checks: list[str]
) -> None:
    assert refused(federation, "advertise", lambda stand: (AdvertiseKeys(1, N, T),), minimum=minimum) == checks
