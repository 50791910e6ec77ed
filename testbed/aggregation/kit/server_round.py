"""The state of one round at the server."""

from dataclasses import dataclass

from testbed.aggregation.contract import AggregationRound


@dataclass
class ServerRound:
    """The part of a round's state that does not depend on the protocol.

    Attributes:
        start: how the aggregation began.
    """

    start: AggregationRound

    def misbehaved(self, client: int, detail: str) -> None:
        """Record that a client has not followed the protocol."""
        record_misbehaviour(self.start, client, detail)


def record_misbehaviour(round_: AggregationRound, client: int, detail: str) -> None:
    """Record that a client has not followed the protocol."""
    round_.network.record_event(f"client:{client}", "misbehaviour", detail)
