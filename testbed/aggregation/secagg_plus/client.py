"""Client side of `secagg-plus`; see `testbed.aggregation.secagg_plus.server`.

To itself the client is in a `secagg` of k + 1 participants, its neighbourhood. What it checks beyond that is that the
neighbourhood is what the list of participants says, that its neighbours have been told the same list, and that they
have signed one set of survivors of the whole round.
"""

from typing import TYPE_CHECKING

from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.dealt_shares import ProveShare
from testbed.aggregation.secagg.messages import (
    AdvertiseKeys,
    AdvertOf,
    CheckSurvivors,
    KeyAdvert,
    MaskInput,
    SealedForPeers,
    SealedFromPeers,
    ShareKeys,
    Shares,
    Unmask,
)
from testbed.aggregation.secagg_plus.graph import NeighbourGraph, list_digest
from testbed.aggregation.secagg_plus.messages import (
    AnnounceGraph,
    MaskedAmongNeighbours,
    MaskedWith,
    MaskInputAmongNeighbours,
    NeighbourKeys,
    NeighbourSignatures,
    ShareKeysAmongNeighbours,
    UnmaskNeighbours,
    common_digest,
    graph_advert_content,
)
from testbed.crypto import encryption
from testbed.crypto.failures import OpeningFailed
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.messages import signed_content
from testbed.parties.client import handles

if TYPE_CHECKING:
    from testbed.aggregation.secagg_plus.server import SecAggPlusParameters


_QUESTIONS = (
    AnnounceGraph,
    ShareKeysAmongNeighbours,
    MaskInputAmongNeighbours,
    CheckSurvivors,
    UnmaskNeighbours,
    ProveShare,
)


class SecAggPlusClient(SecAggClient, answers=_QUESTIONS):
    """One participant of one round; of the questions of `secagg` it answers the one that both protocols have."""

    parameters: "SecAggPlusParameters"
    _announced: AnnounceGraph

    # -- advertise keys -------------------------------------------------------------------------------------------

    @handles(AnnounceGraph)
    def on_announced_graph(self, message: AnnounceGraph) -> KeyAdvert:
        """Find the own neighbourhood; make two key pairs and sign their public halves and the list."""
        self._announced = message  # looked at in the first step alone
        return self.on_advertise_keys(AdvertiseKeys(message.round, message.neighbours + 1, message.threshold))

    def _check_parameters(self, message: AdvertiseKeys) -> None:
        announced = self._announced
        listed = set(announced.participants)
        if announced.participants != sorted(listed):
            raise Refusal("secagg-plus.malformed-list", "the participants are not in order, or one stands there twice")
        self._check_size(len(listed))
        agreed = self.client.agreed_participants
        if agreed is not None and listed != agreed.keys():
            raise Refusal("secagg-plus.other-list", "the participants are not those that were agreed on")
        if self.client.number not in listed:
            raise Refusal("secagg-plus.not-in-list", "sent a list that this client is not in")
        self._check_neighbourhood(announced)
        digest = list_digest(self.environment.experiment_id, announced.round, announced.participants)
        meter("message", len(listed))
        graph = NeighbourGraph(announced.participants, announced.neighbours, digest)
        self._around = graph.around(self.client.number)
        self._listed, self._list_digest = listed, digest

    def _check_neighbourhood(self, announced: AnnounceGraph) -> None:
        told = (announced.neighbours, announced.threshold)
        try:
            own = self.parameters.neighbourhood(len(announced.participants))
        except ValueError as error:
            raise Refusal("secagg-plus.no-neighbourhood", str(error)) from None
        if told != (own.neighbours, own.threshold):
            raise Refusal("secagg-plus.other-neighbourhood", f"k, t = {told} is not what the experiment says")
        if 2 * own.threshold <= own.neighbours + 1:
            raise Refusal("secagg.threshold-too-low", f"t = {own.threshold} of {own.neighbours + 1}")
        self._fewest_survivors = own.survivors

    def _advert_content(self, client: int, sealing_key: bytes, mask_key: bytes) -> bytes:
        return graph_advert_content(self._round, client, sealing_key, mask_key, self._list_digest, self._training)

    # -- share keys -----------------------------------------------------------------------------------------------

    @handles(ShareKeysAmongNeighbours)
    def on_share_keys_among_neighbours(
        self, message: ShareKeysAmongNeighbours, private: NeighbourKeys
    ) -> SealedForPeers:
        """Verify the neighbours' keys; share the mask key and the self-mask seed among them."""
        return self.on_share_keys(ShareKeys(message.round, private.adverts))

    def _digest_of(self, adverts: dict[int, AdvertOf]) -> bytes:
        """Of the list of participants, which everybody was shown, and of what was trained; keys are neighbours'."""
        return common_digest(self._list_digest, self._training)

    def _check_adverts(self, adverts: dict[int, AdvertOf], count: int) -> None:
        if not adverts.keys() <= self._around:
            raise Refusal("secagg-plus.not-a-neighbour", "keys of a client that is no neighbour")
        super()._check_adverts(adverts, count)

    # -- masked input ---------------------------------------------------------------------------------------------

    @handles(MaskInputAmongNeighbours)
    def on_mask_input_among_neighbours(
        self, message: MaskInputAmongNeighbours, private: SealedFromPeers
    ) -> MaskedAmongNeighbours:
        """Mask the update, and tell each neighbour that it is masked with it; who is not told keeps back its share."""
        masked = super().on_mask_input(MaskInput(message.round), private)
        meter("aead.seal", len(self._received))
        told = []
        for peer in sorted(self._received):
            nonce, associated = self._word(self.client.number, peer)
            told.append(MaskedWith(peer, encryption.seal(self._sealing_keys[peer], nonce, b"", associated)))
        return MaskedAmongNeighbours(masked.input, told)

    def _stands_by(self) -> bool:
        """No: hardly any of its batch are neighbours."""
        return False

    def _check_mates(self) -> None:
        """Not here, for the same reason."""

    def _planned_participants(self) -> int:
        """All of the round: the sum is over more than the neighbourhood."""
        return len(self._listed)

    def _word(self, sender: int, receiver: int) -> tuple[bytes, bytes]:
        """Nonce and associated data of `MaskedWith`: other ones than those of the shares, under the same key."""
        return b"\x01" + sender.to_bytes(11, "big"), signed_content("masked with", self._round, sender, receiver)

    # -- consistency check ----------------------------------------------------------------------------------------

    def _believable(self, listed: list[int]) -> set[int]:
        """The survivors in the neighbourhood; what is signed is the set of all."""
        survivors = set(listed)
        if len(survivors) != len(listed) or not survivors <= self._listed:
            raise Refusal("secagg.foreign-survivor", "a survivor twice, or one that does not take part")
        if len(survivors) < self._fewest_survivors:
            raise Refusal(
                "secagg-plus.too-few-survivors",
                f"{len(survivors)} survivors of {len(self._listed)}, never fewer than {self._fewest_survivors}",
            )
        return super()._believable(sorted(survivors & self._around))

    def _may_be_left_out(self) -> bool:
        """No: who is not in the sum does not help here."""
        return False

    # -- unmask ---------------------------------------------------------------------------------------------------

    @handles(UnmaskNeighbours)
    def on_unmask_neighbours(self, message: UnmaskNeighbours, private: NeighbourSignatures) -> Shares:
        """Reveal one share for each neighbour, once enough of them have signed the same survivors."""
        self._told = {row.client: row.tag for row in private.masked_with}
        return self.on_unmask(Unmask(message.round, private.signatures))

    def _masks_with_me(self, peer: int) -> bool:
        """A server could tell a client of few neighbours, and others of all; then their mutual masks do not hide it."""
        if peer == self.client.number:
            return True
        nonce, associated = self._word(peer, self.client.number)
        meter("aead.open")
        try:
            encryption.open_sealed(self._sealing_keys[peer], nonce, self._told.get(peer, b""), associated)
        except OpeningFailed:
            return False
        return True
