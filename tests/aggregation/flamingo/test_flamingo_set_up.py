"""Refusals of members during the set-up of their committee, and the handling of misbehaving dealers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as changed

from testbed.aggregation.flamingo.decryptor import Decryptor
from testbed.aggregation.flamingo.messages import SealedMemberState
from testbed.aggregation.flamingo.service import ServerSetUp, kept_service
from testbed.aggregation.flamingo.set_up import SetUp
from testbed.aggregation.flamingo.set_up_messages import (
    COMPLAINTS_DOMAIN,
    AnswerComplaints,
    Answered,
    CheckDealings,
    Complaints,
    ComplaintsOf,
    Deal,
    Dealing,
    DealtShares,
    FinishSetUp,
    Former,
    KeptService,
    Serving,
    complaints_content,
    dealings_digest,
)
from testbed.aggregation.flamingo.state import STATE_BYTES, opened_state, sealed_state
from testbed.committee.choice import chosen
from testbed.committee.messages import CommitteeMember
from testbed.committee.parameters import CommitteeSection
from testbed.crypto import OpeningFailed, feldman
from testbed.errors import RoundAborted
from testbed.messages import decode, encode
from testbed.network.contract import ids
from testbed.parties.client import RoleSpec
from testbed.parties.pki import Identity
from testbed.randomness import Randomness
from tests.aggregation.federations import EXPERIMENT
from tests.aggregation.flamingo_rounds import (
    MEMBERS,
    federation,
    parameters_with,
    played,
    played_from,
    remembering,
)
from tests.messages_named import naming

VICTIM, T = 4, 3
ROTATING = parameters_with(committee=CommitteeSection(size=5, threshold=3, serves_rounds=1))

Question = tuple[Any, Any]


class Relay:
    """A server in the middle of a set-up, in round 1 or, with `former`, of the committee that takes over in round 2."""

    def __init__(self, small: Any, server: ServerSetUp, victim: int) -> None:
        self.small = small
        self.server = server
        self.victim = victim
        self.set_up: SetUp = server.set_up

    @property
    def deal(self) -> Question:
        state = self.server.states.get(self.victim, b"")
        return Deal(self.set_up.round, self.set_up.committee, self.set_up.former), SealedMemberState(state)

    @property
    def check(self) -> Question:
        point = self.set_up.members.get(self.victim, 1)
        shares = [self.server.dealt[row.dealer].shares[point - 1] for row in self.server.dealings]
        question = CheckDealings(self.set_up.round, self.set_up.committee, self.set_up.former, self.server.dealings)
        return question, DealtShares(shares)

    def complaint(self, member: int, *against: int) -> ComplaintsOf:
        shown = dealings_digest(self.set_up.digest, self.server.dealings)
        signing = self.small.client(member).identity.signing
        content = complaints_content(shown, member, list(against))
        return ComplaintsOf(member, list(against), signing.sign(COMPLAINTS_DOMAIN + EXPERIMENT, content))

    def answer(self, *complaints: ComplaintsOf) -> Question:
        shown = dealings_digest(self.set_up.digest, self.server.dealings)
        return AnswerComplaints(self.set_up.round, shown, list(complaints)), None

    async def ask(self, question: Question) -> list[str]:
        """The checks with which the victim refuses."""
        message, private = question
        told = None if private is None else {self.victim: private}
        replies = await self.small.network.ask(ids([self.victim]), message, private=told)
        assert len(replies) + len(replies.missing.refused) == 1
        return [refusal.check for refusal in replies.missing.refusals]


async def relay_before(stage: str, victim: int | None, *, rotated: bool) -> Relay:
    """An honest set-up until `stage` is next."""
    small = federation(parameters=ROTATING if rotated else None)
    memory: dict[str, Any] = {}
    section = small.parameters.committee
    if rotated:
        start = await small.begin(1)
        start.memory = memory
        await small.protocol.aggregate(start)
    start = await small.begin(2 if rotated else 1)
    start.memory = memory
    kept = kept_service(start)
    committee = await chosen(section, start.number, small.network, start.directory, EXPERIMENT, memory)
    former = None if kept is None else Former(kept.certificate, kept.commitments)
    states = {} if kept is None else {row.member: row.sealed for row in kept.states}
    server = ServerSetUp(start, SetUp(start.number, committee, former, section), states)
    relay = Relay(small, server, -1)
    if victim is None:
        both = [one for one in server.set_up.dealers if one in server.set_up.members]
        victim = both[0]
    relay.victim = victim
    if stage != "deal":
        await server.deal()
    if stage in ("answer", "finish"):
        assert await server.check() == []
    return relay


def refused(stage: str, question: Callable[[Relay], Question], *, rotated: bool = False, by: int | None = None) -> Any:
    async def play() -> Any:
        relay = await relay_before(stage, VICTIM if by is None and not rotated else by, rotated=rotated)
        return await relay.ask(question(relay))

    return asyncio.run(play())


def others(relay: Relay) -> Any:
    return changed(relay.set_up.committee, members=[CommitteeMember(one) for one in (0, 1, 2, 4, 6)])


def with_former(relay: Relay, question: Question, **fields: Any) -> Question:
    message, private = question
    return changed(message, former=changed(message.former, **fields)), private


def fewer_signed(relay: Relay) -> Any:
    certificate = relay.set_up.former.certificate
    return changed(certificate, signatures=certificate.signatures[:2])


@pytest.mark.parametrize(
    ("question", "rotated", "check"),
    [
        (lambda r: (changed(r.deal[0], committee=others(r)), r.deal[1]), False, "committee.members-mismatch"),
        (lambda r: (changed(r.deal[0], round=0), r.deal[1]), False, "flamingo.round-reused"),
        (lambda r: (FinishSetUp(1, [], []), None), False, "flamingo.out-of-order"),
        (lambda r: r.answer(), False, "flamingo.out-of-order"),
        (lambda r: (r.deal[0], SealedMemberState(bytes(STATE_BYTES))), True, "flamingo.invalid-state"),
        (lambda r: with_former(r, r.deal, certificate=fewer_signed(r)), True, "flamingo.too-few-signatures"),
        (lambda r: with_former(r, r.deal, commitments=[bytes(32)] * 3), True, "flamingo.commitments-mismatch"),
        (lambda r: (changed(r.deal[0], round=1), r.deal[1]), True, "flamingo.round-reused"),
        (lambda r: (changed(r.deal[0], round=3), r.deal[1]), True, "committee.service-mismatch"),
    ],
)
def test_what_a_dealer_is_asked_is_checked(question: Callable[[Relay], Question], rotated: bool, check: str) -> None:
    assert refused("deal", question, rotated=rotated) == [check]


def test_only_dealers_deal_and_only_members_check() -> None:
    assert refused("deal", lambda r: r.deal, by=0) == ["flamingo.not-a-member"]
    assert refused("check", lambda r: r.check, by=0) == ["flamingo.not-a-member"]


def test_nobody_hands_over_to_the_committee_that_serves() -> None:
    """Otherwise a server could make a member deal its share to members that have one."""

    async def play() -> list[str]:
        relay = await relay_before("deal", None, rotated=True)
        serving = relay.set_up.former.certificate.service.committee
        message, state = relay.deal
        return await relay.ask((changed(message, committee=serving, round=2), state))

    assert asyncio.run(play()) == ["committee.service-mismatch"]


def dealing(relay: Relay, at: int, **fields: Any) -> Question:
    message, private = relay.check
    rows = list(message.dealings)
    rows[at] = changed(rows[at], **fields)
    return changed(message, dealings=rows), private


def with_dealings(relay: Relay, rows: list[Any]) -> Question:
    message, private = relay.check
    return changed(message, dealings=rows), private


@pytest.mark.parametrize(
    ("question", "rotated", "check"),
    [
        (lambda r: with_dealings(r, r.check[0].dealings[:2]), False, "flamingo.too-few-dealers"),
        (lambda r: with_dealings(r, r.check[0].dealings[::-1]), False, "flamingo.unexpected-dealer"),
        (
            lambda r: with_dealings(r, [*r.check[0].dealings, r.check[0].dealings[0]]),
            False,
            "flamingo.unexpected-dealer",
        ),
        (lambda r: dealing(r, 0, dealer=0), False, "flamingo.unexpected-dealer"),
        (lambda r: dealing(r, 0, commitments=r.check[0].dealings[1].commitments), False, "flamingo.invalid-signature"),
        (
            lambda r: dealing(r, 0, commitments=r.check[0].dealings[0].commitments[:2]),
            False,
            "flamingo.invalid-dealing",
        ),
        (lambda r: dealing(r, 0, signature=bytes(64)), False, "flamingo.invalid-signature"),
        (lambda r: (r.check[0], DealtShares(r.check[1].shares[1:])), False, "flamingo.shares-mismatch"),
        (lambda r: dealing(r, 0, commitments=r.check[0].dealings[1].commitments), True, "flamingo.invalid-dealing"),
        (lambda r: (changed(r.check[0], former=None), r.check[1]), True, "flamingo.set-up-mismatch"),
    ],
)
def test_what_was_dealt_is_checked(question: Callable[[Relay], Question], rotated: bool, check: str) -> None:
    assert refused("check", question, rotated=rotated) == [check]


@pytest.mark.parametrize(
    ("question", "check"),
    [
        (lambda r: r.answer(r.complaint(1, VICTIM), r.complaint(2, VICTIM), r.complaint(6, VICTIM)),
         "flamingo.too-many-complaints"),
        (lambda r: r.answer(r.complaint(1, VICTIM), r.complaint(1, VICTIM)), "flamingo.unexpected-complaint"),
        (lambda r: r.answer(changed(r.complaint(1, VICTIM), member=0)), "flamingo.unexpected-complaint"),
        (lambda r: r.answer(changed(r.complaint(1, VICTIM), member=2)), "flamingo.invalid-signature"),
        (lambda r: r.answer(changed(r.complaint(1, 2), against=[VICTIM])), "flamingo.invalid-signature"),
    ],
)  # fmt: skip
def test_complaints_are_checked_before_a_share_is_shown(question: Callable[[Relay], Question], check: str) -> None:
    assert refused("answer", question) == [check]


def test_a_dealer_shows_shares_once() -> None:
    """Two thirds of the committee could else be had to complain, two at a time."""

    async def play() -> list[list[str]]:
        relay = await relay_before("answer", VICTIM, rotated=False)
        first = relay.answer(relay.complaint(1, VICTIM), relay.complaint(2, VICTIM))
        return [await relay.ask(one) for one in (first, relay.answer(relay.complaint(6, VICTIM)))]

    assert asyncio.run(play()) == [[], ["flamingo.out-of-order"]]


def test_a_member_signs_no_key_with_its_complaints_withheld() -> None:
    async def play() -> list[str]:
        relay = await relay_before("check", VICTIM, rotated=False)
        message, private = relay.check
        spoilt = DealtShares([bytes(48), *private.shares[1:]])  # the server changes a sealed share
        assert await relay.ask((message, spoilt)) == []
        return await relay.ask((FinishSetUp(1, [], []), None))

    assert asyncio.run(play()) == ["flamingo.complaints-withheld"]


# -- dishonest dealers and members -------------------------------------------------------------------------------------


def kept_after(kind: Any, dishonest: set[int], **more: Any) -> tuple[Any, Any, KeptService | None]:
    """Run round 1 with some dishonest members; return the federation, the result and the stored service."""
    parameters = parameters_with()
    roles = [RoleSpec(kind, parameters, frozenset(dishonest))]
    small, memory = remembering(parameters=parameters, roles=roles, **more)
    (outcome,) = played(small, 1, memory)
    stored = next(iter(memory.values()), None)
    return small, outcome, None if stored is None else decode(KeptService, stored.tobytes())


class WrongShareForOne(Decryptor):
    """Deals one member a share that is not on its polynomial; and shows the right one when that complains."""

    def sealed_share(self, set_up: SetUp, member: int, committed: Sequence[bytes]) -> bytes:
        right = self.polynomial
        if member == VICTIM:
            self.polynomial = [bytes([1]) + bytes(31)] * set_up.threshold
        sealed = super().sealed_share(set_up, member, committed)
        self.polynomial = right
        return sealed


class NeverRight(WrongShareForOne):
    """And shows another wrong one when it complains."""

    def on_answer_complaints(self, message: AnswerComplaints) -> Answered:
        answer = super().on_answer_complaints(message)
        return Answered([changed(row, share=bytes([2]) + bytes(31)) for row in answer.shares])


class Silent(WrongShareForOne):
    """And shows nothing."""

    def on_answer_complaints(self, message: AnswerComplaints) -> Answered:
        super().on_answer_complaints(message)
        return Answered([])


class WrongForAll(Decryptor):
    """Deals shares that are not on its polynomial."""

    def on_deal(self, message: Deal, private: SealedMemberState) -> Dealing:
        answer = super().on_deal(message, private)
        return changed(answer, shares=[bytes(len(one)) for one in answer.shares])


def key_of(kept: KeptService | None) -> bytes:
    assert kept is not None
    return kept.certificate.service.public_key


def test_a_dealer_that_shows_the_right_share_counts() -> None:
    small, outcome, kept = kept_after(WrongShareForOne, {2})
    assert outcome.mean.tobytes() == small.mean_of(list(range(9))).tobytes()
    assert [member for member, _ in small.misbehaviour()] == [VICTIM]
    assert key_of(kept) == key_of(kept_after(Decryptor, set())[2])
    assert {row.member for row in kept.states} == set(MEMBERS)


@pytest.mark.parametrize("kind", [NeverRight, Silent, WrongForAll])
def test_a_dealer_that_does_not_is_left_out_and_the_others_key_serves(kind: Any) -> None:
    small, outcome, kept = kept_after(kind, {2})
    assert outcome.mean.tobytes() == small.mean_of(list(range(9))).tobytes()
    assert key_of(kept) != key_of(kept_after(Decryptor, set())[2])
    assert small.refusals() == [(2, "flamingo.too-many-complaints")] * (kind is WrongForAll)


def test_too_few_dealers_left_end_the_round() -> None:
    _, ended, kept = kept_after(Silent, {1, 2, 6})
    assert isinstance(ended, RoundAborted)
    assert str(ended).startswith("set-up-failed: flamingo.too-few-dealers: 2 of 3 needed dealers count")
    assert kept is None


class ComplainsOfAll(Decryptor):
    """Complains about everybody, for nothing."""

    def on_check_dealings(self, message: CheckDealings, private: DealtShares) -> Complaints:
        super().on_check_dealings(message, private)
        assert self.set_up is not None
        self.complained = [row.dealer for row in message.dealings]
        content = complaints_content(self.dealings_digest(self.set_up), self.number, self.complained)
        return Complaints(self.complained, self.sign(COMPLAINTS_DOMAIN, content))


def test_false_complaints_change_nothing_but_what_is_known_of_the_complainer() -> None:
    small, outcome, kept = kept_after(ComplainsOfAll, {2})
    assert outcome.mean.tobytes() == small.mean_of(list(range(9))).tobytes()
    assert key_of(kept) == key_of(kept_after(Decryptor, set())[2])


class OtherService(Decryptor):
    """Signs another key."""

    def on_finish(self, message: FinishSetUp) -> Serving:
        return changed(super().on_finish(message), service=bytes(32))


def test_a_member_that_signs_another_key_does_not_serve() -> None:
    small, outcome, kept = kept_after(OtherService, {2})
    assert outcome.survivors.tolist() == list(range(9))
    assert {row.member for row in kept.states} == set(MEMBERS) - {2}
    assert small.misbehaviour() == [(2, "set-up: its key is not the one that the dealings give")]


class NotItsShare(Decryptor):
    """Hands on something else than its share of the key."""

    def secret_to_deal(self, set_up: SetUp, sealed: bytes) -> bytes:
        right = super().secret_to_deal(set_up, sealed)
        return right if set_up.former is None else feldman.random_scalar(bytes(32))


def test_who_does_not_hand_on_its_share_is_left_out() -> None:
    small, memory = remembering(parameters=ROTATING)
    played_from(small, 1, memory)
    (stored,) = memory.values()
    former = decode(KeptService, stored.tobytes())
    dishonest = former.certificate.service.committee.clients[0]
    roles = [RoleSpec(NotItsShare, ROTATING, frozenset({dishonest}))]
    small, memory = remembering(parameters=ROTATING, roles=roles)
    played_from(small, 1, memory)
    outcome = played_from(small, 2, memory)
    assert outcome.mean.tobytes() == small.mean_of(list(range(9)), 2).tobytes()
    assert small.misbehaviour()[0][0] == dishonest
    assert small.misbehaviour()[0][1].startswith("dealing: flamingo.invalid-dealing")
    (stored,) = memory.values()
    assert decode(KeptService, stored.tobytes()).certificate.service.public_key == key_of(former)


# -- the sealed state of a member --------------------------------------------------------------------------------------


def test_a_state_opens_for_its_member_alone() -> None:
    own, other = (Identity(number, Randomness(3)) for number in (1, 2))
    sealed = sealed_state(own, EXPERIMENT, bytes(32), bytes([1]) * 32)
    assert len(sealed) == STATE_BYTES
    assert opened_state(own, EXPERIMENT, sealed) == (bytes(32), bytes([1]) * 32)
    assert sealed_state(own, EXPERIMENT, bytes(32), bytes([2]) * 32)[:32] != sealed[:32]  # another key
    for identity, experiment, said in (
        (other, EXPERIMENT, sealed),
        (own, bytes(16), sealed),
        (own, EXPERIMENT, sealed[:-1]),
        (own, EXPERIMENT, sealed[:40] + bytes([sealed[40] ^ 1]) + sealed[41:]),
    ):
        with pytest.raises(OpeningFailed):
            opened_state(identity, experiment, said)


def test_an_old_state_serves_for_nothing() -> None:
    """Round 2's committee has client 4 again, perhaps with another share: the old one is of another service."""
    section = CommitteeSection(selection="given", members=MEMBERS, threshold=T, serves_rounds=1)
    small, memory = remembering(parameters=parameters_with(committee=section))
    played_from(small, 1, memory)
    (old,) = memory.values()
    memory = {}
    small = federation(parameters=parameters_with(committee=section))
    played_from(small, 1, memory)
    played_from(small, 2, memory)
    (name, new) = next(iter(memory.items()))
    kept = changed(decode(KeptService, new.tobytes()), states=decode(KeptService, old.tobytes()).states)
    assert kept.certificate.service.set_up_in == 2

    async def play() -> Any:
        start = await small.begin(3)
        start.memory = {name: np.frombuffer(encode(kept), np.uint8)}
        return await small.protocol.begin(start)

    with pytest.raises(RoundAborted, match=naming("below-threshold", "0 of 3", "dealt", "flamingo.invalid-state")):
        asyncio.run(play())
