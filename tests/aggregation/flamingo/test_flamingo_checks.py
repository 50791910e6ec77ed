"""Refusals of participants and decryptors of `flamingo`, and the server's handling of misbehaving clients."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as changed

from testbed.aggregation.flamingo.client import FlamingoClient
from testbed.aggregation.flamingo.messages import (
    LABELS_DOMAIN,
    SEEDS_DOMAIN,
    Certificate,
    CheckLabels,
    MaskedReport,
    Reconstruct,
    Reported,
    SealedMemberState,
    SharesForMember,
    labels_content,
    seed_content,
)
from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.batches import Batches
from testbed.committee.messages import CommitteeMember
from testbed.crypto import edwards25519
from testbed.errors import RoundAborted
from testbed.messages import Vector
from tests.aggregation.federations import EXPERIMENT
from tests.aggregation.flamingo_rounds import (
    DELTAS,
    GONE,
    MEMBERS,
    Stand,
    federation,
    parameters_with,
    played_from,
    played_with,
    stand_before,
)

VICTIM = 4  # a member that takes part, too
STRANGER = 40
OTHER_POINT = edwards25519.multiply_base((7).to_bytes(32, "little"))

Question = tuple[Any, Any]
"""A message to all, and the private message to the victim."""


def refused(stage: str, question: Callable[[Stand], Question], victim: int = VICTIM, **more: Any) -> list[str]:
    """The checks with which the victim answers a question before `stage`."""

    async def play() -> list[str]:
        stand = await stand_before(stage, victim, federation(**{"leaving": {"flamingo/report": GONE}} | more))
        return await stand.ask(*question(stand))

    return asyncio.run(play())


def with_service(stand: Stand, **fields: Any) -> Certificate:
    return changed(stand.certificate, service=changed(stand.certificate.service, **fields))


def with_members(stand: Stand, *members: int) -> Certificate:
    committee = changed(stand.certificate.service.committee, members=[CommitteeMember(one) for one in members])
    return with_service(stand, committee=committee)


def with_signatures(stand: Stand, rows: list[SignatureOf]) -> Certificate:
    return changed(stand.certificate, signatures=rows)


CERTIFICATES: list[tuple[Callable[[Stand], Certificate], str]] = [
    (lambda s: with_members(s, 1, 2, 4, 6, 8), "committee.members-mismatch"),
    (lambda s: with_members(s, 1, 2, 4, 6), "committee.members-mismatch"),
    (lambda s: with_service(s, public_key=OTHER_POINT), "flamingo.invalid-signature"),
    (lambda s: with_service(s, set_up_in=2), "flamingo.invalid-signature"),
    (lambda s: with_service(s, commitments=bytes(32)), "flamingo.invalid-signature"),
    (lambda s: with_signatures(s, s.certificate.signatures[:2]), "flamingo.too-few-signatures"),
    (lambda s: with_signatures(s, [*s.certificate.signatures, s.certificate.signatures[0]]),
     "flamingo.unexpected-signature"),
    (lambda s: with_signatures(s, [*s.certificate.signatures, SignatureOf(8, bytes(64))]),
     "flamingo.unexpected-signature"),
    (lambda s: with_signatures(s, [*s.certificate.signatures[:2], SignatureOf(7, bytes(64))]),
     "flamingo.invalid-signature"),
]  # fmt: skip


@pytest.mark.parametrize(("certificate", "check"), CERTIFICATES)
def test_participants_take_no_other_committee_and_key(certificate: Callable[[Stand], Certificate], check: str) -> None:
    assert refused("report", lambda s: (MaskedReport(1, s.listed, certificate(s)), None)) == [check]


@pytest.mark.parametrize(("certificate", "check"), CERTIFICATES)
def test_members_take_no_other_committee_and_key(certificate: Callable[[Stand], Certificate], check: str) -> None:
    def question(s: Stand) -> Question:
        return CheckLabels(1, s.listed, s.online, certificate(s)), s.states[VICTIM]

    assert refused("cross-check", question) == [check]


@pytest.mark.parametrize(
    ("question", "check"),
    [
        (
            lambda s: (MaskedReport(1, [one for one in s.listed if one != VICTIM], s.certificate), None),
            "flamingo.not-in-list",
        ),
        (lambda s: (MaskedReport(1, [*s.listed, 8], s.certificate), None), "flamingo.duplicate-client"),
        (lambda s: (MaskedReport(1, s.listed[::-1], s.certificate), None), "flamingo.duplicate-client"),
        (lambda s: (MaskedReport(1, [*s.listed, STRANGER], s.certificate), None), "pki.unknown-client"),
        (lambda s: (MaskedReport(1, [VICTIM], s.certificate), None), "aggregation.single-participant"),
        (lambda s: (MaskedReport(2, s.listed, s.certificate), None), "aggregation.no-trained-update"),
    ],
)
def test_the_list_of_participants_is_checked(question: Callable[[Stand], Question], check: str) -> None:
    assert refused("report", question) == [check]


def test_a_participant_reports_once_and_only_with_those_agreed_on() -> None:
    assert refused("cross-check", lambda s: (MaskedReport(1, s.listed, s.certificate), None)) == [
        "flamingo.out-of-order"
    ]

    async def play() -> list[str]:
        stand = await stand_before("report", VICTIM, federation())
        stand.small.client(VICTIM).agreed_participants = dict.fromkeys([*range(8), 20], b"")
        return await stand.ask(MaskedReport(1, stand.listed, stand.certificate))

    assert asyncio.run(play()) == ["flamingo.unlisted-participant"]


def labels(stand: Stand, online: list[int], participants: list[int] | None = None) -> Question:
    asked = stand.listed if participants is None else participants
    return CheckLabels(1, asked, online, stand.certificate), stand.states[VICTIM]


@pytest.mark.parametrize(
    ("question", "check"),
    [
        (lambda s: labels(s, s.online[:4]), "flamingo.weak-graph"),
        (lambda s: labels(s, [*s.online, s.online[-1]]), "flamingo.duplicate-client"),
        (lambda s: labels(s, s.online[::-1]), "flamingo.duplicate-client"),
        (lambda s: labels(s, [*s.online, STRANGER]), "flamingo.unlisted-client"),
        (lambda s: labels(s, [1], [1]), "flamingo.participants-mismatch"),
        (lambda s: (CheckLabels(0, s.listed, s.online, s.certificate), s.states[VICTIM]), "flamingo.round-reused"),
        (lambda s: (CheckLabels(1, s.listed, s.online, s.certificate), s.states[1]), "flamingo.invalid-state"),
        (
            lambda s: (CheckLabels(1, s.listed, s.online, s.certificate), SealedMemberState(bytes(112))),
            "flamingo.invalid-state",
        ),
        (
            lambda s: (CheckLabels(1, s.listed, s.online, s.certificate), SealedMemberState(b"")),
            "flamingo.invalid-state",
        ),
        (lambda s: (Reconstruct(1, [], []), SharesForMember([])), "flamingo.out-of-order"),
    ],
)
def test_the_labels_are_checked(question: Callable[[Stand], Question], check: str) -> None:
    assert refused("cross-check", question) == [check]


def test_who_is_no_member_signs_no_labels() -> None:
    assert refused(
        "cross-check", lambda s: (CheckLabels(1, s.listed, s.online, s.certificate), s.states[1]), victim=8
    ) == ["flamingo.not-a-member"]  # fmt: skip


def test_labels_that_leave_the_graph_in_parts_are_refused() -> None:
    """A sparse graph: the honest server would have had more neighbours online, and a graph that is connected."""
    deltas = np.random.default_rng(1).uniform(-1, 1, (24, 3))
    parameters = parameters_with(dishonest=0.05, security=5, correctness=5, dropouts=0.5, labels="random")
    few: list[str] = []

    async def play() -> list[str]:
        stand = await stand_before("cross-check", VICTIM, federation(deltas, parameters))
        graph = stand.state.graph
        others = [client for client in stand.listed if client != VICTIM]
        some = min(others, key=lambda client: len(graph.neighbours(client)))
        away = graph.neighbours(some)
        online = [client for client in stand.listed if client not in away]
        few.extend([graph.weakness(online)])
        assert len(online) >= graph.density.survivors
        return await stand.ask(CheckLabels(1, stand.listed, online, stand.certificate), stand.states[VICTIM])

    assert asyncio.run(play()) == ["flamingo.weak-graph"]
    assert few == ["a client has 0 neighbours online; at least 2 needed"]


def test_a_part_of_a_batch_is_refused() -> None:
    batches = Batches(np.repeat(np.arange(3), 3))
    assert refused("cross-check", lambda s: labels(s, [1, 2, 3, 4, 5, 6, 7, 8]), batches=batches, leaving={}) == [
        "aggregation.partial-batch"
    ]


def opening(stand: Stand, **fields: Any) -> Question:
    """An honest question to open, but for some fields."""
    signed = [SignatureOf(member, signature) for member, signature in stand.state.signed.items()]
    shares = [stand.state.reports[c].shares[stand.state.members[VICTIM] - 1] for c in stand.online]
    given = {"signatures": signed, "edges": stand.edges, "shares": shares} | fields
    return Reconstruct(1, given["signatures"], given["edges"]), SharesForMember(given["shares"])


def signed_by_all(stand: Stand, online: list[int], domain: bytes = LABELS_DOMAIN) -> list[SignatureOf]:
    """Return signatures of all members on other labels."""
    content = labels_content(stand.state.digest, online)
    identities = {member: stand.small.client(member).identity for member in MEMBERS}
    return [SignatureOf(member, one.signing.sign(domain + EXPERIMENT, content)) for member, one in identities.items()]


def swapped(stand: Stand, at: int, **fields: Any) -> Question:
    edges = stand.edges
    edges[at] = changed(edges[at], **fields)
    return opening(stand, edges=edges)


@pytest.mark.parametrize(
    ("question", "check"),
    [
        (lambda s: opening(s, signatures=opening(s)[0].signatures[:2]), "flamingo.too-few-signatures"),
        (lambda s: opening(s, signatures=[opening(s)[0].signatures[0]] * 3), "flamingo.unexpected-signature"),
        (lambda s: opening(s, signatures=signed_by_all(s, s.online[1:])), "flamingo.invalid-signature"),
        (lambda s: opening(s, signatures=signed_by_all(s, s.online, b"another")), "flamingo.invalid-signature"),
        (lambda s: opening(s, edges=s.edges[1:]), "flamingo.edges-mismatch"),
        (lambda s: opening(s, edges=[*s.edges, s.edges[0]]), "flamingo.edges-mismatch"),
        (lambda s: opening(s, edges=s.edges[::-1]), "flamingo.edges-mismatch"),
        (lambda s: swapped(s, 0, offline=2), "flamingo.edges-mismatch"),
        (lambda s: swapped(s, 0, point=OTHER_POINT), "flamingo.ciphertext-mismatch"),
        (lambda s: swapped(s, 0, signature=bytes(64)), "flamingo.ciphertext-mismatch"),
        (
            lambda s: swapped(s, 0, point=s.edges[1].point, signature=s.edges[1].signature),
            "flamingo.ciphertext-mismatch",
        ),
        (lambda s: opening(s, shares=opening(s)[1].shares[1:]), "flamingo.shares-mismatch"),
        (lambda s: (changed(opening(s)[0], round=2), opening(s)[1]), "flamingo.out-of-order"),
        (lambda s: labels(s, s.online), "flamingo.out-of-order"),
    ],
)
def test_what_is_to_be_opened_is_checked(question: Callable[[Stand], Question], check: str) -> None:
    assert refused("reconstruct", question) == [check]


def test_a_member_opens_once_and_nothing_after_a_refusal() -> None:
    async def play(first: Callable[[Stand], Question]) -> list[str]:
        stand = await stand_before("reconstruct", VICTIM, federation(leaving={"flamingo/report": GONE}))
        await stand.ask(*first(stand))
        return await stand.ask(*opening(stand))

    assert asyncio.run(play(opening)) == ["flamingo.out-of-order"]
    assert asyncio.run(play(lambda s: opening(s, edges=[]))) == ["flamingo.out-of-order"]


def test_a_member_serves_in_no_round_twice_and_in_none_that_is_past() -> None:
    """A member that has served since decrypts no ciphertext of an old round, even for the same labels."""
    small = federation(leaving={"flamingo/report": GONE})
    memory: dict[str, Any] = {}
    assert not isinstance(played_from(small, 1, memory), RoundAborted)

    async def play() -> list[list[str]]:
        start = await small.begin(2)
        start.memory = memory
        stand = Stand(small, await small.protocol.begin(start), VICTIM)
        old = CheckLabels(1, stand.listed, [1, 2, 4, 5, 6, 7, 8], stand.certificate)
        return [await stand.ask(old, stand.states[VICTIM])]

    assert asyncio.run(play()) == [["flamingo.round-reused"]]


def test_shares_of_another_round_or_service_do_not_open() -> None:
    """The server shows shares that a client has dealt for another member: those are left out."""

    async def play() -> list[Any]:
        stand = await stand_before("reconstruct", VICTIM, federation(leaving={"flamingo/report": GONE}))
        message, private = opening(stand)
        shares = [stand.state.reports[c].shares[0] for c in stand.online]
        private = SharesForMember([*shares[:2], *private.shares[2:]])
        replies = await stand.small.network.ask(np.array([VICTIM]), message, private={VICTIM: private})
        return [row.client for row in replies[VICTIM].shares]

    assert asyncio.run(play()) == [4, 5, 6, 7, 8]


# -- dishonest clients -------------------------------------------------------------------------------------------------


class NotForAll(FlamingoClient):
    """Encrypts no seed for one of its neighbours."""

    def on_report(self, message: MaskedReport) -> Reported:
        answer = super().on_report(message)
        return changed(answer, seeds=answer.seeds[1:])


class FewShares(FlamingoClient):
    """Seals a share too few."""

    def on_report(self, message: MaskedReport) -> Reported:
        answer = super().on_report(message)
        return changed(answer, shares=answer.shares[1:])


class Short(FlamingoClient):
    """Sends a vector of another length."""

    def on_report(self, message: MaskedReport) -> Reported:
        return changed(super().on_report(message), input=Vector(np.zeros(3, np.uint32), 32))


class UnsignedSeeds(FlamingoClient):
    """Signs something else."""

    def on_report(self, message: MaskedReport) -> Reported:
        answer = super().on_report(message)
        return changed(answer, seeds=[changed(row, signature=bytes(64)) for row in answer.seeds])


class SmallOrder(FlamingoClient):
    """Encrypts with a point that would show something of the members' shares, and signs it."""

    def encrypted(self, public_key: bytes, neighbour: int, seed: bytes) -> Any:
        row, bad = super().encrypted(public_key, neighbour, seed), edwards25519.encode((0, int(edwards25519.PRIME) - 1))
        signature = self.sign(SEEDS_DOMAIN, seed_content(self.digest, self.number, neighbour, bad))
        return changed(row, point=bad, signature=signature)


@pytest.mark.parametrize(
    ("kind", "noticed"),
    [
        (NotForAll, "report: does not have one seed for every neighbour"),
        (FewShares, "report: does not have one share for every member"),
        (Short, "report: "),
        (UnsignedSeeds, "report: the seed for client "),
        (SmallOrder, "report: the seed for client "),
    ],
)
def test_one_client_that_the_server_sees_through_is_left_out(kind: Any, noticed: str) -> None:
    small, outcome = played_with(kind, {5})
    assert outcome.survivors.tolist() == [1, 2, 4, 6, 7, 8]
    assert np.abs(outcome.mean - np.float32(DELTAS)[outcome.survivors].mean(0)).max() < 1e-4
    assert small.misbehaviour()
    assert all(client == 5 and detail.startswith(noticed) for client, detail in small.misbehaviour())
    assert small.refusals() == []


class OtherSeeds(FlamingoClient):
    """Encrypts seeds with which it has masked nothing."""

    def encrypted(self, public_key: bytes, neighbour: int, seed: bytes) -> Any:
        return super().encrypted(public_key, neighbour, bytes(32))


class OtherKey(FlamingoClient):
    """Encrypts to another key than the committee's."""

    def encrypted(self, public_key: bytes, neighbour: int, seed: bytes) -> Any:
        return super().encrypted(OTHER_POINT, neighbour, seed)


class UnrelatedShares(FlamingoClient):
    """Deals shares of something else than the seed of its mask."""

    def shares_of(self, own: bytes, service: Any) -> list[bytes]:
        return super().shares_of(bytes(32), service)


class NoShares(FlamingoClient):
    """Seals shares that do not open."""

    def shares_of(self, own: bytes, service: Any) -> list[bytes]:
        return [bytes(len(one)) for one in super().shares_of(own, service)]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (OtherSeeds, "implausible-sum"),
        (OtherKey, "wrong-decryption"),
        (UnrelatedShares, "implausible-sum"),
        (NoShares, "wrong-shares"),
    ],
)
def test_one_client_can_end_the_round_but_not_change_the_model(kind: Any, reason: str) -> None:
    """As documented: a wrong seed is only detected at decryption, when its client is in the sum."""
    _, outcome = played_with(kind, {5})
    assert isinstance(outcome, RoundAborted)
    assert outcome.reason == reason


@pytest.mark.parametrize("kind", [OtherSeeds, OtherKey])
def test_what_nobody_has_to_decrypt_ends_nothing(kind: Any) -> None:
    _, outcome = played_with(kind, {5}, leaving={})
    assert outcome.survivors.tolist() == list(range(9))
