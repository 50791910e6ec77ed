"""Participant's side of `flamingo`: one message per round; see `testbed.aggregation.flamingo.server`."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy.typing as npt

from testbed.aggregation.flamingo.certificates import check_certificate
from testbed.aggregation.flamingo.graph import round_graph
from testbed.aggregation.flamingo.messages import (
    MASK_PURPOSE,
    SEEDS_DOMAIN,
    SHARES_PURPOSE,
    EncryptedSeed,
    MaskedReport,
    Reported,
    Service,
    pair_seed,
    round_digest,
    seal_share,
    seed_associated,
    seed_content,
)
from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.aggregation.kit.participant import Participant
from testbed.crypto import prf, threshold_elgamal
from testbed.crypto.dealing import share_each
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.messages import Vector
from testbed.network.masked_vectors import Elements, Masks
from testbed.parties.client import StageTable, Transition, handles
from testbed.training import RoundUpdate, trained_update


class FlamingoClient(Participant):
    """A participant of one round.

    Attributes:
        digest: equal for all parties that were told the same participants and the same service.
        training: digest of the training task; empty with ``model_binding: none``.
    """

    STAGES: ClassVar[StageTable] = StageTable(
        start="new",
        rows={
            MaskedReport: Transition(
                sources={"new"}, target="reported", refusal="flamingo.out-of-order", starts_round=True
            )
        },
    )
    parameters: FlamingoParameters
    digest: bytes
    training: bytes

    @handles(MaskedReport)
    def on_report(self, message: MaskedReport) -> Reported:
        """Send the masked update with the shares and encrypted seeds from which the committee removes the masks."""
        with self.progress.answering(message, message.round):
            self.check_size(len(message.participants))
            self.check_participants(message.participants)
            update = trained_update(self, message.round)  # a number used before would bring the same masks again
            self.round = message.round
            service = message.certificate.service
            check_certificate(message.certificate, self.parameters.committee, message.round, self.environment)
            self.digest = round_digest(message.round, message.participants, service.digest)
            self.training = self.digest_of_training(update)
            neighbours = self.neighbours(message.participants)
            self.environment.look_up({*neighbours, *service.committee.clients})
            seeds = {neighbour: self.pair_seed(neighbour) for neighbour in neighbours}
            own = self.secret("flamingo individual mask")
            meter("x25519.agree", len(seeds))
            return Reported(
                self.masked(update, seeds, own),
                self.shares_of(own, service),
                [self.encrypted(service.public_key, neighbour, seed) for neighbour, seed in seeds.items()],
            )

    def check_participants(self, participants: Sequence[int]) -> None:
        """Refuse a list without this client, or a list that differs from the agreed participants."""
        if any(previous >= following for previous, following in pairwise(participants)):
            raise Refusal("flamingo.duplicate-client", "the participants are not in strictly ascending order")
        if self.number not in set(participants):
            raise Refusal("flamingo.not-in-list", f"client {self.number} is not in the list of participants")
        agreed = self.client.agreed_participants
        if agreed is not None and set(participants) != agreed.keys():
            raise Refusal("flamingo.unlisted-participant", "the participants differ from the agreed list")

    def neighbours(self, participants: Sequence[int]) -> list[int]:
        """Return the clients with which this client has a common mask."""
        density = self.parameters.density(len(participants))
        meter("mask.element", len(participants))
        seed = self.environment.directory.public_seed
        return round_graph(seed, self.round, participants, density).neighbours(self.number)

    def pair_seed(self, neighbour: int) -> bytes:
        """Return the 32-byte seed of the mask in common with a neighbour that has the same training task."""
        return pair_seed(self.shared_key(neighbour, MASK_PURPOSE), self.digest, self.training)

    def masked(self, update: RoundUpdate, seeds: dict[int, bytes], own: bytes) -> Vector:
        """Return the update as `(d+1,)` ring elements under one mask per neighbour and a mask of its own."""
        elements, parameters = self.encoded(update), self.parameters
        signs = [*(1 if neighbour > self.number else -1 for neighbour in seeds), 1]
        masks = Masks([*seeds.values(), own], signs, parameters.prg)
        meter(parameters.mask_operation, len(elements) * len(signs))
        return self.under_masks(elements, masks)

    def encoded(self, update: RoundUpdate) -> npt.NDArray[Any] | Elements:
        """Return the update as ring elements; the last element is its weight."""
        return self.quantised_update(update)

    def shares_of(self, own: bytes, service: Service) -> list[bytes]:
        """Return shares of the seed of the client's own mask, sealed for the members in their order."""
        members = service.committee.clients
        threshold, points = self.parameters.committee.threshold_for(len(members)), range(1, len(members) + 1)
        ((*shares,),) = share_each([(own, self.secret("flamingo polynomial of the mask"))], threshold, points)
        meter("shamir.share.term", threshold * len(members))
        meter("x25519.agree", len(members))
        meter("aead.seal", len(members))
        return [
            seal_share(self.shared_key(member, SHARES_PURPOSE), self.number, member, share, self.digest)
            for member, share in zip(members, shares, strict=True)
        ]

    def encrypted(self, public_key: bytes, neighbour: int, seed: bytes) -> EncryptedSeed:
        """Return a pair seed, encrypted to the committee and signed for this round."""
        associated = seed_associated(self.digest, self.number, neighbour)
        entropy = prf.evaluate(self.secret("flamingo encryption"), associated)
        point, sealed, knowledge_proof = threshold_elgamal.encrypt_and_prove(public_key, seed, associated, entropy)
        meter("edwards25519.multiply_base", 3)  # two of them for the proof
        meter("edwards25519.multiply")
        # Section 4.5: the signature binds the ciphertext to this round and edge, so that no other one takes its place.
        signature = self.sign(SEEDS_DOMAIN, seed_content(self.digest, self.number, neighbour, point))
        return EncryptedSeed(neighbour, point, sealed, signature, knowledge_proof)
