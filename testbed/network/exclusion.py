"""A network on which some clients are not asked: those that a protocol has found to misbehave, beyond doubt."""

from testbed.arrays import Ids
from testbed.network.contract import Ask, Network, Replies

EXCLUDED = "excluded_clients"
"""Where their numbers are, sorted, in what is kept from round to round (`AggregationRound.memory`)."""


class ExcludingNetwork(Network):
    """To those who choose participants, excluded clients look as if they were offline.

    Args:
        network: where the others are asked.
        clients: who is excluded.
    """

    def __init__(self, network: Network, clients: Ids) -> None:
        self._network = network
        self._clients = clients

    async def _ask(self, asked: Ask) -> Replies:
        return await self._network._ask(asked.without(self._clients))

    async def consult_beacon(self, bytes_up: int, bytes_down: int, round_trip_s: float) -> None:
        """See `Network.consult_beacon`."""
        await self._network.consult_beacon(bytes_up, bytes_down, round_trip_s)

    def record_event(self, party: str, kind: str, detail: str) -> None:
        """See `Network.record_event`."""
        self._network.record_event(party, kind, detail)
