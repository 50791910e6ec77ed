"""Participation by coin tosses of the clients, which report the outcome at check-in.

Hasircioglu and Gunduz, Privacy Amplification via Random Participation in Federated Learning, arXiv 2205.01556,
Algorithm 1: a client samples B from Bern(p) and informs the server if B = 1. Here every available client answers with
B, because the server needs the number of available clients N_t to scale the sum.

A client refuses to train in a round for which its coin said no (`Trainer`), so a malicious server has a client in
exactly the rounds that the client's own coins allow.
"""

from typing import ClassVar

import numpy as np

from testbed.arrays import Ids
from testbed.errors import Refusal
from testbed.messages import Count, Message, RoundNumber
from testbed.parties.client import Role, handles
from testbed.privacy.gaussian import coins
from testbed.selection.check_in import STAGE
from testbed.selection.contract import SelectionRound


class Decision(Message, frozen=True):
    """The client is available; its coin decides whether it takes part."""

    takes_part: bool


class AskDecision(Message, frozen=True):
    """Question to all clients: are you available, and do you take part?

    Also tells the round and the size of the population.
    """

    stage: ClassVar[str] = STAGE
    Answer: ClassVar[type[Message] | None] = Decision
    as_participant: ClassVar[bool] = False

    round: RoundNumber
    population: Count


class DecidingClient(Role):
    """Client side: tosses one coin for each round number."""

    @handles(AskDecision)
    def on_ask_decision(self, message: AskDecision) -> Decision:
        """Answer with the outcome of the coin; refuse a round that is over or beyond the last."""
        client, environment = self.client, self.environment
        if message.round > environment.rounds:
            raise Refusal("check-in.after-last-round", f"round {message.round} of {environment.rounds}")
        # After a second toss, a server could ask until the coin says yes.
        if message.round <= client.last_round:
            raise Refusal("check-in.round-reused", f"the coin of round {message.round} was tossed before")
        client.takes_part = self.decides(message.round)
        # Before the answer leaves: a lost answer must not give a second toss.
        client.last_round = message.round
        return Decision(client.takes_part)

    def decides(self, number: int) -> bool:
        """Toss the coin of this round; called once for each round."""
        client, environment = self.client, self.environment
        if environment.client_rate is None:
            raise Refusal("check-in.no-client-rate", "this run's selection draws no client independently")
        secret = environment.randomness.secret(client.number, number, "check-in/participation")
        return bool(coins(secret, 1, environment.client_rate)[0])


async def ask_decisions(round_: SelectionRound) -> tuple[Ids, Ids]:
    """Ask all clients for their decisions.

    Returns:
        The available clients and the clients that take part, both sorted.
    """
    replies = await round_.network.ask(round_.everyone, AskDecision(round_.number, round_.population))
    answers = replies.valid()
    there = np.sort(np.fromiter(answers, np.int64, len(answers)))
    return there, there[np.array([answers[client].takes_part for client in there.tolist()], np.bool_)]
