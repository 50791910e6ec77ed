"""What the server knows of one round of secure aggregation: each step reads what earlier steps have found, and adds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.secagg.batches import BatchPolicy
from testbed.aggregation.secagg.messages import KeyAdvert, Masked, Shares
from testbed.aggregation.secagg.peer_graph import PeerGraph
from testbed.arrays import Ids
from testbed.errors import RoundAborted
from testbed.network import Replies
from testbed.network.contract import ids, no_ids


@dataclass
class SecAggRound:
    """One round.

    Attributes:
        start: how the aggregation began.
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

    start: AggregationRound
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
    revealed: dict[int, Shares] = field(default_factory=dict)

    @property
    def shared(self) -> Ids:
        """Who has shared its secrets (U2)."""
        return ids(list(self.sealed))

    @property
    def inputs(self) -> dict[int, Masked]:
        """The answers with the inputs that have arrived."""
        return {client: self.answers[client] for client in self.arrived.tolist()}

    def record(self, kind: str, client: int, detail: str) -> None:
        """Record what a client has done, or what became of it."""
        self.start.network.record_event(f"client:{client}", kind, detail)

    def counting(self, signed: Mapping[int, bytes]) -> dict[int, bytes]:
        """The signatures that count: those of clients in the sum, unless the batches let others sign, too."""
        outside = set() if self.batches.outsiders_sign else set(self.helpers.tolist())
        return {client: signature for client, signature in signed.items() if client not in outside}

    def at_least(self, least: int, clients: Iterable[int], replies: Replies, what: str) -> None:
        """Raise `RoundAborted` when these clients are fewer than `least`."""
        count = len(list(clients))
        if count < least:
            refusals = sorted({refusal.check for refusal in replies.missing.refusals})
            because = f"; refusals: {', '.join(refusals)}" if refusals else ""
            raise RoundAborted("below-threshold", f"{count} of {least} needed {what}{because}")

    def require_complete_batches(self, clients: Ids, what: str) -> Ids:
        """Those of `clients` that may be summed, as far as batches say; `RoundAborted` when they are too few."""
        least = self.batches.min_sum_size(self.graph.threshold)
        return self.batches.require_complete_batches(clients, least, what)
