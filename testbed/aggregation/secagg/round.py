"""One round of secure aggregation: who shares secrets and agrees on masks with whom, and what the server knows so far.

`secagg` has the complete graph of Bonawitz et al.; `secagg-plus` a sparse one (`aggregation.secagg_plus.graph`). What
follows from the graph is asked of it, and so is what is sent to whom, as on a sparse graph each client is sent what
concerns its neighbours.
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
"""Who is asked, what all of them are sent, and what each is sent alone (None: nothing)."""


class PeerGraph(ABC):
    """The graph of one round.

    Attributes:
        participants: s, of the round.
        holders: how many clients hold shares of a client's secrets, itself among them, at most.
        threshold: t, the holders that must remain.
        min_survivors: how many clients must stay in the round until their inputs are there.
        same_holders: whether everybody shares its secrets among the same clients.
    """

    participants: int
    holders: int
    threshold: int
    min_survivors: int
    same_holders: bool = False

    @abstractmethod
    def peers(self, client: int, among: Iterable[int]) -> list[int]:
        """Those of `among` with whom a client shares its secrets and agrees on masks; never itself."""

    # -- what clients sign, and have in common ------------------------------------------------------------------------

    @abstractmethod
    def advert_content(
        self, round_number: int, client: int, sealing_key: bytes, mask_key: bytes, training: bytes
    ) -> bytes:
        """What a client signs with its keys; `training` is the digest of what it was asked to train."""

    @abstractmethod
    def common_digest(self, round_number: int, training: bytes, adverts: Iterable[AdvertOf]) -> bytes:
        """What clients have in common that may hold each other's shares: shares are sealed for them alone."""

    # -- what the server sends to whom --------------------------------------------------------------------------------

    @abstractmethod
    def announcement(self, round_number: int) -> Message:
        """The question that begins the aggregation."""

    @abstractmethod
    def key_lists(self, round_number: int, adverts: Mapping[int, KeyAdvert]) -> Question:
        """Everybody's keys, or each client's neighbours'."""

    @abstractmethod
    def input_question(self, round_number: int) -> Message:
        """The question for the masked inputs."""

    @abstractmethod
    def unmask_question(self, state: "SecAggRound", kind: type[Unmask]) -> Question:
        """The signatures that count, for those who may reveal shares; raises `RoundAborted` when they are too few.

        `kind` is that of the question, where all are sent the same.
        """

    # -- what a sparse graph has to look after; everybody is everybody's peer in a complete one ------------------------

    def isolated(self, clients: Iterable[int]) -> list[int]:
        """Those of `clients` who have too few of them as peers: they cannot go on."""
        return []

    def is_masked_with_all(self, client: int, answer: Masked, shared: Iterable[int]) -> bool:
        """Whether a client's answer says that its input is masked with all its peers that have shared."""
        return True

    def check_recoverable(self, shared: Ids, survivors: Ids) -> None:  # noqa: B027  # see above
        """Raise `RoundAborted` when the survivors hold too few shares of somebody whose masks are in the sum."""

    def held_by(self, client: int, shares: RevealedShares) -> RevealedShares:
        """Those of the revealed shares that this client can hold."""
        return shares


class CompleteGraph(PeerGraph):
    """Everybody is everybody's peer.

    Args:
        participants: s, of the round.
        threshold: t of s.
    """

    same_holders = True

    def __init__(self, participants: int, threshold: int) -> None:
        self.participants = self.holders = participants
        self.threshold = self.min_survivors = threshold

    def peers(self, client: int, among: Iterable[int]) -> list[int]:
        """All but itself."""
        return [peer for peer in among if peer != client]

    def advert_content(
        self, round_number: int, client: int, sealing_key: bytes, mask_key: bytes, training: bytes
    ) -> bytes:
        return advert_content(round_number, client, sealing_key, mask_key, training)

    def common_digest(self, round_number: int, training: bytes, adverts: Iterable[AdvertOf]) -> bytes:
        """Of s, t, what was trained and all keys."""
        return adverts_digest(round_number, self.participants, self.threshold, training, adverts)

    def announcement(self, round_number: int) -> Message:
        return AdvertiseKeys(round_number, self.participants, self.threshold)

    def key_lists(self, round_number: int, adverts: Mapping[int, KeyAdvert]) -> Question:
        """Everybody is sent all of them."""
        meter("message", len(adverts))
        return ids(list(adverts)), ShareKeys(round_number, listed(adverts)), None

    def input_question(self, round_number: int) -> Message:
        return MaskInput(round_number)

    def unmask_question(self, state: "SecAggRound", kind: type[Unmask]) -> Question:
        """Everybody that has signed is sent all signatures that count."""
        rows = [SignatureOf(client, signature) for client, signature in state.counting(state.signed).items()]
        return ids(list(state.signed)), kind(state.start.number, rows), None


def listed(adverts: Mapping[int, KeyAdvert]) -> list[AdvertOf]:
    """The adverts as they are passed on."""
    return [AdvertOf(c, advert.sealing_key, advert.mask_key, advert.signature) for c, advert in adverts.items()]


@dataclass
class SecAggRound(ServerRound):
    """One round.

    Attributes:
        graph: who are peers.
        batches: who may be summed with whom.
        training: digest of what the clients were asked to train; empty with ``model_binding: none``.
        adverts: the paper's U1, with their public keys.
        digest: what the clients have in common (`PeerGraph.common_digest`).
        sealed: U2; by client, what it has sealed for each peer.
        answers: to the question for the masked inputs.
        arrived: whose masked input is there.
        survivors: U3; whose inputs are summed.
        helpers: who is not in the sum, but holds shares, and is asked for them.
        signed: U4; the signatures on the survivors (with ``consistency: none``: nobody's).
        revealed: U5; the shares that each has revealed.
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
        """Who has shared its secrets (U2)."""
        return ids(list(self.sealed))

    @property
    def inputs(self) -> dict[int, Masked]:
        """The answers with the inputs that have arrived."""
        return {client: self.answers[client] for client in self.arrived.tolist()}

    def counting(self, signed: Mapping[int, bytes]) -> dict[int, bytes]:
        """The signatures that count: those of clients in the sum, unless the batches let others sign, too."""
        outside = set() if self.batches.outsiders_sign else set(self.helpers.tolist())
        return {client: signature for client, signature in signed.items() if client not in outside}

    def require_complete_batches(self, clients: Ids, what: str) -> Ids:
        """Those of `clients` that may be summed, as far as batches say; `RoundAborted` when they are too few."""
        least = self.batches.min_sum_size(self.graph.threshold)
        return self.batches.require_complete_batches(clients, least, what)
