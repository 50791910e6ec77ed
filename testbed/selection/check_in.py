"""Check-in: the server asks all clients whether they are available.

Protocols that need the answer pay for its traffic.
"""

from typing import ClassVar

from testbed.arrays import Ids
from testbed.messages import Count, Message, RoundNumber
from testbed.network.contract import Replies
from testbed.parties.client import Environment, Role, handles
from testbed.selection.contract import SelectionRound

STAGE = "check-in"


class CheckInReply(Message, frozen=True):
    """The client is available."""


class CheckIn(Message, frozen=True):
    """Question to all clients: are you available? Also tells each client the round and the size of the population."""

    stage: ClassVar[str] = STAGE
    Answer: ClassVar[type[Message] | None] = CheckInReply
    as_participant: ClassVar[bool] = False

    round: RoundNumber
    population: Count


class CheckInRole(Role):
    """Client side of the check-in."""

    @staticmethod
    # Stateless, so the network can answer for all clients at once.
    @handles(CheckIn, stateless=True)
    def on_check_in(environment: Environment, message: CheckIn) -> CheckInReply:
        """Answer that the client is available; all clients give the same answer."""
        return CheckInReply()


async def check_in_replies(round_: SelectionRound, pool: Ids | None = None) -> Replies:
    """Ask clients whether they are available.

    Args:
        round_: the round that begins.
        pool: `(m,)` clients to ask; default: the whole population.

    Returns:
        The answers of the available clients.
    """
    recipients = round_.everyone if pool is None else pool
    return await round_.network.ask(recipients, CheckIn(round_.number, len(recipients)))


async def check_in(round_: SelectionRound, pool: Ids | None = None) -> Ids:
    """Return the available clients.

    Args:
        round_: the round that begins.
        pool: `(m,)` clients to ask; default: the whole population.

    Returns:
        `(k,)` sorted client numbers.
    """
    return (await check_in_replies(round_, pool)).ids
