"""Client side of `secagg-plus`; see `testbed.aggregation.secagg_plus.server`.

To itself the client is in a `secagg` of k + 1 participants, its neighbourhood. What it checks beyond that is that the
neighbourhood is what the list of participants says, that its neighbours have been told the same list, and that they
have signed one set of survivors of the whole round.
"""

from dataclasses import replace
from typing import Any, ClassVar

from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.dealt_shares import ProveShare
from testbed.aggregation.secagg.messages import (
    AdvertOf,
    CheckSurvivors,
    KeyAdvert,
    SealedForPeers,
    SealedFromPeers,
    Shares,
)
from testbed.aggregation.secagg.stages import STAGES, row
from testbed.aggregation.secagg_plus.graph import RegularGraph
from testbed.aggregation.secagg_plus.messages import (
    AnnounceGraph,
    MaskedAmongNeighbours,
    MaskedWith,
    MaskInputAmongNeighbours,
    NeighbourKeys,
    NeighbourSignatures,
    ShareKeysAmongNeighbours,
    UnmaskNeighbours,
)
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.crypto import encryption
from testbed.crypto.failures import OpeningFailed
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.messages import signed_content
from testbed.parties.client import StageTable, handles

STAGES_AMONG_NEIGHBOURS = StageTable(
    start=STAGES.start,
    rows={
        AnnounceGraph: row("new", "advertised"),
        ShareKeysAmongNeighbours: row("advertised", "shared"),
        MaskInputAmongNeighbours: row("shared", "masked"),
        CheckSurvivors: STAGES.rows[CheckSurvivors],
        UnmaskNeighbours: row("signed", "revealed"),
        ProveShare: STAGES.rows[ProveShare],
    },
)


class SecAggPlusClient(SecAggClient, answers=tuple(STAGES_AMONG_NEIGHBOURS.rows)):
    """One participant of one round; its questions are those of `secagg` where both protocols have the same.

    Attributes:
        tags: by neighbour, its word that it has masked with this client.
    """

    STAGES: ClassVar[StageTable] = STAGES_AMONG_NEIGHBOURS
    parameters: SecAggPlusParameters
    graph: RegularGraph
    tags: dict[int, bytes]

    # -- AdvertiseKeys --------------------------------------------------------------------------------------------

    @handles(AnnounceGraph)
    def on_announced_graph(self, message: AnnounceGraph) -> KeyAdvert:
        """Find the own neighbourhood; make two key pairs and sign their public halves and the list."""
        with self.progress.answering(message, message.round):
            return self.advertise(message.round, self.peer_graph(message))

    def peer_graph(self, message: Any) -> RegularGraph:
        """The graph that the list gives; refuses a list or a neighbourhood that is not the experiment's."""
        listed = set(message.participants)
        if message.participants != sorted(listed):
            raise Refusal("secagg-plus.malformed-list", "the participants are not in order, or one stands there twice")
        self.check_size(len(listed))
        agreed = self.client.agreed_participants
        if agreed is not None and listed != agreed.keys():
            raise Refusal("secagg-plus.other-list", "the participants are not those that were agreed on")
        if self.number not in listed:
            raise Refusal("secagg-plus.not-in-list", "sent a list that this client is not in")
        try:
            own = self.parameters.neighbourhood(len(listed))
        except ValueError as error:
            raise Refusal("secagg-plus.no-neighbourhood", str(error)) from None
        if (message.neighbours, message.threshold) != (own.neighbours, own.threshold):
            detail = f"k, t = {(message.neighbours, message.threshold)} is not what the experiment says"
            raise Refusal("secagg-plus.other-neighbourhood", detail)
        if 2 * own.threshold <= own.neighbours + 1:
            raise Refusal("secagg.threshold-too-low", f"t = {own.threshold} of {own.neighbours + 1}")
        meter("message", len(listed))
        told = replace(own, neighbours=message.neighbours, threshold=message.threshold)
        return RegularGraph.of_round(self.environment.experiment_id, message.round, message.participants, told)

    # -- ShareKeys ------------------------------------------------------------------------------------------------

    @handles(ShareKeysAmongNeighbours)
    def on_share_keys_among_neighbours(
        self, message: ShareKeysAmongNeighbours, private: NeighbourKeys
    ) -> SealedForPeers:
        """Verify the neighbours' keys; share the mask key and the self-mask seed among them."""
        with self.progress.answering(message, message.round):
            return self.share(private.adverts)

    def check_adverts(self, adverts: dict[int, AdvertOf], count: int) -> None:
        """Refuse keys of anybody but neighbours; the rest is as in `secagg`."""
        if not adverts.keys() <= self.graph.around(self.number):
            raise Refusal("secagg-plus.not-a-neighbour", "keys of a client that is no neighbour")
        super().check_adverts(adverts, count)

    # -- MaskedInputCollection ------------------------------------------------------------------------------------

    @handles(MaskInputAmongNeighbours)
    def on_mask_input_among_neighbours(
        self, message: MaskInputAmongNeighbours, private: SealedFromPeers
    ) -> MaskedAmongNeighbours:
        """Mask the update, and tell each neighbour that it is masked with it; who is not told keeps back its share."""
        with self.progress.answering(message, message.round):
            masked = self.masked_input(private.shares)
            meter("aead.seal", len(self.received))
            tags = []
            for peer in sorted(self.received):
                nonce, associated = self.tag_content(self.number, peer)
                tags.append(MaskedWith(peer, encryption.seal(self.sealing_keys[peer], nonce, b"", associated)))
            return MaskedAmongNeighbours(masked, tags)

    def tag_content(self, sender: int, receiver: int) -> tuple[bytes, bytes]:
        """Nonce and associated data of `MaskedWith`: other ones than those of the shares, under the same key."""
        return b"\x01" + sender.to_bytes(11, "big"), signed_content("masked with", self.round, sender, receiver)

    # -- ConsistencyCheck -----------------------------------------------------------------------------------------

    def believable(self, named: list[int]) -> set[int]:
        """The survivors in the neighbourhood; what is signed is the set of all."""
        survivors, participants = set(named), len(self.graph.listed)
        if len(survivors) != len(named) or not survivors <= set(self.graph.listed):
            raise Refusal("secagg.foreign-survivor", "a survivor twice, or one that does not take part")
        if len(survivors) < self.graph.min_survivors:
            raise Refusal(
                "secagg-plus.too-few-survivors",
                f"{len(survivors)} survivors of {participants}, never fewer than {self.graph.min_survivors}",
            )
        return super().believable(sorted(survivors & self.graph.around(self.number)))

    # -- Unmasking ------------------------------------------------------------------------------------------------

    @handles(UnmaskNeighbours)
    def on_unmask_neighbours(self, message: UnmaskNeighbours, private: NeighbourSignatures) -> Shares:
        """Reveal one share for each neighbour, once enough of them have signed the same survivors."""
        with self.progress.answering(message, message.round):
            self.tags = {row.client: row.tag for row in private.masked_with}
            return self.unmask(private.signatures)

    def has_masked_with_me(self, peer: int) -> bool:
        """A server could tell a client of few neighbours, and others of all; then their mutual masks do not hide it."""
        if peer == self.number:
            return True
        nonce, associated = self.tag_content(peer, self.number)
        meter("aead.open")
        try:
            encryption.open_sealed(self.sealing_keys[peer], nonce, self.tags.get(peer, b""), associated)
        except OpeningFailed:
            return False
        return True
