"""Committee member's side of `flamingo`; see `testbed.aggregation.flamingo.server`.

For each participant of a round, a member opens either its share of the participant's own mask or the participant's
masks with others, never both. It does so once per round, for labels that enough members have signed.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import ClassVar

from testbed.aggregation.flamingo.certificates import check_certificate, check_members_signatures
from testbed.aggregation.flamingo.graph import RoundGraph, round_graph
from testbed.aggregation.flamingo.messages import (
    LABELS_DOMAIN,
    SEEDS_DOMAIN,
    SHARES_PURPOSE,
    CheckLabels,
    CutEdge,
    LabelsSignature,
    Opened,
    Reconstruct,
    SealedMemberState,
    SharesForMember,
    decryptions_content,
    labels_content,
    open_share,
    round_digest,
    seed_associated,
    seed_content,
)
from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.aggregation.flamingo.set_up_member import ORDER, SetUpMember
from testbed.aggregation.flamingo.set_up_messages import AnswerComplaints, CheckDealings, Deal, FinishSetUp
from testbed.aggregation.kit.message_parts import ShareOf
from testbed.crypto import (
    InvalidKey,
    OpeningFailed,
    equal_logarithms,
    memo,
    threshold_elgamal,
)
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.messages import signed_content
from testbed.parties.client import Client, StageTable, Transition, handles


class Decryptor(SetUpMember, answers=(Deal, CheckDealings, AnswerComplaints, FinishSetUp, CheckLabels, Reconstruct)):
    """A committee member in one round.

    Attributes:
        batches: rule for clients that may be summed together.
        graph: graph of the round.
        members: the committee, in its order.
        share: this member's share of the committee's key.
        digest: equal for all parties that were told the same participants and the same service.
        online: the clients of which it will open shares of their own masks.
    """

    STAGES: ClassVar[StageTable] = SetUpMember.STAGES.extended(
        {
            CheckLabels: Transition(sources={"idle", "ready"}, target="labelled", refusal=ORDER, starts_round=True),
            Reconstruct: Transition(sources={"labelled"}, target="opened", refusal=ORDER),
        }
    )
    graph: RoundGraph
    members: tuple[int, ...]
    share: bytes
    digest: bytes
    online: list[int]

    def __init__(self, client: Client, parameters: FlamingoParameters) -> None:
        super().__init__(client, parameters)
        self.batches = parameters.batch_policy(client.batches)

    # -- cross-check --------------------------------------------------------------------------------------------------

    @handles(CheckLabels)
    def on_check_labels(self, message: CheckLabels, private: SealedMemberState) -> LabelsSignature:
        """Sign the one set of clients that this member will treat as online in this round."""
        with self.progress.answering(message, message.round):
            # Once per round: for two sets of labels, a member would open both kinds of a client's secrets.
            self.serve(message.round)
            service = message.certificate.service
            check_certificate(message.certificate, self.parameters.committee, message.round, self.environment)
            self.members = service.committee.clients
            if self.number not in self.members:
                raise Refusal("flamingo.not-a-member", f"client {self.number} is not on the committee of this round")
            self.share = self.own_share(service.digest, private.sealed)
            self.environment.look_up(self.members)
            # Labels could cut a client off from all honest neighbours (section 4.4).
            self.check_labels(message.participants, message.online)
            self.digest, self.online = round_digest(message.round, message.participants, service.digest), message.online
            return LabelsSignature(self.sign(LABELS_DOMAIN, labels_content(self.digest, self.online)))

    def check_labels(self, participants: Sequence[int], online: Sequence[int]) -> None:
        """Refuse labels that no honest server sends, or that reveal more than a large enough sum (section 4.4)."""
        for listed in (participants, online):
            if any(previous >= following for previous, following in pairwise(listed)):
                raise Refusal("flamingo.duplicate-client", "the clients are not in strictly ascending order")
        if not set(online) <= set(participants):
            raise Refusal("flamingo.unlisted-client", "a client is labelled online that is not a participant")
        fewest, most = self.environment.minimum_participants, self.environment.maximum_participants
        if not max(2, fewest) <= len(participants) <= most:
            detail = f"{len(participants)} participants; allowed {max(2, fewest)} to {most}"
            raise Refusal("flamingo.participants-mismatch", detail)
        density = self.parameters.density(len(participants))
        self.graph = round_graph(self.environment.directory.public_seed, self.round, participants, density)
        meter("mask.element", len(participants) * (len(participants) - 1) / 2)
        if weakness := self.graph.weakness(online):
            raise Refusal("flamingo.weak-graph", weakness)
        self.batches.check_survivors(list(online))

    # -- reconstruction -----------------------------------------------------------------------------------------------

    @handles(Reconstruct)
    def on_reconstruct(self, message: Reconstruct, private: SharesForMember) -> Opened:
        """Open the shares and seeds that the labels require, once enough members have signed the same labels."""
        with self.progress.answering(message, message.round):
            needed = self.parameters.committee.threshold_for(len(self.members))
            content = labels_content(self.digest, self.online)
            check_members_signatures(
                message.signatures, self.members, needed, LABELS_DOMAIN, content, self.environment
            )  # fmt: skip
            self.check_edges(message.edges)
            if len(private.shares) != len(self.online):
                detail = f"{len(private.shares)} shares for {len(self.online)} clients online"
                raise Refusal("flamingo.shares-mismatch", detail)
            points = self.partial_decryptions(message.edges)
            shares = self.opened_shares(private.shares)
            return Opened(points, shares, self.proof_of_decryptions(message.edges, points))

    def check_edges(self, edges: Sequence[CutEdge]) -> None:
        """Refuse anything but the edges between clients online and offline, signed by the clients online."""
        # An edge between two clients online would reveal a mask that must stay.
        if [(edge.online, edge.offline) for edge in edges] != self.graph.cut(self.online):
            raise Refusal("flamingo.edges-mismatch", "the edges differ from those between clients online and offline")
        directory, domain = self.environment.directory, SEEDS_DOMAIN + self.environment.experiment_id
        self.environment.look_up({edge.online for edge in edges})
        meter("ed25519.verify", 2 * len(edges))
        signed = []
        for edge in edges:
            content = seed_content(self.digest, edge.online, edge.offline, edge.point)
            associated = seed_associated(self.digest, edge.online, edge.offline)
            signed.append((directory.signing_key(edge.online), domain, content, edge.signature))
            # A copied or shifted point of another ciphertext has no such proof.
            signed.append((edge.point, threshold_elgamal.KNOWN_DOMAIN, associated, edge.proof_of_knowledge))
        rows = [[key, content, signature] for key, _, content, signature in signed]
        if (place := memo.first_unverified(signed_content(domain, self.digest, rows), signed)) is not None:
            client = edges[place // 2].online
            detail = f"client {client} has not signed the ciphertext shown for this round, or has not created it itself"
            raise Refusal("flamingo.ciphertext-mismatch", detail)

    def partial_decryptions(self, edges: Sequence[CutEdge]) -> list[bytes]:
        """Return the member's key share times each point."""
        meter("edwards25519.multiply", len(edges))
        try:
            return [threshold_elgamal.partial_decryption(self.share, edge.point) for edge in edges]
        except InvalidKey as error:
            raise Refusal("flamingo.invalid-point", str(error)) from None

    def proof_of_decryptions(self, edges: Sequence[CutEdge], points: Sequence[bytes]) -> bytes:
        """Return a proof that `points` are the key share times the edges' points, so the member cannot be framed."""
        if not edges:
            return b""
        meter("edwards25519.multiply", len(edges) + 2)
        meter("edwards25519.multiply_base", 2)
        meter("edwards25519.add", len(edges) - 1)
        content = decryptions_content(self.digest, self.number, edges)
        return equal_logarithms.prove(self.share, [edge.point for edge in edges], points, content)

    def opened_shares(self, sealed: Sequence[bytes]) -> list[ShareOf]:
        """Return the shares of self-masks that open; shares that a dishonest client has sealed wrongly are left out."""
        meter("x25519.agree", len(sealed))
        meter("aead.open", len(sealed))
        opened = []
        for client, ciphertext in zip(self.online, sealed, strict=True):
            key = self.shared_key(client, SHARES_PURPOSE)
            # The member says nothing about a share that does not open: it cannot prove the reason.
            with suppress(OpeningFailed):
                opened.append(ShareOf(client, open_share(key, client, self.number, ciphertext, self.digest)))
        return opened
