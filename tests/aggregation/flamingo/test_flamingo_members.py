"""The server's handling of `flamingo` members that decrypt, open or sign wrongly, and the blamed clients."""

from typing import Any

import pytest
from msgspec.structs import replace as changed

from testbed.aggregation.flamingo.client import FlamingoClient
from testbed.aggregation.flamingo.decryptor import Decryptor
from testbed.aggregation.flamingo.messages import (
    CheckLabels,
    LabelsSignature,
    Opened,
    Reconstruct,
    SealedMemberState,
    SharesForMember,
)
from testbed.crypto import edwards25519
from testbed.errors import RoundAborted
from tests.aggregation.flamingo_rounds import GONE, played_with

OTHER_POINT = edwards25519.multiply_base((7).to_bytes(32, "little"))


class EncryptsElsewhere(FlamingoClient):
    """Encrypts to another key than the committee's."""

    def encrypted(self, public_key: bytes, neighbour: int, seed: bytes) -> Any:
        return super().encrypted(OTHER_POINT, neighbour, seed)


class WrongPoints(Decryptor):
    """Answers with something else than its partial decryptions."""

    def partial_decryptions(self, edges: Any) -> list[bytes]:
        return [OTHER_POINT for _ in super().partial_decryptions(edges)]


class WrongShares(Decryptor):
    """Says other shares than it was dealt."""

    def opened_shares(self, sealed: Any) -> Any:
        return [changed(row, share=bytes(33)) for row in super().opened_shares(sealed)]


class NoAnswer(Decryptor):
    """Opens fewer than it was asked to."""

    def on_reconstruct(self, message: Reconstruct, private: SharesForMember) -> Opened:
        answer = super().on_reconstruct(message, private)
        return Opened(answer.points[1:], answer.shares, answer.proof)


class OtherLabels(Decryptor):
    """Signs something else."""

    def on_check_labels(self, message: CheckLabels, private: SealedMemberState) -> LabelsSignature:
        super().on_check_labels(message, private)
        return LabelsSignature(bytes(64))


class NoProof(Decryptor):
    """Decrypts rightly, and proves nothing."""

    def proof_of_decryptions(self, edges: Any, points: Any) -> bytes:
        return b""


WRONG = "reconstruct: points that are not its partial decryptions"


@pytest.mark.parametrize("members", [{2}, {1, 2}, {2, 4}])
def test_members_that_decrypt_wrongly_are_found_while_others_have_answered(members: set[int]) -> None:
    """Any of the five, as long as three others have answered."""
    small, outcome = played_with(WrongPoints, members)
    assert outcome.survivors.tolist() == [1, 2, 4, 5, 6, 7, 8]
    assert small.misbehaviour() == [(member, WRONG) for member in sorted(members)]


def test_too_few_proven_decryptions_end_the_round() -> None:
    small, ended = played_with(WrongPoints, {2, 4, 6})
    assert ended.reason == "wrong-decryption"
    assert "2 of 3 needed members have proven" in str(ended)
    assert {client for client, _ in small.misbehaviour()} == {2, 4, 6}
    _, ended = played_with(WrongPoints, {2}, leaving={"flamingo/report": GONE, "flamingo/reconstruct": {6, 7}})
    assert ended.reason == "wrong-decryption"


def test_a_missing_proof_is_no_fault_where_everything_opens() -> None:
    small, outcome = played_with(NoProof, {1, 2, 4, 6, 7})
    assert outcome.survivors.tolist() == [1, 2, 4, 5, 6, 7, 8]
    assert small.misbehaviour() == []


def test_the_client_of_a_seed_that_does_not_open_is_recorded_alone() -> None:
    small, ended = played_with(EncryptsElsewhere, {5})
    assert ended.reason == "wrong-decryption"
    assert small.misbehaviour() == [(5, "report: a seed that is not encrypted to the committee's key")]


class ForgetsShares(Decryptor):
    """Opens no share of client 8's own mask."""

    def opened_shares(self, sealed: Any) -> Any:
        return [row for row in super().opened_shares(sealed) if row.client != 8]


def test_shares_that_members_do_not_open_are_recorded_with_these_members() -> None:
    """Three of the five say so of an honest client: the record cannot tell, and names both."""
    small, ended = played_with(ForgetsShares, {2, 4, 7})
    assert ended.reason == "wrong-shares"
    ((client, detail),) = small.misbehaviour()
    assert client == 8
    assert "members 2, 4, 7 report that its shares do not open" in detail


def test_a_member_that_says_other_shares_ends_the_round() -> None:
    _, outcome = played_with(WrongShares, {2})
    assert isinstance(outcome, RoundAborted)
    assert outcome.reason in ("implausible-sum", "wrong-shares")


@pytest.mark.parametrize(("kind", "noticed"), [(NoAnswer, "reconstruct: "), (OtherLabels, "cross-check: ")])
def test_a_member_that_the_server_sees_through_is_done_without(kind: Any, noticed: str) -> None:
    small, outcome = played_with(kind, {2})
    assert outcome.survivors.tolist() == [1, 2, 4, 5, 6, 7, 8]
    ((client, detail),) = small.misbehaviour()
    assert client == 2
    assert detail.startswith(noticed)
    _, ended = played_with(kind, {1, 2, 4})
    assert ended.reason == "below-threshold"
