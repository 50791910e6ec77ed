"""Refusals of a client beyond those of `secagg`, and attacks of a malicious server that fail."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from pydantic import ValidationError

from testbed.aggregation.kit.message_parts import ShareOf, SignatureOf
from testbed.aggregation.secagg.messages import (
    AdvertiseKeys,
    AdvertOf,
    CheckSurvivors,
    KeyAdvert,
    RevealedShares,
    SealedFromPeers,
    ShareKeys,
    SharesFor,
    Unmask,
)
from testbed.aggregation.secagg.round import listed
from testbed.aggregation.secagg_plus.graph import (
    AnnounceGraph,
    MaskInputAmongNeighbours,
    NeighbourGraph,
    NeighbourKeys,
    NeighbourSignatures,
    ShareKeysAmongNeighbours,
    UnmaskNeighbours,
    list_digest,
)
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.aggregation.secagg_plus.protocol import SecAggPlus, SecAggPlusClient
from testbed.crypto.key_agreement import PrivateKey
from testbed.errors import RoundAborted
from testbed.parties.client import RoleSpec, handles
from tests.aggregation import federations
from tests.aggregation.federations import SmallFederation, run_until
from tests.messages_named import naming

N, K, T, VICTIM = 16, 6, 5, 2
EVERYBODY = list(range(N))
EXPERIMENT = b"a test's own id."
PARAMETERS = SecAggPlusParameters(neighbours=K, threshold=T, dropouts=0.25, accept_weaker=True)
DELTAS = np.random.default_rng(3).uniform(-1, 1, (N, 5)).astype(np.float32)
AROUND = {
    client: NeighbourGraph(EVERYBODY, K, list_digest(bytes(32), 1, EVERYBODY)).around(client) for client in EVERYBODY
}
NEAR = sorted(AROUND[VICTIM] - {VICTIM})
FAR = sorted(set(EVERYBODY) - AROUND[VICTIM])
FRESH = PrivateKey.from_seed(bytes(range(32))).public
changed = msgspec.structs.replace


class Stand(federations.Stand):
    """Where an honest run has got to."""

    def keys_for(self, client: int) -> list[AdvertOf]:
        rows = {row.client: row for row in self.listed}
        return [rows[one] for one in sorted(AROUND[client])]

    def signatures_for(self, client: int) -> list[SignatureOf]:
        return [SignatureOf(one, self.state.signed[one]) for one in sorted(AROUND[client])]

    def shown(self, client: int, signatures: list[SignatureOf]) -> NeighbourSignatures:
        return NeighbourSignatures(signatures, self.state.graph.tags_for(self.state.inputs, client))

    async def checks(self, message: Any, private: Any = None, who: int = VICTIM) -> list[str]:
        """The checks that the question fails."""
        return [check for _, check in await self.ask(message, private, (who,))]


async def stand_before(stage: str, **keywords: Any) -> Stand:
    small = SmallFederation(DELTAS, PARAMETERS, protocol=SecAggPlus, **keywords)
    start = await small.begin()
    stand = Stand(small, start)
    await run_until(stage, small.protocol, stand.state)
    return stand


def refused(stage: str, question: Callable[[Stand], tuple[Any, ...]], **keywords: Any) -> list[str]:
    """The checks with which client 2 answers a dishonest question before `stage`."""

    async def play() -> list[str]:
        stand = await stand_before(stage, **keywords)
        return await stand.checks(*question(stand))

    return asyncio.run(play())


# -- advertise keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "check"),
    [
        (AnnounceGraph(1, EVERYBODY[::-1], K, T), "secagg-plus.malformed-list"),
        (AnnounceGraph(1, [*EVERYBODY, N - 1], K, T), "secagg-plus.malformed-list"),
        (AnnounceGraph(1, EVERYBODY[3:], K, T), "secagg-plus.not-in-list"),
        (AnnounceGraph(1, EVERYBODY, K + 2, T), "secagg-plus.neighbourhood-mismatch"),
        (AnnounceGraph(1, EVERYBODY, N - 1, T), "secagg-plus.neighbourhood-mismatch"),
        (AnnounceGraph(1, EVERYBODY, K, T - 1), "secagg-plus.neighbourhood-mismatch"),
        (AnnounceGraph(1, EVERYBODY, K, T + 1), "secagg-plus.neighbourhood-mismatch"),
        (AnnounceGraph(1, [VICTIM], K, T), "aggregation.single-participant"),
        (AnnounceGraph(1, [], K, T), "aggregation.single-participant"),
        (AnnounceGraph(2, EVERYBODY, K, T), "aggregation.no-trained-update"),
        (AdvertiseKeys(1, N, T), "message.unexpected-type"),
        (AdvertiseKeys(1, K + 1, T), "message.unexpected-type"),
    ],
)
def test_what_the_server_announces_is_checked(message: Any, check: str) -> None:
    assert refused("advertise", lambda stand: (message,)) == [check]


def test_too_small_a_list_is_refused() -> None:
    question = AnnounceGraph(1, EVERYBODY[:9], K, T)
    assert refused("advertise", lambda stand: (question,), minimum=10) == ["aggregation.too-few-participants"]


def test_a_threshold_that_does_not_exceed_half_is_refused_even_if_the_experiment_says_so() -> None:
    low = SecAggPlusParameters(neighbours=K, threshold=3, accept_weaker=True)

    async def play() -> list[str]:
        small = SmallFederation(DELTAS, low, protocol=SecAggPlus)
        return await Stand(small, await small.begin()).checks(AnnounceGraph(1, EVERYBODY, K, 3))

    assert asyncio.run(play()) == ["secagg.threshold-too-low"]


def test_a_number_of_participants_for_which_nothing_is_safe_is_refused() -> None:
    unsafe = SecAggPlusParameters(dishonest=0.6, dropouts=0.3)

    async def play() -> list[str]:
        small = SmallFederation(DELTAS, unsafe, protocol=SecAggPlus)
        return await Stand(small, await small.begin()).checks(AnnounceGraph(1, EVERYBODY, K, T))

    assert asyncio.run(play()) == ["secagg-plus.no-neighbourhood"]


def test_where_participants_have_agreed_on_a_list_it_is_that_list() -> None:
    """Lotto: the server cannot swap anybody, in order to have another graph."""

    async def play() -> list[list[str]]:
        small = SmallFederation(np.zeros((N + 1, 3)), PARAMETERS, protocol=SecAggPlus, agreed=True)
        await small.network.begin_round(1)
        for client in EVERYBODY:
            identity = small.client(client)
            identity.agreed_participants = {i: small.environment.directory.signing_key(i) for i in EVERYBODY}
            identity.last_round = 1
        stand = Stand(small, await small.train(1))
        lists = ([*EVERYBODY[:-1], N], EVERYBODY[:-1], EVERYBODY)
        return [
            await stand.checks(AnnounceGraph(1, those, K, T), who=who) for who, those in enumerate(lists, start=VICTIM)
        ]

    assert asyncio.run(play()) == [["secagg-plus.participants-mismatch"], ["aggregation.participants-mismatch"], []]


# -- share keys -----------------------------------------------------------------------------------------------------


def test_neighbours_are_those_of_the_list_and_nobody_else() -> None:
    def question(stand: Stand) -> tuple[Any, ...]:
        far = stand.state.adverts[FAR[0]]
        stranger = AdvertOf(FAR[0], far.sealing_key, far.mask_key, far.signature)
        rows = stand.keys_for(VICTIM)
        swapped = [stranger if row.client == NEAR[0] else row for row in rows]
        return ShareKeysAmongNeighbours(1), NeighbourKeys(swapped)

    assert refused("share", question) == ["secagg-plus.not-a-neighbour"]


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda rows: rows[: T - 1], "secagg.own-keys-mismatch secagg.wrong-size"),
        (lambda rows: [*rows, rows[0]], "secagg.duplicate-client"),
        (lambda rows: [changed(rows[0], mask_key=FRESH), *rows[1:]], "aggregation.keys-or-model-mismatch"),
        (lambda rows: [row for row in rows if row.client != VICTIM], "secagg.own-keys-mismatch"),
    ],
)
def test_neighbours_keys_are_checked_as_in_secagg(change: Any, check: str) -> None:
    def question(stand: Stand) -> tuple[Any, ...]:
        return ShareKeysAmongNeighbours(1), NeighbourKeys(change(stand.keys_for(VICTIM)))

    (found,) = refused("share", question)
    assert found in check.split()


def test_neighbours_that_were_told_another_list_are_noticed() -> None:
    """The signature on keys covers the list: honest neighbours have one graph, even if the server chose the list."""

    async def play() -> list[str]:
        small = SmallFederation(np.zeros((N + 1, 3)), PARAMETERS, protocol=SecAggPlus)
        stand = Stand(small, await small.begin())
        other_list = [*EVERYBODY[:-1], N]
        adverts: dict[int, KeyAdvert] = {}
        for client in [VICTIM, *NEAR]:
            those = EVERYBODY if client != NEAR[0] else other_list
            if client not in those:
                those = EVERYBODY
            replies = await small.network.ask(np.array([client]), AnnounceGraph(1, those, K, T))
            adverts.update(replies.valid())
        rows = listed(dict(sorted(adverts.items())))
        return await stand.checks(ShareKeysAmongNeighbours(1), NeighbourKeys(rows))

    assert NEAR[0] < N - 1
    assert asyncio.run(play()) == ["aggregation.keys-or-model-mismatch"]


# -- masked input ---------------------------------------------------------------------------------------------------


def test_shares_from_too_few_neighbours_or_from_others_are_refused() -> None:
    def from_(peers: list[int]) -> Callable[[Stand], tuple[Any, ...]]:
        return lambda stand: (
            MaskInputAmongNeighbours(1),
            SealedFromPeers([SharesFor(peer, bytes(98)) for peer in peers]),
        )

    assert refused("mask", from_(NEAR[: T - 2])) == ["secagg.below-threshold"]
    assert refused("mask", from_([*NEAR[1:], FAR[0]])) == ["secagg.unexpected-shares"]


# -- consistency check ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("survivors", "check"),
    [
        ([*EVERYBODY, FAR[0]], "secagg.unknown-survivor"),
        ([*EVERYBODY, 99], "secagg.unknown-survivor"),
        ([one for one in EVERYBODY if one not in FAR[:5]], "secagg-plus.below-threshold"),
        ([one for one in EVERYBODY if one != VICTIM], "secagg.declared-dropped"),
        ([one for one in EVERYBODY if one not in NEAR[: K + 2 - T]], "secagg.below-threshold"),
    ],
)
def test_survivors_are_checked(survivors: list[int], check: str) -> None:
    assert refused("check", lambda stand: (CheckSurvivors(1, survivors),)) == [check]


# -- unmask ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda rows, stand: rows[: T - 1], "secagg.too-few-signatures"),
        (lambda rows, stand: [*rows, rows[0]], "secagg.unexpected-signature"),
        (
            lambda rows, stand: [*rows[1:], SignatureOf(FAR[0], stand.state.signed[FAR[0]])],
            "secagg.unexpected-signature",
        ),
        (lambda rows, stand: [changed(rows[0], signature=bytes(64)), *rows[1:]], "secagg.inconsistent-survivors"),
    ],
)
def test_signatures_on_the_survivors_come_from_the_neighbourhood(change: Any, check: str) -> None:
    def question(stand: Stand) -> tuple[Any, ...]:
        return UnmaskNeighbours(1), stand.shown(VICTIM, change(stand.signatures_for(VICTIM), stand))

    assert refused("unmask", question) == [check]


def test_neighbours_who_signed_other_survivors_anywhere_in_the_round_are_noticed() -> None:
    """The signed set is that of the whole round, also where it does not concern the neighbourhood."""

    async def play() -> list[str]:
        stand = await stand_before("check")
        far = next(one for one in FAR if one not in AROUND[NEAR[0]])
        signed = {}
        for client in [VICTIM, *NEAR]:
            survivors = [one for one in EVERYBODY if client != NEAR[0] or one != far]
            replies = await stand.small.network.ask(np.array([client]), CheckSurvivors(1, survivors))
            signed.update({c: answer.signature for c, answer in replies.valid().items()})
        stand.state.signed = signed
        return await stand.checks(UnmaskNeighbours(1), stand.shown(VICTIM, stand.signatures_for(VICTIM)))

    assert asyncio.run(play()) == ["secagg.inconsistent-survivors"]


@pytest.mark.parametrize(("stage", "question"), [("share", ShareKeys(1, [])), ("unmask", Unmask(1, []))])
def test_the_questions_of_secagg_are_not_answered(stage: str, question: Any) -> None:
    assert refused(stage, lambda stand: (question,)) == ["message.unexpected-type"]


@pytest.mark.parametrize("stage", ["share", "check"])
def test_a_stage_comes_once_and_a_second_list_not_at_all(stage: str) -> None:
    question = AnnounceGraph(1, EVERYBODY, K, T)
    assert refused(stage, lambda stand: (question,)) == ["secagg.out-of-order"]


def test_both_shares_of_a_client_cannot_be_had_by_two_stories() -> None:
    """Half of a client's neighbours hear that it dropped out, the others that it is there: neither reveal anything."""

    async def play() -> tuple[list[str], list[str]]:
        stand = await stand_before("check")
        stories = {
            client: [one for one in EVERYBODY if one != VICTIM or position % 2] for position, client in enumerate(NEAR)
        }
        signed = {}
        for client in EVERYBODY:
            told = stories.get(client, EVERYBODY)
            replies = await stand.small.network.ask(np.array([client]), CheckSurvivors(1, told))
            signed.update({c: answer.signature for c, answer in replies.valid().items()})
        refusals = []
        for client in NEAR:
            agreeing = [
                SignatureOf(one, signed[one])
                for one in sorted(AROUND[client])
                if one in signed and stories.get(one, EVERYBODY) == stories[client]
            ]
            refusals.append(await stand.checks(UnmaskNeighbours(1), stand.shown(client, agreeing), who=client))
        dead = [refusals[position] for position in range(0, K, 2)]
        return [check for found in dead for check in found], [check for found in refusals for check in found]

    dead, everything = asyncio.run(play())
    assert set(everything) <= {"secagg.too-few-signatures", "secagg.unexpected-signature"}
    assert dead == ["secagg.too-few-signatures"] * (K // 2)


# -- the server's own checks ----------------------------------------------------------------------------------------


class RevealsForeignShares(SecAggPlusClient):
    """Adds shares of clients that it holds none of."""

    @handles(UnmaskNeighbours)
    def on_unmask_neighbours(self, message: UnmaskNeighbours, private: NeighbourSignatures) -> RevealedShares:
        own = super().on_unmask_neighbours(message, private)
        return RevealedShares(own.mask_keys, [*own.self_masks, *(ShareOf(one, bytes(33)) for one in FAR)])


def test_shares_that_a_client_cannot_hold_are_left_out() -> None:
    roles = [RoleSpec(RevealsForeignShares, PARAMETERS, only=frozenset({VICTIM}))]
    small = SmallFederation(DELTAS, PARAMETERS, protocol=SecAggPlus, roles=roles)
    assert small.run().survivors.tolist() == EVERYBODY
    assert (VICTIM, "unmask: has shares of clients that are not its neighbours") in small.misbehaviour()


class SignsAnotherList(SecAggPlusClient):
    def advert_content(self, client: int, sealing_key: bytes, mask_key: bytes) -> bytes:
        own = client == self.client.number
        return super().advert_content(client, sealing_key, mask_key) + (b"!" if own else b"")


def test_keys_signed_for_another_list_are_not_passed_on() -> None:
    roles = [RoleSpec(SignsAnotherList, PARAMETERS, only=frozenset({VICTIM}))]
    small = SmallFederation(DELTAS, PARAMETERS, protocol=SecAggPlus, roles=roles)
    assert small.run().survivors.tolist() == [one for one in EVERYBODY if one != VICTIM]
    assert [client for client, _ in small.misbehaviour()] == [VICTIM]


def test_rounds_that_clients_would_refuse_are_not_begun() -> None:
    cases = {
        "threshold-too-low": (N, SecAggPlusParameters(neighbours=K, threshold=3, accept_weaker=True), True),
        "no-neighbourhood": (N, SecAggPlusParameters(dishonest=0.6, dropouts=0.3), True),
        "below-threshold": (1, SecAggPlusParameters(), True),
    }
    for reason, (size, parameters, told) in cases.items():
        small = SmallFederation(DELTAS[:size], parameters, protocol=SecAggPlus, told=told)
        with pytest.raises(RoundAborted) as ended:
            small.run()
        assert ended.value.reason == reason
        assert [stage.stage for stage in small.network.exchanges] == ["train"]


# -- parameters -----------------------------------------------------------------------------------------------------


def test_given_neighbours_must_meet_the_requirements_or_be_accepted() -> None:
    with pytest.raises(ValueError, match=r"neighbours: k = 40, t = 29 of 700 .* contradiction 2\^-.*accept_weaker"):
        SecAggPlusParameters(neighbours=40, threshold=29).check(700)
    SecAggPlusParameters(neighbours=40, threshold=29, accept_weaker=True).check(700)
    SecAggPlusParameters(neighbours=120).check(700)
    assert SecAggPlusParameters(neighbours=40, threshold=29, accept_weaker=True).weakness(700)
    assert SecAggPlusParameters(neighbours=120).weakness(700) == ""


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"neighbours": 81}, "neighbours: k = 81 is odd"),
        ({"neighbours": 80, "threshold": 40, "accept_weaker": True}, "threshold: t = 40 of k = 80.*allowed 41 to 80"),
        ({"neighbours": 80, "threshold": 81, "accept_weaker": True}, "threshold: t = 81 of k = 80.*allowed 41 to 80"),
        ({"dishonest": 0.5, "dropouts": 0.3}, "dishonest, dropouts: .* leave no safe threshold"),
    ],
)
def test_parameters_that_fit_nothing(keys: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        SecAggPlusParameters(**keys).check(700)


def test_a_threshold_goes_with_neighbours() -> None:
    with pytest.raises(ValidationError, match="threshold: goes with neighbours"):
        SecAggPlusParameters(threshold=50)
    with pytest.raises(ValueError, match=naming("secagg-plus", 2, "participants")):
        SecAggPlusParameters().check(1)
