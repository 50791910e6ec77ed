"""The least protocol that a committee could serve: clients verify it, and send their updates in the clear."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from testbed.aggregation.contract import Aggregate, AggregationParameters, AggregationProtocol, AggregationRound
from testbed.committee.choice import chosen, verified
from testbed.committee.messages import CommitteeList
from testbed.committee.parameters import CommitteeSection
from testbed.committee.sortition import committee_roles, committee_stages
from testbed.errors import RoundAborted
from testbed.messages import Count, Message, RoundNumber, Vector
from testbed.parties.client import Role, RoleSpec, handles
from testbed.training import trained_update


class CommitteeSumsParameters(AggregationParameters):
    """With a committee."""

    protocol: Literal["committee-sums"] = "committee-sums"
    committee: CommitteeSection = Field(default_factory=CommitteeSection)

    @property
    def needs_sample_counts(self) -> bool:
        return self.committee.weights == "samples"


class Update(Message, frozen=True):
    weight: Count
    delta: Vector


class Told(Message, frozen=True):
    """A list within a message, as a certificate holds it."""

    committee: CommitteeList


class SendUpdate(Message, frozen=True):
    stage: ClassVar[str] = "committee-sums/update"
    Answer: ClassVar[type[Message] | None] = Update

    round: RoundNumber
    told: Told


class CommitteeSumsClient(Role):
    """Client side."""

    parameters: CommitteeSumsParameters

    @handles(SendUpdate)
    def on_send_update(self, message: SendUpdate) -> Update:
        verified(self.parameters.committee, message.told.committee, message.round, self.environment)
        update = trained_update(self, message.round)
        return Update(update.samples, Vector(update.delta, 0))


class CommitteeSums(AggregationProtocol):
    """Server side.

    Attributes:
        committees: those of the rounds so far.
    """

    Parameters = CommitteeSumsParameters
    parameters: CommitteeSumsParameters
    needs_registration = True

    def __init__(self, parameters: CommitteeSumsParameters) -> None:
        super().__init__(parameters)
        self.stages = (*committee_stages(parameters.committee), SendUpdate.stage)
        self.committees: list[CommitteeList] = []

    @property
    def roles(self) -> list[RoleSpec]:
        return [RoleSpec(CommitteeSumsClient, self.parameters), *committee_roles(self.parameters.committee)]

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        assert round_.experiment_id is not None
        known = round_.number, round_.network, round_.directory, round_.experiment_id
        committee = await chosen(self.parameters.committee, *known, round_.memory)
        self.committees.append(committee)
        replies = await round_.network.ask(round_.trained, SendUpdate(round_.number, Told(committee)))
        weights = {client: answer.weight for client, answer in replies.valid().items()}
        if not weights:
            raise RoundAborted("refused", ", ".join(sorted({one.check for one in replies.missing.refusals})))
        total = await replies.total(replies.ids, np.array(list(weights.values()), np.int64))
        weight = float(sum(weights.values()))
        return Aggregate(total / weight, weight, replies.ids)
