"""What the server says of a committee, whose members all others can verify."""

from typing import Annotated

import msgspec

from testbed.committee.parameters import MOST_MEMBERS
from testbed.messages import ClientId, Message, RoundNumber


class CommitteeMember(Message, frozen=True):
    """One member, and the proof that it is one; empty where everybody knows that without."""

    client: ClientId
    proof: Annotated[bytes, msgspec.Meta(max_length=200)] = b""


class CommitteeList(Message, frozen=True):
    """The committee that serves from a round on, in the order in which its members are counted."""

    first_round: RoundNumber
    members: Annotated[list[CommitteeMember], msgspec.Meta(max_length=MOST_MEMBERS)]

    @property
    def clients(self) -> tuple[int, ...]:
        """The members' numbers."""
        return tuple(member.client for member in self.members)
