"""The server's decisions in one round of `secagg-plus`: as in `secagg`, but limited to each client's neighbours."""

from typing import Any

from testbed.aggregation.secagg.messages import AdvertOf, SealedFromPeers, SharesFor
from testbed.aggregation.secagg.share_holding import SEALING_PURPOSE
from testbed.aggregation.secagg_plus.graph import (
    AnnounceGraph,
    MaskedWith,
    MaskInputAmongNeighbours,
    NeighbourKeys,
    NeighbourSignatures,
    ShareKeysAmongNeighbours,
    UnmaskNeighbours,
)
from testbed.crypto import encryption as sealing
from tests.search.stories import Group
from tests.search.summing import Summing


class SummingAmongNeighbours(Summing):
    """One round of one server."""

    question = AnnounceGraph

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.participants: dict[int, Group] = {}
        self.left_out: set[int] = set()  # clients without messages of the aggregation
        self.words: dict[int, dict[int, bytes]] = {}  # by client, its confirmation for each neighbour

    def advertise_all(self) -> None:
        """Show the list of participants, which determines the graph."""
        self.participants = self.lists()
        self.left_out = {
            c for c, listed in self.participants.items() if c not in listed and not self.choices.pick(2, 0.98)
        }
        super().advertise_all()

    def lists(self) -> dict[int, Group]:
        """Return lists as for `secagg`, once in a round; later a client's neighbourhood."""
        if not self.participants:
            return super().lists()
        return {client: self.roles[client].graph.around(client) for client in self.adverts}

    def advertise(self, client: int, size: int) -> None:
        """Ask for keys as in `secagg`, only clients on their list."""
        if client not in self.left_out:
            super().advertise(client, size)

    def advertise_question(self, client: int, size: int) -> Any:
        """Return the list, k and t."""
        listed = sorted(self.participants.get(client) or range(size))
        chosen = self.parameters.neighbourhood(len(listed))
        return AnnounceGraph(self.number, listed, chosen.neighbours, chosen.threshold - self.told_less)

    def share_question(self, client: int, rows: list[AdvertOf]) -> Any:
        """Ask with these neighbours' keys."""
        about = frozenset(row.client for row in rows)
        return self.ask(client, ShareKeysAmongNeighbours(self.number), NeighbourKeys(rows), about)

    def mask_question(self, client: int, rows: list[SharesFor]) -> Any:
        """Ask with these neighbours' shares; the answer tells neighbours of the shared masks."""
        about = frozenset(row.client for row in rows)
        answer = self.ask(client, MaskInputAmongNeighbours(self.number), SealedFromPeers(rows), about)
        if answer is not None:
            self.words[client] = {row.client: row.tag for row in answer.masked_with}
        return answer

    @property
    def least(self) -> int:
        """Return the fewest survivors that `dropouts` allows."""
        survivors: int = self.parameters.neighbourhood(self.size(self.there[0])).survivors
        return survivors

    def could_survive(self, client: int) -> Group:
        """Return all participants: the signed set is that of the whole round."""
        return self.participants.get(client, frozenset()) | {client}

    def unmask_question(self, client: int, kind: Any) -> Any:
        """Ask with the neighbours' signatures and confirmations."""
        self.knowledge.asked_last.setdefault(self.number, set()).add(client)
        rows = self.signatures(client)
        private = NeighbourSignatures(rows, self.words_to(client))
        return self.ask(client, UnmaskNeighbours(self.number), private, frozenset(row.client for row in rows))

    def words_to(self, client: int) -> list[MaskedWith]:
        """Return each neighbour's confirmation of its mask with this client; accomplices always confirm."""
        role, words = self.roles[client], []
        for peer in sorted(role.received):
            if peer in self.accomplices:
                nonce, associated = role.tag_content(peer, client)
                key = self.key(peer, "sealing").agree(self.adverts[client].sealing_key, SEALING_PURPOSE)
                words.append(MaskedWith(peer, sealing.seal(key, nonce, b"", associated)))
            elif client in self.words.get(peer, {}):
                words.append(MaskedWith(peer, self.words[peer][client]))
        return words
