"""A client and a committee member of Flamingo that collude to have an honest member recorded for wrong decryptions.

The client seals a seed under the key that follows from the accomplice's wrong answer and the right answers of all other
members except the victim. A server that searches for the wrong answer by leaving out one member at a time finds that
the seed opens without the victim, and blames the victim. The accomplice answers with its right answer plus a point X
that both know. Let w be the client's secret, S the members without the victim, and b the accomplice's Lagrange weight
in S. Then the members in S give w times the public key, plus b X: the client needs neither commitments nor a message
from its accomplice.

Members prove their answers, so the server finds the accomplice, and then the client
(`testbed.aggregation.flamingo.seeds`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from testbed.adversary.misbehaviour import ClientMisbehaviour
from testbed.aggregation.flamingo.client import FlamingoClient
from testbed.aggregation.flamingo.decryptor import Decryptor
from testbed.aggregation.flamingo.messages import (
    SEEDS_DOMAIN,
    CutEdge,
    EncryptedSeed,
    MaskedReport,
    Reported,
    seed_associated,
    seed_content,
)
from testbed.crypto import edwards25519, feldman, prf, signatures, threshold_elgamal
from testbed.parties.client import Role, handles


@dataclass(frozen=True)
class Frame:
    """A plan that client and member derive independently.

    Attributes:
        accomplice: the member that answers wrongly.
        victim: the honest member to be blamed.
        weight: b, the accomplice's Lagrange weight among t members without the victim.
    """

    accomplice: int
    victim: int
    weight: int


def planned_frame(members: Sequence[int], threshold: int, dishonest: Collection[int]) -> Frame | None:
    """Return the plan against a server that uses the answers of the first t members; None if it cannot work.

    Args:
        members: of the committee, in their order.
        threshold: t.
        dishonest: colluding clients.
    """
    used, spare = members[:threshold], members[threshold : threshold + 1]
    accomplice = next((member for member in used if member in dishonest), None)
    victim = next((member for member in used if member not in dishonest), None)
    if accomplice is None or victim is None or not spare:
        return None
    others = [member for member in (*used, *spare) if member != victim]
    # Points are positions in the committee, from 1: a share at 0 would be the secret.
    weights = feldman.lagrange_weights([members.index(member) + 1 for member in others])
    return Frame(accomplice, victim, weights[others.index(accomplice)])


def shift(digest: bytes) -> bytes:
    """Return the point X of the round with this digest; both colluders can compute it."""
    return edwards25519.multiply_base(edwards25519.reduce_scalar(2 * prf.evaluate(digest, b"shift")))


class FramingClient(ClientMisbehaviour, FlamingoClient):
    """The client: seals its seeds so that they open with the accomplice's wrong answer, without the victim's."""

    name: ClassVar[str] = "frame-member"
    applies_to: ClassVar[tuple[str, ...]] = ("flamingo",)
    extends: ClassVar[type[Role]] = FlamingoClient
    frame: Frame | None = None

    @handles(MaskedReport)
    def on_report(self, message: MaskedReport) -> Reported:
        """Plan the attack, then report honestly."""
        members = message.certificate.service.committee.clients
        threshold = self.parameters.committee.threshold_for(len(members))
        self.frame = planned_frame(members, threshold, self.dishonest) if self.attacks(message.round) else None
        return super().on_report(message)

    def encrypted(self, public_key: bytes, neighbour: int, seed: bytes) -> EncryptedSeed:
        """Return a ciphertext with an honest first half (as the client must prove) and a forged second half."""
        if self.frame is None:
            return super().encrypted(public_key, neighbour, seed)
        associated = seed_associated(self.digest, self.number, neighbour)
        # Derived as by an honest client, so that the first half is genuine and its proof valid.
        secret = feldman.random_scalar(prf.evaluate(self.secret("flamingo encryption"), associated))
        point = edwards25519.multiply_base(secret)
        # b X: the members without the victim will decrypt to w PK + b X, which is this key.
        wrong = feldman.weighted_points([shift(self.digest)], [self.frame.weight])
        shared = edwards25519.add(edwards25519.multiply(secret, public_key), wrong)
        sealed = threshold_elgamal.seal_with(point, shared, seed, associated)
        proof = signatures.sign_with_scalar(secret, threshold_elgamal.KNOWN_DOMAIN, associated)
        signature = self.sign(SEEDS_DOMAIN, seed_content(self.digest, self.number, neighbour, point))
        return EncryptedSeed(neighbour, point, sealed, signature, proof)


class FramingMember(ClientMisbehaviour, Decryptor):
    """The member: answers wrongly for the colluding clients' ciphertexts, and honestly for all others."""

    name: ClassVar[str] = "frame-member"
    applies_to: ClassVar[tuple[str, ...]] = ("flamingo",)
    extends: ClassVar[type[Role]] = Decryptor

    def partial_decryptions(self, edges: Sequence[CutEdge]) -> list[bytes]:
        """Add X to the answers for ciphertexts of colluding clients."""
        right = super().partial_decryptions(edges)
        threshold = self.parameters.committee.threshold_for(len(self.members))
        frame = planned_frame(self.members, threshold, self.dishonest) if self.attacks(self.round) else None
        theirs = {edge.online for edge in edges} & self.dishonest
        if frame is None or frame.accomplice != self.number or not theirs:
            return right
        clients = ", ".join(map(str, sorted(theirs)))
        self.record_attack(FramingMember, f"with clients {clients}, to have member {frame.victim} blamed")
        more = shift(self.digest)
        return [
            edwards25519.add(point, more) if edge.online in theirs else point
            for edge, point in zip(edges, right, strict=True)
        ]
