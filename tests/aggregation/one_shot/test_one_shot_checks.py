"""Refusals of `one-shot` clients and members, and the server's handling of misbehaving ones."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as changed

from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.one_shot.client import OneShotClient
from testbed.aggregation.one_shot.complaints import shares_for_members
from testbed.aggregation.one_shot.member import OneShotMember
from testbed.aggregation.one_shot.messages import (
    OneShotSubmission,
    OneShotSubmit,
    ShareFrom,
    SharesFromSurvivors,
    SignedSurvivors,
    SignSurvivors,
    SummedShares,
    SumShares,
)
from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.aggregation.one_shot.server import OneShot, OneShotRound
from testbed.batches import Batches
from testbed.committee.messages import CommitteeList, CommitteeMember
from testbed.emulation.compute.cost import metered
from testbed.errors import RoundAborted
from testbed.network.contract import ids
from testbed.parties.client import RoleSpec
from testbed.vectors.integers import IntegerVector
from tests.aggregation.federations import SmallFederation

N, MEMBERS = 9, (0, 1, 2, 3, 4, 5)
PARAMETERS = OneShotParameters(
    committee={"selection": "given", "members": MEMBERS, "threshold": 4}, max_colluders=1, min_survivors=4
)
DELTAS = np.random.default_rng(3).uniform(-1, 1, (N, 5))
EVERYBODY = list(range(N))
STRANGER = 40
MEMBER, CLIENT = 2, 8  # the asked clients: one on the committee, one not

Question = tuple[Any, Any]
"""A message to all, and the private message to the asked client."""


class Stand:
    """State of an honest round, and the questions that the server may ask next."""

    def __init__(self, small: SmallFederation, state: OneShotRound) -> None:
        self.small = small
        self.state = state

    @property
    def submit(self) -> OneShotSubmit:
        return OneShotSubmit(1, N, self.state.committee)

    def opening(self, survivors: list[int] | None = None, **fields: Any) -> Question:
        """The question to open shares, with something else in it."""
        protocol: Any = self.small.protocol
        named = EVERYBODY if survivors is None else survivors
        message = protocol.opening(self.state, np.array(named, np.int64))
        return changed(message, **fields), self.shares(named)

    def shares(self, survivors: list[int], **fields: Any) -> SharesFromSurvivors:
        """Return the survivors' shares for the member, with the first row changed."""
        known = ids([client for client in survivors if client in self.state.shares])
        all_shares = shares_for_members(self.state.shares, known, MEMBERS, self.state.test)[MEMBER].shares
        of_client = {share.client: share for share in all_shares}
        unknown = ShareFrom(STRANGER, b"", bytes(32), bytes(32), all_shares[0].values)
        rows = [changed(of_client.get(client, unknown), client=client) for client in survivors]
        return SharesFromSurvivors([changed(rows[0], **fields), *rows[1:]] if rows else [])

    async def signatures(self, survivors: list[int], members: list[int]) -> list[SignatureOf]:
        """Return the signatures of other members."""
        protocol: Any = self.small.protocol
        _, signed = await protocol.signatures(self.state, ids(members), ids(survivors))
        return [SignatureOf(member, signature) for member, signature in signed.items()]


async def stand_before(stage: str, **keywords: Any) -> Stand:
    """Nine clients run honestly until `stage` is next."""
    small = SmallFederation(DELTAS, PARAMETERS, protocol=OneShot, **keywords)
    protocol: Any = small.protocol
    state = await protocol.begin(await small.begin())
    if stage != "submit":
        await protocol.collect_submissions(state)
    if stage == "sign":
        await protocol.test_shares(state)
    return Stand(small, state)


async def ask(stand: Stand, client: int, question: Question) -> list[str]:
    """The checks with which a client refuses a question, or a share."""
    message, alone = question
    private = None if alone is None else {client: alone}
    replies = await stand.small.network.ask(np.array([client]), message, private=private)
    assert len(replies) + len(replies.missing.refused) == 1
    rejected = {one.check for answer in replies.valid().values() for one in getattr(answer, "rejected", [])}
    return [refusal.check for refusal in replies.missing.refusals] + sorted(rejected)


def refused(stage: str, client: int, question: Callable[[Stand], Question], **keywords: Any) -> list[str]:
    async def play() -> list[str]:
        stand = await stand_before(stage, **keywords)
        return await ask(stand, client, question(stand))

    return asyncio.run(play())


def listed(*clients: int, first_round: int = 1) -> CommitteeList:
    return CommitteeList(first_round, [CommitteeMember(client) for client in clients])


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({}, None),
        ({"committee": listed(0, 1, 2, 3, 4, 6)}, "committee.members-mismatch"),
        ({"committee": listed(0, 1, 2, 3, 4)}, "committee.members-mismatch"),
        ({"committee": listed(*MEMBERS, first_round=2)}, "committee.service-mismatch"),
        ({"participants": 1}, "aggregation.single-participant"),
        ({"round": 2}, "aggregation.no-trained-update"),
    ],
)
def test_what_the_server_tells_clients_is_checked(change: dict[str, Any], check: str | None) -> None:
    found = refused("submit", CLIENT, lambda stand: (changed(stand.submit, **change), None))
    assert found == ([] if check is None else [check])


def test_a_client_speaks_once() -> None:
    async def play(first: Callable[[Stand], Question]) -> list[str]:
        stand = await stand_before("submit")
        await ask(stand, CLIENT, first(stand))
        return await ask(stand, CLIENT, (stand.submit, None))

    assert asyncio.run(play(lambda stand: (stand.submit, None))) == ["one-shot.out-of-order"]
    refused_first = asyncio.run(play(lambda stand: (changed(stand.submit, participants=1), None)))
    assert refused_first == ["one-shot.out-of-order"]


@pytest.mark.parametrize(
    ("question", "check"),
    [
        (lambda s: s.opening(), None),
        (lambda s: s.opening([0, 1, 2, 3]), None),
        (lambda s: s.opening([0, 1, 2]), "one-shot.below-threshold"),
        (lambda s: s.opening([0, 1, 2, 3, 3]), "one-shot.unknown-survivor"),
        (lambda s: s.opening(participants=1), "one-shot.wrong-size"),
        (lambda s: s.opening(participants=8), "one-shot.below-threshold"),  # nine survivors of eight
        (lambda s: s.opening(participants=N + 1), "one-shot.invalid-share"),  # clients were told otherwise
        (lambda s: s.opening(training=b""), "one-shot.model-not-bound"),
        (lambda s: s.opening(training=bytes(32)), "one-shot.invalid-share"),
        (lambda s: s.opening(agreed=EVERYBODY), "one-shot.participants-mismatch"),
        (lambda s: s.opening(committee=listed(0, 1, 2, 3, 4, 6)), "committee.members-mismatch"),
        (lambda s: s.opening(committee=listed(0, 1, 3, 4, 5)), "one-shot.not-a-member"),
        (lambda s: (s.opening()[0], s.shares([0, 1, 2, 3])), "one-shot.unexpected-shares"),
        (lambda s: (s.opening()[0], s.shares([*EVERYBODY, 0])), "one-shot.unexpected-shares"),
        (lambda s: (s.opening([0, 1, 2, 3])[0], s.shares([0, 1, 2, 3], sealed=b"short")), "one-shot.invalid-share"),
        (lambda s: (s.opening([0, 1, 2, 3])[0], s.shares([0, 1, 2, 3], sealed=s.state.shares[0].shares[0])),
         "one-shot.invalid-share"),  # sealed for another member
        (lambda s: (s.opening([0, 1, 2, 3])[0], s.shares([0, 1, 2, 3], root=bytes(32))), "one-shot.invalid-share"),
        (
            lambda s: (s.opening([0, 1, 2, 3])[0], s.shares([0, 1, 2, 3], commitment=bytes(32))),
            "one-shot.invalid-share",
        ),
        (lambda s: (s.opening([0, 1, 2, 3])[0], s.shares([0, 1, 2, 3], values=bytes(16))),
         "one-shot.inconsistent-share"),
        (
            lambda s: (s.opening([0, 1, 2, 3])[0], s.shares([0, 1, 2, 3], values=bytes(12))),
            "one-shot.unexpected-shares",
        ),
        (lambda s: s.opening([0, 1, 2, STRANGER]), "pki.unknown-client"),
        (lambda s: (SumShares(1, []), None), "one-shot.out-of-order"),
        (lambda s: (SignSurvivors(1, EVERYBODY), None), "one-shot.out-of-order"),
    ],
)  # fmt: skip
def test_what_the_server_tells_members_is_checked(question: Callable[[Stand], Question], check: str | None) -> None:
    assert refused("open", MEMBER, question) == ([] if check is None else [check])


@pytest.mark.parametrize(
    ("survivors", "check"),
    [
        (EVERYBODY, None),
        ([0, 1, 2, 3], None),
        ([0, 1, 2], "one-shot.below-threshold"),
        ([0, 1, 2, 3, 3], "one-shot.unknown-survivor"),
        ([0, 1, 2, STRANGER], "one-shot.invalid-share"),
    ],
)
def test_the_survivors_that_a_member_signs_are_checked(survivors: list[int], check: str | None) -> None:
    found = refused("sign", MEMBER, lambda s: (SignSurvivors(1, survivors), None))
    assert found == ([] if check is None else [check])


def test_a_member_signs_no_client_whose_share_has_not_passed() -> None:
    async def play() -> list[str]:
        stand = await stand_before("open")
        message, _ = stand.opening()
        assert await ask(stand, MEMBER, (message, stand.shares(EVERYBODY, values=bytes(16))))
        return await ask(stand, MEMBER, (SignSurvivors(1, EVERYBODY), None))

    assert asyncio.run(play()) == ["one-shot.invalid-share"]


def test_a_member_signs_one_set() -> None:
    """The signed sets of two sums have T + 1 members in common, so one of them is honest."""

    async def play() -> list[str]:
        stand = await stand_before("sign")
        assert await ask(stand, MEMBER, (SignSurvivors(1, EVERYBODY), None)) == []
        return await ask(stand, MEMBER, (SignSurvivors(1, EVERYBODY[:-1]), None))

    assert asyncio.run(play()) == ["one-shot.out-of-order"]


def test_a_part_of_a_batch_is_refused() -> None:
    batches = Batches(np.repeat(np.arange(3), 3))
    part = (SignSurvivors(1, [0, 1, 2, 3, 4]), None)
    assert refused("sign", MEMBER, lambda s: part, batches=batches) == ["aggregation.partial-batch"]
    assert refused("open", MEMBER, lambda s: s.opening([0, 1, 2, 3, 4]), batches=batches) == [
        "aggregation.partial-batch"
    ]
    assert refused("open", MEMBER, lambda s: s.opening([0, 1, 2, 3, 4, 5]), batches=batches) == []


def test_participants_that_must_be_agreed_on_are() -> None:
    """Clients that have verified a list have their shares open for it alone, and for survivors of it."""

    async def play(question: Callable[[Stand], Question]) -> list[str]:
        small = SmallFederation(DELTAS, PARAMETERS, protocol=OneShot, agreed=True)
        protocol: Any = small.protocol
        await small.network.begin_round(1)
        for client in EVERYBODY:
            keys = {other: small.environment.directory.signing_key(other) for other in EVERYBODY}
            small.client(client).agreed_participants = keys
            small.client(client).last_round = 1
        start = await small.train()
        state = await protocol.begin(start)
        await protocol.collect_submissions(state)
        assert len(state.shares) == N
        return await ask(stand := Stand(small, state), MEMBER, question(stand))

    assert asyncio.run(play(lambda s: s.opening())) == []
    assert asyncio.run(play(lambda s: s.opening(agreed=[]))) == ["one-shot.participants-mismatch"]
    assert asyncio.run(play(lambda s: s.opening(agreed=EVERYBODY[1:]))) == ["one-shot.participants-mismatch"]
    other = [*EVERYBODY[:-1], STRANGER]
    assert asyncio.run(play(lambda s: s.opening(agreed=other))) == ["one-shot.unknown-survivor"]
    assert asyncio.run(play(lambda s: s.opening([0, 1, 2, 3], agreed=other))) == ["one-shot.invalid-share"]


def test_a_member_serves_once_a_round_whatever_it_is_asked() -> None:
    """Two sums' difference is an update: no second set, neither after a refusal nor when the round is begun again."""

    async def play(first: Callable[[Stand], Question], again: bool) -> list[str]:
        stand = await stand_before("open")
        await ask(stand, MEMBER, first(stand))
        if again:
            await stand.small.network.begin_round(2)  # all state of round 1 is dropped
        return await ask(stand, MEMBER, stand.opening([0, 1, 2, 3]))

    assert asyncio.run(play(lambda s: s.opening(), again=False)) == ["one-shot.out-of-order"]
    assert asyncio.run(play(lambda s: s.opening([0, 1, 2]), again=False)) == ["one-shot.out-of-order"]
    assert asyncio.run(play(lambda s: s.opening(), again=True)) == ["one-shot.round-reused"]
    assert asyncio.run(play(lambda s: s.opening([0, 1, 2]), again=True)) == ["one-shot.round-reused"]


@pytest.mark.parametrize(
    ("rows", "check"),
    [
        (lambda same, other: same, None),
        (lambda same, other: same[:3], "one-shot.too-few-signatures"),
        (lambda same, other: [*same[:3], same[0]], "one-shot.unexpected-signature"),
        (lambda same, other: [*same[:3], SignatureOf(CLIENT, same[3].signature)], "one-shot.unexpected-signature"),
        (lambda same, other: [*same[:3], other[0]], "one-shot.inconsistent-survivors"),
        (lambda same, other: [*same[:3], SignatureOf(5, same[0].signature)], "one-shot.inconsistent-survivors"),
    ],
)
def test_a_member_sums_what_enough_have_signed(rows: Any, check: str | None) -> None:
    """Members 0, 1, 2 and 4 have signed everybody, and 3 all but the last."""

    async def play() -> list[str]:
        stand = await stand_before("sign")
        same = await stand.signatures(EVERYBODY, [0, 1, 2, 4])
        other = await stand.signatures(EVERYBODY[:-1], [3])
        assert (len(same), len(other)) == (4, 1)
        return await ask(stand, MEMBER, (SumShares(1, rows(same, other)), None))

    assert asyncio.run(play()) == ([] if check is None else [check])


# -- misbehaving clients and members -----------------------------------------------------------------------------------


class OneShareTooFew(OneShotClient):
    def on_submit(self, message: OneShotSubmit) -> OneShotSubmission:
        return changed(said := super().on_submit(message), shares=said.shares[1:])


class ShortShares(OneShotClient):
    def on_submit(self, message: OneShotSubmit) -> OneShotSubmission:
        return changed(said := super().on_submit(message), shares=[sealed[1:] for sealed in said.shares])


class ShortInput(OneShotClient):
    def on_submit(self, message: OneShotSubmit) -> OneShotSubmission:
        said = super().on_submit(message)
        return changed(said, input=IntegerVector(said.input.values[3:]))


class FewCommitments(OneShotClient):
    def on_submit(self, message: OneShotSubmit) -> OneShotSubmission:
        return changed(said := super().on_submit(message), commitments=said.commitments[1:])


class NoResponses(OneShotClient):
    def on_submit(self, message: OneShotSubmit) -> OneShotSubmission:
        return changed(said := super().on_submit(message), responses=b"\xff" * len(said.responses))


class BadShares(OneShotClient):
    """Seals shares that do not open."""

    def on_submit(self, message: OneShotSubmit) -> OneShotSubmission:
        return changed(said := super().on_submit(message), shares=[bytes(len(sealed)) for sealed in said.shares])


class OtherResponses(OneShotClient):
    """Shows the responses to another challenge."""

    def on_submit(self, message: OneShotSubmit) -> OneShotSubmission:
        return changed(said := super().on_submit(message), responses=bytes(len(said.responses)))


class WrongSignature(OneShotMember):
    def on_sign_survivors(self, message: SignSurvivors) -> SignedSurvivors:
        return changed(super().on_sign_survivors(message), signature=bytes(64))


class NoElements(OneShotMember):
    def on_sum_shares(self, message: SumShares) -> SummedShares:
        return SummedShares(b"\xff" * len(super().on_sum_shares(message).total))


class TooLong(OneShotMember):
    def on_sum_shares(self, message: SumShares) -> SummedShares:
        return SummedShares(super().on_sum_shares(message).total + bytes(4))


class WrongSum(OneShotMember):
    def on_sum_shares(self, message: SumShares) -> SummedShares:
        said = super().on_sum_shares(message).total
        return SummedShares(bytes([said[0] ^ 1]) + said[1:])


@pytest.mark.parametrize(
    ("kind", "noticed", "left_out"),
    [
        (OneShareTooFew, "masked input: does not have one share for every member", True),
        (ShortShares, "masked input: does not have one share for every member", True),
        (ShortInput, "masked input: ", True),
        (FewCommitments, "masked input: does not have one commitment for every member's share", True),
        (NoResponses, "masked input: does not have valid responses to the test of its shares", True),
        (BadShares, "one-shot.invalid-share", True),
        (OtherResponses, "one-shot.inconsistent-share", True),
        (WrongSignature, "signature on the survivors: ", False),
        (NoElements, "summed shares: ", False),
        (TooLong, "summed shares: ", False),
        (WrongSum, "summed shares: does not fit the sums of the other members", False),
    ],
)
def test_one_that_the_server_sees_through_is_left_out(kind: Any, noticed: str, left_out: bool) -> None:
    small = SmallFederation(DELTAS, PARAMETERS, protocol=OneShot, roles=[RoleSpec(kind, PARAMETERS, frozenset({1}))])
    aggregate = small.run()
    assert aggregate.survivors.tolist() == [client for client in EVERYBODY if client != 1 or not left_out]
    ((client, said),) = small.misbehaviour()
    assert client == 1
    assert said.startswith(noticed)
    assert np.abs(aggregate.mean - np.float32(DELTAS)[aggregate.survivors].mean(0)).max() < 1e-4


@pytest.mark.parametrize(
    ("kind", "dishonest", "reason"),
    [
        (BadShares, {0, 1, 2, 3, 4, 5}, "below-threshold"),
        (WrongSum, {0, 1}, "wrong-shares"),
        (WrongSum, set(MEMBERS), "wrong-shares"),
    ],
)
def test_what_ends_the_round_does_not_change_the_model(kind: Any, dishonest: set[int], reason: str) -> None:
    """More clients with bad shares than a sum may lose, and more wrong sums than can be detected."""
    roles = [RoleSpec(kind, PARAMETERS, frozenset(dishonest))]
    small = SmallFederation(DELTAS, PARAMETERS, protocol=OneShot, roles=roles)
    with pytest.raises(RoundAborted) as ended:
        small.run()
    assert ended.value.reason == reason


class NearKey(OneShot):
    """The sum of the keys, but for one unit: as small as keys are, so that nothing shows in it."""

    def decoded_key(self, *of: Any) -> Any:
        key = super().decoded_key(*of)
        key[7] += 1
        return key


def test_a_key_that_does_not_open_the_sum_is_found_out_by_what_it_leaves() -> None:
    with pytest.raises(RoundAborted) as ended:
        SmallFederation(DELTAS, PARAMETERS, protocol=NearKey).run()
    assert ended.value.reason == "wrong-key"
    assert ended.value.detail.startswith("the committee's answers: this key does not open the sum")


def test_the_search_for_wrong_sums_is_charged_where_there_are_some() -> None:
    charged: list[float] = []

    class Metered(OneShot):
        def decoded_key(self, state: Any, held: Any, clients: int) -> Any:
            with metered() as work:
                found = super().decoded_key(state, held, clients)
            charged.append(work.counts["field.add.element"] - state.code.search_steps(len(held)))
            return found

    SmallFederation(DELTAS, PARAMETERS, protocol=Metered).run()
    roles = [RoleSpec(WrongSum, PARAMETERS, frozenset({1}))]
    SmallFederation(DELTAS, PARAMETERS, protocol=Metered, roles=roles).run()
    code = PARAMETERS.code_for(len(MEMBERS))
    assert charged == [-code.search_steps(len(MEMBERS)), 0]


def test_a_server_that_does_not_know_the_experiment_names_no_committee() -> None:
    with pytest.raises(RoundAborted, match="no-committee"):
        SmallFederation(DELTAS, PARAMETERS, protocol=OneShot, told=False).run()


def test_without_binding_another_model_goes_unseen() -> None:
    """As with `secagg`: the attack is there to be shown."""
    unbound = PARAMETERS.model_copy(update={"model_binding": "none"})
    small = SmallFederation(DELTAS, unbound, protocol=OneShot)
    assert len(small.run().survivors) == N
    assert any(event.kind == "weak-binding" for event in small.network.events)
