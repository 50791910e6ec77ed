"""Clients that serve the others in a round, of which they need be no participant: committees, a second aggregator.

Such a client knows of the round only what the server says. It checks that no honest server would say otherwise, and
that it has not served in this round before: the difference of two sums is an update.
"""

from typing import Any, ClassVar

from testbed.aggregation.kit.message_parts import ToldOfParticipants
from testbed.aggregation.kit.participant import Participant
from testbed.errors import Refusal


class ServingClient(Participant):
    """A client that serves in one round.

    Attributes:
        PROTOCOL: the first part of its refusals' names.
        UNBOUND: what it says where the clients' answers are not bound to what they were asked to train.
    """

    PROTOCOL: ClassVar[str]
    UNBOUND: ClassVar[str]
    parameters: Any  # what `BindsModel` says, at least

    def check_not_served(self, round_number: int) -> None:
        """Refuse a round in which it has served before, or that the experiment does not have."""
        last = self.client.last_served
        if round_number <= last or round_number > self.environment.rounds:
            detail = f"round {round_number}; served up to {last}, of {self.environment.rounds}"
            raise Refusal(f"{self.PROTOCOL}.served-before", detail)

    def serve(self, round_number: int) -> None:
        """Serve in this round, and in no earlier one again."""
        self.round = self.client.last_served = round_number

    def check_told(self, message: ToldOfParticipants) -> None:
        """Refuse what no honest server can have told the participants."""
        participants, environment = message.participants, self.environment
        fewest, most = max(2, environment.minimum_participants), environment.maximum_participants
        if not fewest <= participants <= most:
            detail = f"{participants} announced, never fewer than {fewest} or over {most}"
            raise Refusal(f"{self.PROTOCOL}.wrong-size", detail)
        if len(message.training) != (0 if self.parameters.model_binding == "none" else 32):
            raise Refusal(f"{self.PROTOCOL}.unbound", self.UNBOUND)
        if len(set(message.agreed)) != (participants if environment.participants_are_agreed else 0):
            detail = "not a list of all participants, on which they have agreed"
            raise Refusal(f"{self.PROTOCOL}.other-participants", detail)
