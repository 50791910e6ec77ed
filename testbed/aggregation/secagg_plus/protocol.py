"""Secure Single-Server Aggregation with (Poly)Logarithmic Overhead: `secagg` among neighbours.

Source: Bell, Bonawitz, Gascon, Lepoint, Raykova, CCS 2020 (IACR ePrint 2020/704).

This is `secagg` on a sparse graph: each client agrees on masks with its k neighbours only, and shares its secrets among
them and itself, t of k + 1. Work and bytes per client grow with k, which grows with log s, instead of with s. The graph
is a circle in random order (`graph`); k and t come from a failure bound (`bound`).

For a client, the protocol is a `secagg` of k + 1 participants, its neighbourhood. It also checks that the neighbourhood
follows from the list of participants, that its neighbours have been told the same list, and that they have signed one
set of survivors of the whole round. The argument against a malicious server is in
docs/explanation/secagg-plus-argument.md. This is not the paper's own malicious variant, in which clients choose
neighbours and acknowledge inclusion one by one.
"""

from dataclasses import replace
from typing import Any, ClassVar

from testbed.aggregation.batch_policy import BatchPolicy, CompleteBatches
from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.kit.participant import row
from testbed.aggregation.kit.server_checks import colluders_by_binding
from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.messages import (
    AdvertOf,
    CheckSurvivors,
    KeyAdvert,
    ProveShare,
    RevealedShares,
    SealedForPeers,
    SealedFromPeers,
)
from testbed.aggregation.secagg.round import PeerGraph
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg.share_holding import STAGES
from testbed.aggregation.secagg_plus.graph import (
    AnnounceGraph,
    MaskedAmongNeighbours,
    MaskedWith,
    MaskInputAmongNeighbours,
    NeighbourKeys,
    NeighbourSignatures,
    RegularGraph,
    ShareKeysAmongNeighbours,
    UnmaskNeighbours,
)
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.crypto import OpeningFailed, encryption
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal, RoundAborted
from testbed.messages import signed_content
from testbed.parties.client import RoleSpec, StageTable, handles
from testbed.privacy.noise_plan import Guarantees


class SecAggPlus(SecAgg):
    """Server side: `SecAgg` on another graph."""

    parameters: SecAggPlusParameters

    @property
    def roles(self) -> list[RoleSpec]:
        return [RoleSpec(SecAggPlusClient, self.parameters)]

    def guarantees(self, participants: int) -> Guarantees:
        """Return the guarantees.

        Colluders: 2t - (k + 1) - 1, even if all of them are holders of one client's shares, and few enough that two
        honest clients are left in the smallest part; -1 if the training task is not signed, as in `secagg`. Smallest
        sum: the survivors with as many dropouts as `dropouts` allows. Smallest part: t of a neighbourhood, whose honest
        clients, t - x or more, have masks in common that stay.
        """
        chosen = self.parameters.neighbourhood(participants)
        colluders = min(2 * chosen.threshold - (chosen.neighbours + 1) - 1, chosen.threshold - 2)
        return Guarantees(
            participants,
            max_colluders=colluders_by_binding(self.parameters.model_binding, colluders),
            min_sum_size=chosen.survivors,
            min_partition_size=chosen.threshold,
            min_noise_share=self.noise.remaining_share(chosen.survivors, participants),
        )

    def peer_graph(self, round_: AggregationRound) -> PeerGraph:
        """Return the round's graph; raises `RoundAborted` if clients would refuse it."""
        participants = round_.participants.tolist()
        if len(participants) < 2:
            raise RoundAborted("below-threshold", f"{len(participants)} of 2 needed participants")
        try:
            chosen = self.parameters.neighbourhood(len(participants))
        except ValueError as error:
            raise RoundAborted("no-neighbourhood", str(error)) from None
        k, t = chosen.neighbours, chosen.threshold
        if 2 * t <= k + 1:
            raise RoundAborted("threshold-too-low", f"t = {t} of k + 1 = {k + 1} holders, which must exceed half")
        weakness = self.parameters.weakness(len(participants))
        if weakness:
            round_.network.record_event("server", "weak-neighbourhood", weakness)
        return RegularGraph.of_round(round_.directory.public_seed, round_.number, participants, chosen)

    def batch_policy(self, round_: AggregationRound, graph: PeerGraph) -> BatchPolicy:
        """Return the rule for complete batches, with the number of clients on which clients insist."""
        batches = self.parameters.atomic_batches(round_.batches)
        if batches is None:
            return BatchPolicy()
        detail = "a malicious server may tell neighbourhoods different survivors; only secagg is batch-atomic then"
        round_.network.record_event("server", "weak-batches", detail)
        # Members of a batch are seldom neighbours: a malicious server may tell the neighbourhood of one member a list
        # with their batch, and that of another member a list without it.
        return CompleteBatches(batches, graph.min_survivors)


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
    """A participant of one round; it answers the questions of `secagg` where both protocols have the same.

    Attributes:
        tags: by neighbour, its tag that it has masked with this client.
    """

    STAGES: ClassVar[StageTable] = STAGES_AMONG_NEIGHBOURS
    parameters: SecAggPlusParameters
    graph: RegularGraph
    tags: dict[int, bytes]

    # -- AdvertiseKeys --------------------------------------------------------------------------------------------

    @handles(AnnounceGraph)
    def on_announced_graph(self, message: AnnounceGraph) -> KeyAdvert:
        """Derive its neighbourhood; make two key pairs and sign their public halves and the list."""
        with self.progress.answering(message, message.round):
            return self.advertise(message.round, self.peer_graph(message))

    def peer_graph(self, message: Any) -> RegularGraph:
        """Return the graph of the list; refuses a list or a neighbourhood that does not match the experiment."""
        listed = set(message.participants)
        if message.participants != sorted(listed):
            raise Refusal("secagg-plus.malformed-list", "the participants are not in strictly ascending order")
        self.check_size(len(listed))
        agreed = self.client.agreed_participants
        if agreed is not None and listed != agreed.keys():
            raise Refusal("secagg-plus.participants-mismatch", "the participants differ from the agreed list")
        if self.number not in listed:
            raise Refusal("secagg-plus.not-in-list", f"client {self.number} is not in the list of participants")
        try:
            own = self.parameters.neighbourhood(len(listed))
        except ValueError as error:
            raise Refusal("secagg-plus.no-neighbourhood", str(error)) from None
        if (message.neighbours, message.threshold) != (own.neighbours, own.threshold):
            expected = own.neighbours, own.threshold
            detail = f"k, t = {(message.neighbours, message.threshold)}; the experiment has {expected}"
            raise Refusal("secagg-plus.neighbourhood-mismatch", detail)
        if 2 * own.threshold <= own.neighbours + 1:
            raise Refusal("secagg.threshold-too-low", f"t = {own.threshold} of {own.neighbours + 1}")
        meter("message", len(listed))
        announced = replace(own, neighbours=message.neighbours, threshold=message.threshold)
        seed = self.environment.directory.public_seed
        return RegularGraph.of_round(seed, message.round, message.participants, announced)

    # -- ShareKeys ------------------------------------------------------------------------------------------------

    @handles(ShareKeysAmongNeighbours)
    def on_share_keys_among_neighbours(
        self, message: ShareKeysAmongNeighbours, private: NeighbourKeys
    ) -> SealedForPeers:
        """Verify the neighbours' keys; share the mask key and the self-mask seed among them."""
        with self.progress.answering(message, message.round):
            return self.share(private.adverts)

    def check_adverts(self, adverts: dict[int, AdvertOf], count: int) -> None:
        """Refuse keys of clients that are not neighbours; further checks as in `secagg`."""
        if not adverts.keys() <= self.graph.around(self.number):
            raise Refusal("secagg-plus.not-a-neighbour", "a client with keys is not a neighbour")

        super().check_adverts(adverts, count)

    # -- MaskedInputCollection ------------------------------------------------------------------------------------

    @handles(MaskInputAmongNeighbours)
    def on_mask_input_among_neighbours(
        self, message: MaskInputAmongNeighbours, private: SealedFromPeers
    ) -> MaskedAmongNeighbours:
        """Mask the update, and send a tag to each neighbour it is masked with; without it they reveal no share."""
        with self.progress.answering(message, message.round):
            masked = self.masked_input(private.shares)
            meter("aead.seal", len(self.received))
            tags = []
            for peer in sorted(self.received):
                nonce, associated = self.tag_content(self.number, peer)
                tags.append(MaskedWith(peer, encryption.seal(self.sealing_keys[peer], nonce, b"", associated)))
            return MaskedAmongNeighbours(masked, tags)

    def tag_content(self, sender: int, receiver: int) -> tuple[bytes, bytes]:
        """Return nonce and associated data of a tag; they differ from those of the shares under the same key."""
        return b"\x01" + sender.to_bytes(11, "big"), signed_content("masked with", self.round, sender, receiver)

    # -- ConsistencyCheck -----------------------------------------------------------------------------------------

    def believable(self, named: list[int]) -> set[int]:
        """Return the survivors in the neighbourhood; the signed set has all survivors."""
        survivors, participants = set(named), len(self.graph.listed)
        if len(survivors) != len(named) or not survivors <= set(self.graph.listed):
            raise Refusal("secagg.unknown-survivor", "a survivor is listed twice, or is not a participant")
        if len(survivors) < self.graph.min_survivors:
            raise Refusal(
                "secagg-plus.below-threshold",
                f"{len(survivors)} survivors of {participants} participants; at least {self.graph.min_survivors}",
            )
        # Signatures cover all survivors; the client's shares concern its neighbourhood only.
        return super().believable(sorted(survivors & self.graph.around(self.number)))

    # -- Unmasking ------------------------------------------------------------------------------------------------

    @handles(UnmaskNeighbours)
    def on_unmask_neighbours(self, message: UnmaskNeighbours, private: NeighbourSignatures) -> RevealedShares:
        """Reveal one share per neighbour, once enough neighbours have signed the same survivors."""
        with self.progress.answering(message, message.round):
            self.tags = {row.client: row.tag for row in private.masked_with}
            return self.unmask(private.signatures)

    def has_masked_with_me(self, peer: int) -> bool:
        """Return whether the neighbour's tag is valid."""
        # Without tags, a server could tell one client of few neighbours, and others of all; their common masks would
        # then not hide it.
        if peer == self.number:
            return True
        nonce, associated = self.tag_content(peer, self.number)
        meter("aead.open")
        try:
            encryption.open_sealed(self.sealing_keys[peer], nonce, self.tags.get(peer, b""), associated)
        except OpeningFailed:
            return False
        return True
