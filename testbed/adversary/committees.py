"""A malicious server, and dishonest clients, where a committee serves an aggregation (`testbed.committee`).

The server chooses among the clients drawn for the committee and announces the members. In every protocol both steps go
through the network, so the misbehaviours override the server's questions.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
from pydantic import Field

from testbed.adversary.misbehaviour import AggregationMisbehaviour, ClientMisbehaviour, MisbehaviourOptions
from testbed.aggregation.contract import Aggregate, AggregationProtocol, AggregationRound
from testbed.arrays import Ids
from testbed.committee.messages import CommitteeList, CommitteeMember, MembershipClaim, Sortition
from testbed.committee.parameters import CommitteeSection
from testbed.committee.sortition import SortitionRole, is_drawn, sortition_input
from testbed.crypto import prf
from testbed.crypto.vrf import PROOF_BYTES
from testbed.emulation.compute.cost import meter
from testbed.messages import Message
from testbed.network import Network, Replies
from testbed.network.contract import Ask, ids
from testbed.parties.client import Role, handles

WITH_COMMITTEES = ("flamingo", "one-shot")


class _Between(Network):
    """A network that passes questions to the malicious server."""

    def __init__(self, network: Network, server: "_CommitteeMisbehaviour") -> None:
        self._network, self._server = network, server

    async def _ask(self, question: Ask) -> Replies:
        return await self._server.ask_otherwise(self._network, question)

    async def consult_beacon(self, bytes_up: int, bytes_down: int, round_trip_s: float) -> None:
        await self._network.consult_beacon(bytes_up, bytes_down, round_trip_s)

    def record_event(self, party: str, kind: str, detail: str, stage: str | None = None) -> None:
        self._network.record_event(party, kind, detail, stage)


class _CommitteeMisbehaviour(AggregationMisbehaviour, AggregationProtocol):
    """Base class for protocols that have a `committee` in their parameters.

    Attributes:
        round_: the current round, if it is attacked.
    """

    round_: AggregationRound

    @property
    def section(self) -> CommitteeSection:
        """Parameters of the committee."""
        section: CommitteeSection = self.parameters.committee
        return section

    async def ask_otherwise(self, network: Network, question: Ask) -> Replies:
        """Ask a question of the protocol in an attacked round.

        Args:
            network: the real network.
            question: the honest question.
        """
        raise NotImplementedError

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Put the malicious server between the protocol and the network."""
        if self.attacking:
            self.round_ = round_
            round_.network = _Between(round_.network, self)
        return await super().aggregate(round_)


# -- choice of members -------------------------------------------------------------------------------------------------


class KeepDishonestMembers(_CommitteeMisbehaviour):
    """Chooses all of its own drawn clients, and honest clients only for the remaining places.

    The server asks all clients, and then asks only the chosen clients again. If the members are public, it has no
    choice.
    """

    name: ClassVar[str] = "keep-dishonest-members"
    applies_to: ClassVar[tuple[str, ...]] = WITH_COMMITTEES

    async def ask_otherwise(self, network: Network, question: Ask) -> Replies:
        """Ask all clients for the sortition, then ask only the chosen clients again."""
        replies = await network._ask(question)
        if not isinstance(question.message, Sortition):
            return replies
        by_proof = self.section.selection == "lotto-client-centric"
        answers: dict[int, Any] = replies.valid(shared=not by_proof)
        # In the client-centric variant only a proof shows that a client is drawn.
        claimants = ids([client for client, claim in answers.items() if not by_proof or claim.proof is not None])
        return await network._ask(replace(question, recipients=self.taken(claimants)))

    def taken(self, claimants: Ids) -> Ids:
        """Return the clients to ask again.

        Args:
            claimants: numbers of the drawn clients.
        """
        ours = np.isin(claimants, sorted(self.dishonest))
        places = max(0, self.section.members_planned - int(ours.sum()))
        chosen, hidden = claimants[~ours][:places], claimants[~ours][places:]
        self.record_attack(
            KeepDishonestMembers,
            f"took all {int(ours.sum())} of its clients that are drawn, {len(chosen)} others, and hid {len(hidden)}",
        )
        return ids(np.concatenate([claimants[ours], chosen]))


# -- claims about the members ------------------------------------------------------------------------------------------


class ForgeOptions(MisbehaviourOptions):
    """Options of `forge-committee`."""

    how: Literal["undrawn-member", "member-twice", "other-service"] = Field(
        "undrawn-member",
        description="undrawn-member: a colluding client that is not drawn replaces the last member, with a forged "
        "proof where one is needed. member-twice: a member replaces another member. other-service: the server claims "
        "that the committee serves from the round after the present service on",
    )


class ForgeCommittee(_CommitteeMisbehaviour):
    """Claims another committee than the drawn one, to all clients and in every message that contains the committee."""

    name: ClassVar[str] = "forge-committee"
    applies_to: ClassVar[tuple[str, ...]] = WITH_COMMITTEES
    Options: ClassVar[type[MisbehaviourOptions]] = ForgeOptions

    async def ask_otherwise(self, network: Network, question: Ask) -> Replies:
        """Ask with a forged list in the message."""
        return await network._ask(replace(question, message=self._changed(question.message)))

    def _changed(self, message: Any) -> Any:
        """Return the message with each list among its fields, or their fields, replaced by the forged list."""
        if isinstance(message, CommitteeList):
            return self.forged(message)
        if not isinstance(message, Message):
            return message
        fields = {name: getattr(message, name) for name in message.__struct_fields__}
        changed = {name: self._changed(field) for name, field in fields.items()}
        different = {name: field for name, field in changed.items() if field is not fields[name]}
        return msgspec.structs.replace(message, **different) if different else message

    def forged(self, honest: CommitteeList) -> CommitteeList:
        """Return the forged list."""
        options: ForgeOptions = self.context.options_of(ForgeCommittee)
        first, members = honest.first_round, list(honest.members)
        if options.how == "other-service":
            first += self.section.serves_rounds or 1
        elif options.how == "member-twice":
            members[-1] = members[0]
        else:
            outside = [client for client in sorted(self.dishonest - set(honest.clients)) if not self._is_drawn(client)]
            # A drawn accomplice would be no forgery: the honest list stays.
            if not outside:
                return honest
            members[-1] = CommitteeMember(outside[0], bytes([1]) * PROOF_BYTES if members[-1].proof else b"")
        self.record_attack(ForgeCommittee, f"sent a list with {options.how.replace('-', ' ')}")
        return CommitteeList(first, members)

    def _is_drawn(self, client: int) -> bool:
        """Return whether a client is drawn, as far as the server can compute this itself."""
        if self.section.selection != "lotto-server-centric":
            return False
        assert self.round_.experiment_id is not None
        board, first = self.round_.directory, self.section.first_round_of(self.round_.number)
        number = prf.evaluate(board.vrf_key(client), sortition_input(self.round_.experiment_id, first))
        return is_drawn(self.section, board, client, number)


# -- dishonest clients -------------------------------------------------------------------------------------------------


class ClaimMembership(ClientMisbehaviour, SortitionRole):
    """Claims to be drawn for the committee when it is not, with the valid proof of its own number."""

    name: ClassVar[str] = "claim-membership"
    applies_to: ClassVar[tuple[str, ...]] = WITH_COMMITTEES
    extends: ClassVar[type[Role]] = SortitionRole

    @handles(Sortition)
    def on_sortition(self, message: Sortition) -> MembershipClaim:
        """Attach a proof in every attacked round."""
        answer = super().on_sortition(message)
        if not self.attacks(message.round) or answer.proof is not None:
            return answer
        if self.parameters.selection == "lotto-server-centric":  # the server computes the numbers itself
            return answer
        assert self.client.identity is not None
        assert self.client.identity.vrf is not None
        self.record_attack(ClaimMembership, "its own number, which is over the threshold")
        alpha = sortition_input(self.environment.experiment_id, self.parameters.first_round_of(message.round))
        meter("vrf.prove")
        return MembershipClaim(self.client.identity.vrf.prove(alpha)[1])


class WithholdMembership(ClientMisbehaviour, SortitionRole):
    """Does not report that it is drawn, so that another client serves."""

    name: ClassVar[str] = "withhold-membership"
    applies_to: ClassVar[tuple[str, ...]] = WITH_COMMITTEES
    extends: ClassVar[type[Role]] = SortitionRole

    @handles(Sortition)
    def on_sortition(self, message: Sortition) -> MembershipClaim | None:  # type: ignore[override]  # honest clients answer
        """Do not answer."""
        answer = super().on_sortition(message)
        if not self.attacks(message.round):
            return answer
        self.record_attack(WithholdMembership, "kept its number to itself")
        return None
