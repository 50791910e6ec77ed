"""The batch that each client keeps from its first round on.

A client must remember its batch even if its host dies or the run is resumed: otherwise a server could give it another
one afterwards. The batch is written to the clients' memory (`testbed.parties.participation.ParticipationLog`) before
the client's answer leaves the host.
"""

from dataclasses import dataclass

from testbed.parties.participation import ParticipationLog


@dataclass(frozen=True)
class PinnedBatches:
    """The pinned batches of a host's clients.

    Attributes:
        log: the clients' memory.
    """

    log: ParticipationLog

    def of(self, client: int) -> frozenset[int] | None:
        """Return the members of the client's batch, itself included; None: none is pinned yet."""
        return self.log.batch(client)

    def pin(self, client: int, members: frozenset[int]) -> None:
        """Pin a batch; no effect if one is pinned.

        Args:
            client: the client.
            members: the members of its batch, itself included.
        """
        if self.log.batch(client) is None:
            self.log.pins(client, members)
