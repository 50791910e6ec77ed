"""Messages about committees: the question to clients that may serve, and the list that all other clients verify."""

from typing import Annotated, ClassVar

import msgspec

from testbed.committee.parameters import MOST_MEMBERS
from testbed.messages import ClientId, Key32, Message, RoundNumber

STAGE = "committee/sortition"


class MembershipClaim(Message, frozen=True):
    """Claim that a client is online and would serve, with the VRF's proof that it is drawn if only it can know."""

    proof: Annotated[bytes, msgspec.Meta(min_length=80, max_length=80)] | None = None


class Sortition(Message, frozen=True):
    """Question to clients: may you serve on the committee of this round? The first round of its service is public."""

    stage: ClassVar[str] = STAGE
    Answer: ClassVar[type[Message] | None] = MembershipClaim
    as_participant: ClassVar[bool] = False

    round: RoundNumber


class CommitteeMember(Message, frozen=True):
    """A member, with the proof of its membership; empty if every party can derive the membership."""

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
    """A committee that the server stores for its service, with a digest of the keys by which it was drawn."""

    committee: CommitteeList
    drawn_by: Key32
