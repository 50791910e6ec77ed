"""What the server asks clients who may serve on a committee, and what it says of one to all others, who verify it."""

from typing import Annotated, ClassVar

import msgspec

from testbed.committee.parameters import MOST_MEMBERS
from testbed.messages import ClientId, Key32, Message, RoundNumber

STAGE = "committee/sortition"


class MembershipClaim(Message, frozen=True):
    """I am here and would serve; with the VRF's proof that I am drawn, where nobody else can know."""

    proof: Annotated[bytes, msgspec.Meta(min_length=80, max_length=80)] | None = None


class Sortition(Message, frozen=True):
    """Who of you may serve on the committee of this round? With which round its service begins, everybody knows."""

    stage: ClassVar[str] = STAGE
    Answer: ClassVar[type[Message] | None] = MembershipClaim
    as_participant: ClassVar[bool] = False

    round: RoundNumber


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


class KeptList(Message, frozen=True):
    """A committee as the server keeps it for its service, and a digest of the keys by which it was drawn."""

    committee: CommitteeList
    drawn_by: Key32
