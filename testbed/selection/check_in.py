"""Check-in: the server asks everybody who is there. Protocols that need to know it pay for it."""

from typing import ClassVar

from testbed.arrays import Ids
from testbed.messages import Count, Message, RoundNumber
from testbed.network.contract import Replies
from testbed.parties.client import Environment, Role, handles
from testbed.selection.contract import SelectionRound

STAGE = "check-in"


class CheckInReply(Message, frozen=True):
    """I am here."""


class CheckIn(Message, frozen=True):
    """Who is there? Carries the round and the population's size, once per client."""

    stage: ClassVar[str] = STAGE
    Answer: ClassVar[type[Message] | None] = CheckInReply
    as_participant: ClassVar[bool] = False

    round: RoundNumber
    population: Count


class CheckInRole(Role):
    """Client side: answers that it is there."""

    @staticmethod
    @handles(CheckIn, stateless=True)
    def on_check_in(environment: Environment, message: CheckIn) -> CheckInReply:
        """Everybody who hears the question gives the same answer."""
        return CheckInReply()


async def check_in_replies(round_: SelectionRound, pool: Ids | None = None) -> Replies:
    """Ask the clients of `pool` (default: all), and return the answers of those that are available in this round."""
    asked = round_.everyone if pool is None else pool
    return await round_.network.ask(asked, CheckIn(round_.number, len(asked)))


async def check_in(round_: SelectionRound, pool: Ids | None = None) -> Ids:
    """Return the clients of `pool` (default: all) that are available in this round, sorted."""
    return (await check_in_replies(round_, pool)).ids
