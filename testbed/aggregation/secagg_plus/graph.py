"""Graph of `secagg-plus`: a circle in random order; each client is connected with the k/2 nearest on either side.

This is the Harary graph H(s, k) of even k under a random permutation of its vertices (Bell et al., CCS 2020, ePrint
2020/704, section 3). No party chooses the permutation: it sorts the participants by the SHAKE-256 stream of a digest of
the PKI's public seed, the round and the list of participants, so every party with the list can derive the graph.

The module also has the messages that differ from those of `secagg`: data for one client are private. The stages have
the names of those of `secagg`, so that the two protocols can be compared stage by stage.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from testbed.aggregation.kit.message_parts import Many, ShareOf, SignatureOf
from testbed.aggregation.secagg.messages import (
    AdvertOf,
    KeyAdvert,
    Masked,
    MaskInput,
    RevealedShares,
    SealedForPeers,
    Unmask,
)
from testbed.aggregation.secagg.round import PeerGraph, Question, SecAggRound, listed
from testbed.aggregation.secagg_plus.bound import Neighbourhood
from testbed.arrays import Ids
from testbed.crypto import memo
from testbed.emulation.compute.cost import meter
from testbed.errors import RoundAborted
from testbed.messages import ClientId, Count, Message, RoundNumber, signed_content
from testbed.network.contract import ids

_COMMON_DOMAIN = b"testbed/secagg-plus/common/v1"

Tag16 = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


class AnnounceGraph(Message, frozen=True):
    """Question that begins the aggregation; the graph follows from the list of participants, k and t."""

    stage: ClassVar[str] = "secagg/advertise-keys"
    Answer: ClassVar[type[Message] | None] = KeyAdvert

    round: RoundNumber
    participants: Annotated[list[ClientId], Many]
    neighbours: Count
    threshold: Count


class NeighbourKeys(Message, frozen=True):
    """The advertised keys of one client's neighbours, and its own."""

    adverts: Annotated[list[AdvertOf], Many]


class ShareKeysAmongNeighbours(Message, frozen=True):
    """Question for shares, sealed for the clients with the attached keys."""

    stage: ClassVar[str] = "secagg/share-keys"
    Answer: ClassVar[type[Message] | None] = SealedForPeers
    Private: ClassVar[type[Message] | None] = NeighbourKeys

    round: RoundNumber


class MaskedWith(Message, frozen=True):
    """A tag by which a client tells a neighbour (from it, or to it) that its input is masked with that neighbour.

    The tag is authenticated under the key of the two, and not secret.
    """

    client: ClientId
    tag: Tag16


class MaskedAmongNeighbours(Masked, frozen=True):
    """The masked, quantised update, with a tag for each neighbour that it is masked with."""

    masked_with: Annotated[list[MaskedWith], Many]


class MaskInputAmongNeighbours(MaskInput, frozen=True):
    """Question for the update, masked against the neighbours that have shared."""

    Answer: ClassVar[type[Message] | None] = MaskedAmongNeighbours


class NeighbourSignatures(Message, frozen=True):
    """The signatures of a client's neighbours on the survivors, and the tags of those that masked with it."""

    signatures: Annotated[list[SignatureOf], Many]
    masked_with: Annotated[list[MaskedWith], Many]


class UnmaskNeighbours(Message, frozen=True):
    """Question for the shares that the signed set of survivors requires."""

    stage: ClassVar[str] = "secagg/unmask"
    Answer: ClassVar[type[Message] | None] = RevealedShares
    Private: ClassVar[type[Message] | None] = NeighbourSignatures

    round: RoundNumber


_DOMAIN = b"testbed/secagg-plus/participants/v2"
_KEY_WORDS = 2  # 128 bits to sort by: no two participants have the same


def list_digest(public_seed: bytes, round_number: int, participants: Sequence[int]) -> bytes:
    """Return 32 bytes that identify a round and its participants, under `Directory.public_seed`.

    Args:
        public_seed: 32 bytes.
        round_number: the round.
        participants: sorted client numbers.
    """
    return hashlib.sha256(_DOMAIN + signed_content(public_seed, round_number, list(participants))).digest()


class NeighbourGraph:
    """Neighbours of all participants.

    Args:
        participants: sorted client numbers, s of them.
        neighbours: k, even and below s - 1; or s - 1: all others.
        digest: of the list, by `list_digest`.
    """

    def __init__(self, participants: Sequence[int], neighbours: int, digest: bytes) -> None:
        size = len(participants)
        if not (neighbours == size - 1 or (0 < neighbours < size - 1 and neighbours % 2 == 0)):
            raise ValueError(f"k = {neighbours} of {size} participants: an even number below {size - 1}, or all")
        self._participants = np.asarray(participants, np.int64)
        self._complete = neighbours == size - 1
        self._half = neighbours // 2
        stream = hashlib.shake_256(digest).digest(8 * _KEY_WORDS * size)
        # Little-endian on every machine: all parties must derive the same graph.
        words = np.frombuffer(stream, "<u8").reshape(size, _KEY_WORDS)
        self._circle = np.lexsort((words[:, 1], words[:, 0]))  # positions in the list, in the circle's order

    @cached_property
    def _place(self) -> npt.NDArray[np.int64]:
        place = np.empty_like(self._circle)
        place[self._circle] = np.arange(len(self._circle))
        return place

    def circle(self) -> list[int]:
        """Return the participants in the circle's order."""
        order: list[int] = self._participants[self._circle].tolist()
        return order

    def around(self, client: int) -> frozenset[int]:
        """Return the client and its neighbours, which hold its shares.

        Raises:
            KeyError: the client is not a participant.
        """
        position = int(np.searchsorted(self._participants, client))
        if position == len(self._participants) or self._participants[position] != client:
            raise KeyError(client)
        if self._complete:
            return frozenset(self._participants.tolist())
        steps = np.arange(-self._half, self._half + 1)
        places = (self._place[position] + steps) % len(self._circle)
        return frozenset(self._participants[self._circle[places]].tolist())


class RegularGraph(PeerGraph):
    """Graph in which a client's peers are its k neighbours.

    Args:
        participants: sorted client numbers, s of them.
        chosen: k, t and the fewest survivors.
        digest: of the list, by `list_digest`.
    """

    def __init__(self, participants: Sequence[int], chosen: Neighbourhood, digest: bytes) -> None:
        self.listed = list(participants)
        self.chosen = chosen
        self.list_digest = digest
        self.participants = len(self.listed)
        self.holders = chosen.neighbours + 1
        self.threshold = chosen.threshold
        self.min_survivors = chosen.survivors
        key = "graph", digest, len(self.listed), chosen.neighbours
        self._graph = memo.cached(key, lambda: NeighbourGraph(self.listed, chosen.neighbours, digest))
        self._around: dict[int, frozenset[int]] = {}
        self._tags: defaultdict[int, list[MaskedWith]] | None = None

    @classmethod
    def of_round(
        cls, public_seed: bytes, round_number: int, participants: Sequence[int], chosen: Neighbourhood
    ) -> "RegularGraph":
        """Return the graph that follows from the list of participants."""
        return cls(participants, chosen, list_digest(public_seed, round_number, participants))

    def around(self, client: int) -> frozenset[int]:
        """Return the client and its neighbours, which hold its shares; raises `KeyError` for other clients."""
        if client not in self._around:
            self._around[client] = self._graph.around(client)
        return self._around[client]

    def peers(self, client: int, among: Iterable[int]) -> list[int]:
        """Return the client's neighbours in `among`."""
        around = self.around(client)
        return [peer for peer in among if peer in around and peer != client]

    def advert_content(
        self, round_number: int, client: int, sealing_key: bytes, mask_key: bytes, training: bytes
    ) -> bytes:
        """Return the content that a client signs: its keys, the list of participants and its training task.

        With the list, neighbours know that they have the same list; see also `secagg.messages.advert_content`.
        """
        return signed_content(round_number, client, sealing_key, mask_key, self.list_digest, training)

    def common_digest(self, round_number: int, training: bytes, adverts: Iterable[AdvertOf]) -> bytes:
        """Return the digest of the list and the training task; it has no keys, as a client sees only some of them."""
        # Not the digest that the graph is drawn by: a server that could change that one by the model would try models
        # until the graph suits it.
        return hashlib.sha256(_COMMON_DOMAIN + signed_content(self.list_digest, training)).digest()

    # -- questions of the server --------------------------------------------------------------------------------------

    def announcement(self, round_number: int) -> Message:
        """Return the question with the list, k and t."""
        meter("message", self.participants)
        return AnnounceGraph(round_number, self.listed, self.chosen.neighbours, self.threshold)

    def key_lists(self, round_number: int, adverts: Mapping[int, KeyAdvert]) -> Question:
        """Return the question that sends each client its neighbours' keys and its own."""
        rows = {row.client: row for row in listed(adverts)}
        private: dict[int, Message] = {}
        for client in adverts:
            around = [*self.peers(client, adverts), client]
            private[client] = NeighbourKeys([rows[member] for member in sorted(around)])
            meter("message", len(around))
        return ids(list(adverts)), ShareKeysAmongNeighbours(round_number), private

    def input_question(self, round_number: int) -> Message:
        return MaskInputAmongNeighbours(round_number)

    def unmask_question(self, state: SecAggRound, kind: type[Unmask]) -> Question:
        """Return the question that sends each client t of its neighbours' signatures and their tags.

        Clients with fewer than t signatures around them are not asked.
        """
        t, signed, inputs = self.threshold, state.signed, state.inputs
        private: dict[int, Message] = {}
        for client in signed:
            around = sorted(self.around(client).intersection(signed))
            if len(around) >= t:  # more than t signatures add nothing, and each costs a verification
                tags = self.tags_for(inputs, client)
                meter("message", t + len(tags))
                private[client] = NeighbourSignatures(
                    [SignatureOf(member, signed[member]) for member in around[:t]], tags
                )
        if len(private) < t:
            raise RoundAborted("below-threshold", f"{len(private)} of {t} needed clients can be shown {t} signatures")
        return ids(list(private)), UnmaskNeighbours(state.start.number), private

    def tags_for(self, inputs: Mapping[int, Masked], client: int) -> list[MaskedWith]:
        """Return the tags for this client from the clients that have sent an input."""
        if self._tags is None:
            self._tags = defaultdict(list)
            for sender, answer in inputs.items():
                tag_by_receiver = {row.client: row.tag for row in _tags(answer)}
                for receiver, tag in tag_by_receiver.items():
                    self._tags[receiver].append(MaskedWith(sender, tag))
        return self._tags[client]

    # -- checks of the server -----------------------------------------------------------------------------------------

    def isolated(self, clients: Iterable[int]) -> list[int]:
        """Return the isolated clients, before they send an input."""
        there = list(clients)
        return [client for client in there if len(self.peers(client, there)) + 1 < self.threshold]

    def is_masked_with_all(self, client: int, answer: Masked, shared: Iterable[int]) -> bool:
        # A neighbour without a tag reveals no share of this client, so the mask would stay in the sum.
        return {row.client for row in _tags(answer)} >= set(self.peers(client, shared))

    def check_recoverable(self, shared: Ids, survivors: Ids) -> None:
        """Check that enough holders are left: from here on all masks are in the sum and must be removable."""
        there = set(survivors.tolist())
        for client in shared.tolist():
            holders = self.around(client) & there
            if holders and len(holders) < self.threshold:
                detail = f"{len(holders)} of {self.threshold} needed neighbours of client {client} sent their input"
                raise RoundAborted("below-threshold", detail)

    def held_by(self, client: int, shares: RevealedShares) -> RevealedShares:
        around = self.around(client)

        def of_neighbourhood(rows: list[ShareOf]) -> list[ShareOf]:
            return [row for row in rows if row.client in around]

        return RevealedShares(of_neighbourhood(shares.mask_keys), of_neighbourhood(shares.self_masks))


def _tags(answer: Masked) -> list[MaskedWith]:
    """Return a client's tags for the neighbours that it is masked with."""
    assert isinstance(answer, MaskedAmongNeighbours)  # as the question says
    return answer.masked_with
