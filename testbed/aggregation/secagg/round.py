"""One round of secure aggregation: the graph of its masks and shares, and the state of the server.

`secagg` has the complete graph of Bonawitz et al.; `secagg-plus` has a sparse one (`aggregation.secagg_plus.graph`).
The graph object also decides which messages go to which clients, since on a sparse graph each client is sent only the
data of its neighbours.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from testbed.aggregation.batch_policy import BatchPolicy
from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.kit.server_checks import ServerRound
from testbed.aggregation.secagg.messages import (
    AdvertiseKeys,
    AdvertOf,
    KeyAdvert,
    Masked,
    MaskInput,
    RevealedShares,
    ShareKeys,
    Unmask,
    advert_content,
    adverts_digest,
)
from testbed.arrays import Ids
from testbed.emulation.compute.cost import meter
from testbed.messages import Message
from testbed.network import Replies
from testbed.network.contract import ids, no_ids

Question = tuple[Ids, Message, Mapping[int, Message] | None]
"""Clients that are asked, the message to all of them, and the private message to each (None: there is none)."""


class PeerGraph(ABC):
    """Graph of the masks and shares of one round.

    Attributes:
        participants: s.
        holders: most clients that hold shares of a client's secrets, including itself.
        threshold: t, the holders that must remain.
        min_survivors: fewest clients that must stay in the round until their inputs have arrived.
        same_holders: whether all clients share their secrets among the same clients.
    """

    participants: int
    holders: int
    threshold: int
    min_survivors: int
    same_holders: bool = False

    @abstractmethod
    def peers(self, client: int, among: Iterable[int]) -> list[int]:
        """Return the clients of `among` with which a client shares secrets and agrees on masks; never itself."""

    # -- signed contents and common digests ---------------------------------------------------------------------------

    @abstractmethod
    def advert_content(
        self, round_number: int, client: int, sealing_key: bytes, mask_key: bytes, training: bytes
    ) -> bytes:
        """Return the content that a client signs with its keys; `training` is the digest of its training task."""

    @abstractmethod
    def common_digest(self, round_number: int, training: bytes, adverts: Iterable[AdvertOf]) -> bytes:
        """Return a digest that is equal only for clients that may hold each other's shares; shares are bound to it."""

    # -- questions of the server --------------------------------------------------------------------------------------

    @abstractmethod
    def announcement(self, round_number: int) -> Message:
        """Return the question that begins the aggregation."""

    @abstractmethod
    def key_lists(self, round_number: int, adverts: Mapping[int, KeyAdvert]) -> Question:
        """Return the question with the keys: of all clients, or of each client's neighbours."""

    @abstractmethod
    def input_question(self, round_number: int) -> Message:
        """Return the question for the masked inputs."""

    @abstractmethod
    def unmask_question(self, state: "SecAggRound", kind: type[Unmask]) -> Question:
        """Return the question with the signatures that count, to the clients that may reveal shares.

        Args:
            state: of the round.
            kind: class of the question, if all clients are sent the same.

        Raises:
            RoundAborted: too few clients may reveal shares.
        """

    # -- checks for sparse graphs; in a complete graph all clients are peers ------------------------------------------

    def isolated(self, clients: Iterable[int]) -> list[int]:
        """Return the clients of `clients` that have too few of them as peers to go on."""
        return []

    def is_masked_with_all(self, client: int, answer: Masked, shared: Iterable[int]) -> bool:
        """Return whether a client's answer says that its input is masked with all its peers that have shared."""
        return True

    def check_recoverable(self, shared: Ids, survivors: Ids) -> None:  # noqa: B027  # see above
        """Raise `RoundAborted` if the survivors hold too few shares of a client with masks in the sum."""

    def held_by(self, client: int, shares: RevealedShares) -> RevealedShares:
        """Return the revealed shares that this client can hold."""
        return shares


class CompleteGraph(PeerGraph):
    """Complete graph: each client is a peer of all others.

    Args:
        participants: s.
        threshold: t of s.
    """

    same_holders = True

    def __init__(self, participants: int, threshold: int) -> None:
        self.participants = self.holders = participants
        self.threshold = self.min_survivors = threshold

    def peers(self, client: int, among: Iterable[int]) -> list[int]:
        """Return all clients of `among` except itself."""
        return [peer for peer in among if peer != client]

    def advert_content(
        self, round_number: int, client: int, sealing_key: bytes, mask_key: bytes, training: bytes
    ) -> bytes:
        return advert_content(round_number, client, sealing_key, mask_key, training)

    def common_digest(self, round_number: int, training: bytes, adverts: Iterable[AdvertOf]) -> bytes:
        """Return the digest of s, t, the training task and all keys."""
        return adverts_digest(round_number, self.participants, self.threshold, training, adverts)

    def announcement(self, round_number: int) -> Message:
        return AdvertiseKeys(round_number, self.participants, self.threshold)

    def key_lists(self, round_number: int, adverts: Mapping[int, KeyAdvert]) -> Question:
        """Return the question that sends all keys to all clients."""
        meter("message", len(adverts))
        return ids(list(adverts)), ShareKeys(round_number, listed(adverts)), None

    def input_question(self, round_number: int) -> Message:
        return MaskInput(round_number)

    def unmask_question(self, state: "SecAggRound", kind: type[Unmask]) -> Question:
        """Return the question that sends all signatures that count to all clients that have signed."""
        rows = [SignatureOf(client, signature) for client, signature in state.counting(state.signed).items()]
        return ids(list(state.signed)), kind(state.start.number, rows), None


def listed(adverts: Mapping[int, KeyAdvert]) -> list[AdvertOf]:
    """Return the adverts in the form in which they are passed on."""
    return [AdvertOf(c, advert.sealing_key, advert.mask_key, advert.signature) for c, advert in adverts.items()]


@dataclass
class SecAggRound(ServerRound):
    """State of one round.

    Attributes:
        graph: of masks and shares.
        batches: rule for clients that may be summed together.
        training: digest of the training task; empty with ``model_binding: none``.
        adverts: by client, its public keys; the paper's U1.
        digest: in common to all clients (`PeerGraph.common_digest`).
        sealed: by client, its sealed shares for each peer; U2.
        answers: to the question for the masked inputs.
        arrived: sorted clients that have sent their masked input.
        survivors: sorted clients in the sum; U3.
        helpers: clients that are not in the sum, but hold shares and are asked for them.
        signed: by client, its signature on the survivors; U4 (empty with ``consistency: none``).
        revealed: by client, the shares that it has revealed; U5.
    """

    graph: PeerGraph
    batches: BatchPolicy
    training: bytes = b""
    adverts: Mapping[int, KeyAdvert] = field(default_factory=dict)
    digest: bytes = b""
    sealed: Mapping[int, Mapping[int, bytes]] = field(default_factory=dict)
    answers: Replies = field(init=False)
    arrived: Ids = field(default_factory=no_ids)
    survivors: Ids = field(default_factory=no_ids)
    helpers: Ids = field(default_factory=no_ids)
    signed: Mapping[int, bytes] = field(default_factory=dict)
    revealed: dict[int, RevealedShares] = field(default_factory=dict)

    @property
    def shared(self) -> Ids:
        """Clients that have shared their secrets (U2)."""
        return ids(list(self.sealed))

    @property
    def inputs(self) -> dict[int, Masked]:
        """Answers with the inputs that have arrived, by client."""
        return {client: self.answers[client] for client in self.arrived.tolist()}

    def counting(self, signed: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the signatures that count: those of survivors, or all if the batches allow it."""
        outside = set() if self.batches.outsiders_sign else set(self.helpers.tolist())
        return {client: signature for client, signature in signed.items() if client not in outside}

    def require_complete_batches(self, clients: Ids, what: str) -> Ids:
        """Return the clients that batches allow in a sum; raises `RoundAborted` if they are too few."""
        least = self.batches.min_sum_size(self.graph.threshold)
        return self.batches.require_complete_batches(clients, least, what)
