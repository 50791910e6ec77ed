"""Clients that serve the others in a round, also without taking part: committees, a second aggregator.

Such a client knows of the round only the facts that the server tells it. It checks that an honest server could have
said them, and that it has not served in this round before: the difference of two sums is an update.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from testbed.aggregation.batch_policy import BatchPolicy
from testbed.aggregation.kit.message_parts import RoundNotice
from testbed.aggregation.kit.participant import Participant
from testbed.errors import Refusal
from testbed.parties.client import Client


class ServingClient(Participant):
    """A client that serves in one round.

    Attributes:
        PROTOCOL: the first part of its refusal codes.
        UNBOUND: message of the refusal if the clients' answers are not bound to the training task.
        batches: rule for clients that may be summed together.
    """

    PROTOCOL: ClassVar[str]
    UNBOUND: ClassVar[str]
    parameters: Any  # has at least the interface `BindsModel`

    def __init__(self, client: Client, parameters: Any) -> None:
        super().__init__(client, parameters)
        self.batches: BatchPolicy = parameters.batch_policy(client.batches)

    def check_not_served(self, round_number: int) -> None:
        """Refuse a round in which it has served before, or that the experiment does not have."""
        last = self.client.last_served
        # The difference of two sums of one round is an update.
        if round_number <= last or round_number > self.environment.rounds:
            detail = f"round {round_number}; served up to {last}, of {self.environment.rounds}"
            raise Refusal(f"{self.PROTOCOL}.round-reused", detail)

    def serve(self, round_number: int) -> None:
        """Begin to serve in this round, and in no earlier round again."""
        self.round = self.client.last_served = round_number

    def check_notice(self, message: RoundNotice) -> None:
        """Refuse facts that no honest server can have told the participants."""
        participants, environment = message.participants, self.environment
        fewest, most = max(2, environment.minimum_participants), environment.maximum_participants
        if not fewest <= participants <= most:
            detail = f"{participants} participants announced; allowed {fewest} to {most}"
            raise Refusal(f"{self.PROTOCOL}.wrong-size", detail)
        # An empty digest would let the server sum clients with different models.
        if len(message.training) != (0 if self.parameters.model_binding == "none" else 32):
            raise Refusal(f"{self.PROTOCOL}.model-not-bound", self.UNBOUND)
        if len(set(message.agreed)) != (participants if environment.participants_are_agreed else 0):
            detail = f"{len(set(message.agreed))} clients are on the agreed list, of {participants} participants"
            raise Refusal(f"{self.PROTOCOL}.participants-mismatch", detail)

    def check_survivors(self, named: Sequence[int], notice: RoundNotice) -> None:
        """Refuse survivors that no honest server names: a client twice, a client that is no participant, too few.

        Args:
            named: the clients in the sum.
            notice: the question, which repeats the facts that participants were told.
        """
        survivors, fewest = set(named), self.parameters.fewest(notice.participants)
        if len(survivors) != len(named):
            raise Refusal(f"{self.PROTOCOL}.unknown-survivor", "a survivor is listed twice")
        if notice.agreed and not survivors <= set(notice.agreed):
            raise Refusal(f"{self.PROTOCOL}.unknown-survivor", "a survivor is not on the agreed list")
        # A small sum hides little: the server's accomplices can subtract their updates.
        if not fewest <= len(survivors) <= notice.participants:
            detail = f"{len(survivors)} survivors of {notice.participants} participants; at least {fewest}"
            raise Refusal(f"{self.PROTOCOL}.below-threshold", detail)
        self.batches.check_survivors(list(named))
