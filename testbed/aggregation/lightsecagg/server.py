"""LightSecAgg: a Lightweight and Versatile Design for Secure Aggregation in Federated Learning.

Source: So, He, Yang, Li, Yu, Ali, Guler, Avestimehr, MLSys 2022 (arXiv 2109.14236), Algorithm 1, synchronous.

Client i draws a mask z_i in a field, cuts it into U - T pieces, appends T uniform pieces, and sends each peer j a
sealed coded piece [z_i]_j (`testbed.crypto.coded_masks`). It uploads x_i + z_i. The clients whose upload has arrived
are the survivors. Each survivor answers one question with the sum of the survivors' pieces that it holds. Any U answers
decode the sum of the masks, whichever clients have dropped out; no secret of a dropout is reconstructed.

The paper leaves the private channels between clients open. Here they are those of `secagg`: a key pair per round whose
public half is signed with the key in the PKI, together with the training task (``model_binding: signed``). Pieces open
only for clients that were shown the same list of keys and the same N, U and T.

The protocol protects against an honest-but-curious server that colludes with T clients. The survivors are not signed:
docs/explanation/lightsecagg.md describes the attacks of a malicious server and of malicious clients.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.aggregation.contract import Aggregate, AggregationProtocol, AggregationRound
from testbed.aggregation.kit.key_adverts import usable_adverts
from testbed.aggregation.kit.server_checks import ServerRound, at_least, digest_of_training, quantised_mean
from testbed.aggregation.lightsecagg.client import LightSecAggClient
from testbed.aggregation.lightsecagg.messages import (
    KEYS_DOMAIN,
    AdvertiseLightSecAggKeys,
    LightSecAggAdvertOf,
    LightSecAggKeyAdvert,
    MaskLightSecAggInput,
    PieceFor,
    PiecesFromPeers,
    ShareMasks,
    SumPieces,
    advert_content,
)
from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.arrays import Ids
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.encryption import TAG_BYTES
from testbed.crypto.prime_field import ELEMENT_BYTES, Elements, difference, reduce_words
from testbed.emulation.compute.cost import meter
from testbed.errors import RoundAborted
from testbed.network import Replies
from testbed.network.contract import ids, no_ids
from testbed.parties.client import RoleSpec
from testbed.privacy.noise_plan import Guarantees
from testbed.vectors.integers import INTEGERS


@dataclass
class LightSecAggRound(ServerRound):
    """State of one round.

    Attributes:
        announced: N, U and T.
        training: digest of the training task; empty with ``model_binding: none``.
        adverts: by client, its public key.
        sealed: by client, its sealed piece for each peer.
        uploads: the answers with the masked inputs.
        arrived: sorted clients that have sent their masked input.
        survivors: sorted clients in the sum.
    """

    announced: AdvertiseLightSecAggKeys
    training: bytes = b""
    adverts: dict[int, LightSecAggKeyAdvert] = field(default_factory=dict)
    sealed: dict[int, dict[int, memoryview]] = field(default_factory=dict)
    uploads: Replies = field(init=False)
    arrived: Ids = field(default_factory=no_ids)
    survivors: Ids = field(default_factory=no_ids)

    @property
    def code(self) -> MaskCode:
        """Coding of the masks of inputs like those that have arrived."""
        length = len(self.uploads[int(self.arrived[0])].input)
        return MaskCode(length, self.announced.threshold, self.announced.max_colluders)

    def at_least(self, clients: int, replies: Replies, what: str) -> None:
        """Raise `RoundAborted` if there are fewer clients than U."""
        at_least(self.announced.threshold, clients, replies, what)


class LightSecAgg(AggregationProtocol):
    """Server side. A malicious server overrides some of its methods."""

    parameters: LightSecAggParameters
    needs_registration = True
    stages = LightSecAggParameters.stages

    @property
    def roles(self) -> list[RoleSpec]:
        return [RoleSpec(LightSecAggClient, self.parameters)]

    def guarantees(self, participants: int) -> Guarantees:
        """Return no guarantees against a malicious server, as the survivors are not signed."""
        fewest = self.parameters.threshold_for(participants)
        return Guarantees(
            participants,
            max_colluders=-1,
            min_sum_size=fewest,
            min_partition_size=participants,
            min_noise_share=fewest / participants,
        )

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Sum the survivors' updates; raises `RoundAborted` if there are fewer than U."""
        state = self.begin(round_)
        await self.advertise_keys(state)
        return await self.summed(state)

    async def summed(self, state: LightSecAggRound) -> Aggregate:
        """Return the mean over the survivors among the clients with keys; raises `RoundAborted` below U."""
        await self.share_masks(state)
        await self.collect_masked_inputs(state)
        return quantised_mean(self.parameters, await self.unmasked_sum(state), state.survivors)

    def begin(self, round_: AggregationRound) -> LightSecAggRound:
        """Compute N, U and T of this round; raises `RoundAborted` if clients would refuse them."""
        participants = len(round_.participants)
        needed = self.parameters.threshold_for(participants)
        private = self.parameters.max_colluders_for(participants)
        if participants < max(2, needed):
            raise RoundAborted("below-threshold", f"{participants} of {max(2, needed)} needed participants")
        if private >= needed or needed < 2:
            raise RoundAborted("threshold-too-low", f"U = {needed} must be above T = {private} and above 1")

        state = LightSecAggRound(round_, AdvertiseLightSecAggKeys(round_.number, participants, needed, private))
        self.parameters.batch_policy(round_.batches).require_complete_batches(round_.trained, needed, "trained")
        return state

    # -- keys ---------------------------------------------------------------------------------------------------------

    async def advertise_keys(self, state: LightSecAggRound) -> None:
        """Collect the public keys of the clients that take part."""
        state.training = digest_of_training(self.parameters.model_binding, state.start)
        replies = await state.start.network.ask(state.start.trained, state.announced)
        state.adverts = self.usable_adverts(state, replies.valid())
        state.at_least(len(state.adverts), replies, "advertised keys")

    def usable_adverts(
        self, state: LightSecAggRound, adverts: dict[int, LightSecAggKeyAdvert]
    ) -> dict[int, LightSecAggKeyAdvert]:
        """Leave out the adverts that peers would refuse, so that one client cannot end the round for all."""

        def content_of(client: int, advert: LightSecAggKeyAdvert) -> bytes:
            return advert_content(state.start.number, client, advert.sealing_key, state.training)

        def keys_of(advert: LightSecAggKeyAdvert) -> tuple[bytes, ...]:
            return (advert.sealing_key,)

        return usable_adverts(state.start, adverts, keys_of, KEYS_DOMAIN, content_of, "advertised key")

    # -- masks --------------------------------------------------------------------------------------------------------

    async def share_masks(self, state: LightSecAggRound) -> None:
        """Collect the coded pieces that each client has sealed for each other client."""
        listed = [
            LightSecAggAdvertOf(client, advert.sealing_key, advert.signature)
            for client, advert in state.adverts.items()
        ]
        meter("message", len(listed))
        replies = await state.start.network.ask(ids(list(state.adverts)), ShareMasks(state.start.number, listed))
        answers = {c: {row.client: row.sealed for row in answer.pieces} for c, answer in replies.valid().items()}
        size = self._sealed_bytes(state)
        for client, bundle in answers.items():
            lengths = {len(sealed) for sealed in bundle.values()}
            rows = len(replies[client].pieces)
            # A client without a piece for each peer would leave holders that cannot answer for it.
            complete = bundle.keys() == state.adverts.keys() - {client} and rows == len(bundle)
            if complete and (len(lengths) == 1 if size is None else lengths <= {size}):
                state.sealed[client] = bundle
            else:
                state.misbehaved(client, "shared masks: does not have one piece for every peer")
        state.at_least(len(state.sealed), replies, "shared their masks")

    def _sealed_bytes(self, state: LightSecAggRound) -> int | None:
        """Return the length of a sealed piece; None if the dimension is not known."""
        if state.start.dimension is None:
            return None
        code = MaskCode(state.start.dimension + 1, state.announced.threshold, state.announced.max_colluders)
        return ELEMENT_BYTES * code.piece_length + TAG_BYTES

    def pieces_for_holders(self, state: LightSecAggRound) -> dict[int, PiecesFromPeers]:
        """Return the pieces that each client holds of the clients that have shared."""
        meter("message", len(state.sealed) ** 2)
        return {
            holder: PiecesFromPeers([PieceFor(c, bundle[holder]) for c, bundle in state.sealed.items() if c != holder])
            for holder in state.sealed
        }

    # -- masked inputs ------------------------------------------------------------------------------------------------

    async def collect_masked_inputs(self, state: LightSecAggRound) -> None:
        """Collect the masked inputs, and choose the survivors."""
        private = self.pieces_for_holders(state)
        state.uploads = await state.start.network.ask(
            ids(list(private)), MaskLightSecAggInput(state.start.number), private=private
        )
        inputs = {client: answer.input for client, answer in state.uploads.valid().items()}
        dimension = state.start.dimension
        length = None if dimension is None else dimension + 1
        state.arrived = state.fitting(inputs, INTEGERS, length, "masked input")
        state.at_least(len(state.arrived), state.uploads, "sent their input")
        batches = self.parameters.batch_policy(state.start.batches)
        needed = state.announced.threshold
        state.survivors = batches.require_complete_batches(state.arrived, needed, "sent their input")

    # -- the sum ------------------------------------------------------------------------------------------------------

    async def unmasked_sum(self, state: LightSecAggRound) -> Elements:
        """Return the `(d+1,)` sum of the survivors' inputs, from U sums of coded pieces."""
        # Also of holders that are not in the sum: they hold pieces of all survivors.
        replies, sums = await self.summed_pieces(state, state.arrived, state.survivors)
        state.at_least(len(sums), replies, "summed the pieces that they hold")
        return await self.without_masks(state, state.survivors, sums)

    async def summed_pieces(
        self, state: LightSecAggRound, holders: Ids, survivors: Ids
    ) -> tuple[Replies, dict[int, Elements]]:
        """Ask holders for the sums of the survivors' pieces; return the replies and the sums by point."""
        replies = await state.start.network.ask(holders, SumPieces(state.start.number, survivors.tolist()))
        return replies, state.sums_by_point(replies, state.code.piece_length, "summed pieces")

    async def without_masks(self, state: LightSecAggRound, members: Ids, sums: Mapping[int, Elements]) -> Elements:
        """Return the `(d+1,)` sum of the members' inputs, given U holders' sums of their pieces."""
        code = state.code
        meter("field.multiply", (code.needed - code.private) * code.needed * code.piece_length)
        meter("field.add.element", code.length)
        return difference(reduce_words(await state.uploads.total(members)), code.decoded(sums))
