"""State of the server of `flamingo` in a round."""

from dataclasses import dataclass, field

from testbed.aggregation.flamingo.graph import RoundGraph
from testbed.aggregation.flamingo.messages import CutEdge, EncryptedSeed, Opened, round_digest
from testbed.aggregation.flamingo.set_up_messages import KeptService
from testbed.aggregation.kit.server_checks import ServerRound
from testbed.arrays import Ids
from testbed.network import Replies
from testbed.network.contract import no_ids

Edge = tuple[int, int]
"""A client that is online, and a neighbour that is not."""


@dataclass
class FlamingoRound(ServerRound):
    """State of one round.

    Attributes:
        stored_service: the serving committee.
        graph: graph of the participants.
        reports: the answers with the masked inputs.
        seeds: by client and neighbour, the encrypted seed of their common mask.
        online: sorted clients in the sum.
        signed: by member, its signature on the labels.
        edges: between clients online and offline, with the ciphertexts of the clients online.
        opened: by member, its answer to `Reconstruct`.
    """

    stored_service: KeptService
    graph: RoundGraph
    reports: Replies = field(init=False)
    seeds: dict[Edge, EncryptedSeed] = field(default_factory=dict)
    online: Ids = field(default_factory=no_ids)
    signed: dict[int, bytes] = field(default_factory=dict)
    edges: list[CutEdge] = field(default_factory=list)
    opened: dict[int, Opened] = field(default_factory=dict)

    @property
    def members(self) -> dict[int, int]:
        """By member, in their order, the evaluation point of its share."""
        clients = self.stored_service.certificate.service.committee.clients
        return {client: point for point, client in enumerate(clients, 1)}

    @property
    def digest(self) -> bytes:
        return round_digest(self.start.number, self.graph.listed, self.stored_service.certificate.service.digest)
