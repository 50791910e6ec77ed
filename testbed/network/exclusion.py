"""A network on which some clients are not asked: those that a protocol has found to misbehave, beyond doubt."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from testbed.arrays import Ids
from testbed.messages import Message
from testbed.network.contract import Network, Replies

EXCLUDED = "excluded_clients"
"""Where their numbers are, sorted, in what is kept from round to round (`AggregationRound.memory`)."""


class ExcludingNetwork:
    """To those who choose participants, the clients left out are as good as offline.

    Args:
        network: where the others are asked.
        clients: who is not.
    """

    def __init__(self, network: Network, clients: Ids) -> None:
        self._network = network
        self._clients = clients

    async def ask(
        self,
        recipients: Ids,
        message: Message,
        *,
        private: Mapping[int, Message] | None = None,
        deadline_s: float | None = None,
        quorum: int | None = None,
    ) -> Replies:
        """See `Network.ask`."""
        asked = np.setdiff1d(recipients, self._clients)
        if private is not None:
            private = {client: private[client] for client in asked.tolist()}
        return await self._network.ask(asked, message, private=private, deadline_s=deadline_s, quorum=quorum)

    def record_event(self, party: str, kind: str, detail: str) -> None:
        """See `Network.record_event`."""
        self._network.record_event(party, kind, detail)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)
