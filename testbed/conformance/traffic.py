"""Traffic of a run: the encoded bytes of each message, and questions that are asked again."""

import re
from dataclasses import replace
from typing import Any

import numpy as np

from testbed.conformance.federations import RoundFacts, Trial
from testbed.conformance.results import Violation
from testbed.messages import attach, encode
from testbed.network.exchanges import ANSWERED
from testbed.network.hosts import Delivery, HostAnswers

REFUSAL_NAME = re.compile(r"[a-z][a-z0-9-]*\.[a-z][a-z0-9-]*")


class Traffic:
    """Messages between the server and the clients of a run.

    Args:
        trial: the run; messages of its hosts are observed from now on.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self._hosts: Any = trial.hosts
        self._deliver = self._hosts.deliver
        # Between the network and the hosts, where each message exists as it is recorded.
        self._hosts.deliver = self._listen
        self._of_round: list[Delivery] = []
        self._sizes: dict[tuple[int, int], tuple[dict[int, int], dict[int, int]]] = {}
        self.messages = 0
        self.mismatch = ""
        """The first message with another size than recorded; empty if there is none."""
        self.questions: list[Delivery] = []
        """Questions of the last completed round."""

    async def next_round(self) -> RoundFacts:
        """Run one round, and compare its recorded bytes with the messages."""
        self._of_round = []
        facts = await self.trial.next_round()
        if facts.outcome.state == "completed":
            self.questions = self._of_round
        self._compare(facts.number)
        return facts

    async def _listen(self, delivery: Delivery) -> HostAnswers:
        answers: HostAnswers = await self._deliver(delivery)
        self._of_round.append(delivery)
        question = len(encode(attach(delivery.kind, delivery.header, delivery.vectors)))
        private = delivery.private or {}
        down = {client: question + len(private.get(client, b"")) for client in delivery.recipients.tolist()}
        self._sizes[delivery.key] = down, await self._answer_sizes(delivery, answers)
        return answers

    async def _answer_sizes(self, delivery: Delivery, answers: HostAnswers) -> dict[int, int]:
        refused = {refusal.client for refusal in answers.refusals}
        sizes = {}
        for client, header in answers.headers.items():
            if client not in refused and delivery.kind.Answer is not None:
                vectors = await self._vectors(delivery, client)
                sizes[client] = len(encode(attach(delivery.kind.Answer, header, vectors)))
        if answers.shared is not None and answers.shared.header is not None:
            sizes |= dict.fromkeys(answers.shared.clients.tolist(), len(answers.shared.header))
        return sizes

    async def _vectors(self, delivery: Delivery, client: int) -> list[Any]:
        try:
            vectors = await self._hosts.vectors(delivery.key, np.array([client], np.int64))
        except KeyError:
            return []
        return list(vectors.values())

    def _compare(self, number: int) -> None:
        for position, exchange in enumerate(self.trial.network.exchanges):
            down, up = self._sizes.get((number, position), ({}, {}))
            columns = (exchange.clients, exchange.outcome, exchange.bytes_down, exchange.bytes_up)
            for client, outcome, bytes_down, bytes_up in zip(*(column.tolist() for column in columns), strict=True):
                # Other outcomes have no complete answer to compare with.
                if outcome != ANSWERED:
                    continue
                for sizes, recorded, message in ((down, bytes_down, "question"), (up, bytes_up, "answer")):
                    if client in sizes and sizes[client] != recorded:
                        self.mismatch = self.mismatch or (
                            f"round {number}, stage {exchange.stage}, client {client}: the {message} has "
                            f"{sizes[client]} bytes, but {recorded} are recorded; send all data in fields of a Message"
                        )
                    self.messages += client in sizes

    async def ask_again(self) -> list[tuple[str, int, str]]:
        """Ask the questions of the last completed round again in a new round.

        Returns:
            (stage, client, refusal) of each refusal.

        Raises:
            Violation: a client crashes.
        """
        number = self.trial.federation.state.round_number + 1
        await self._hosts.begin_round(number)
        refusals = []
        for position, delivery in enumerate(self.questions):
            answers = await self._deliver(replace(delivery, key=(number, position)))
            for crash in answers.crashes:
                raise Violation(
                    f"stage {delivery.kind.stage}: client {crash.client} crashes on a question of round {number - 1} "
                    f"in round {number} ({crash.error}, {crash.file}:{crash.line}); raise "
                    "testbed.Refusal(name, detail) instead"
                )
            refusals += [(delivery.kind.stage, refusal.client, refusal.check) for refusal in answers.refusals]
        return refusals


async def refusals_of_old_questions(traffic: Traffic) -> str:
    """Check the clients' reactions to old questions, and return the extent of the check; raises `Violation`."""
    refusals = await traffic.ask_again()
    for stage, client, name in refusals:
        if not REFUSAL_NAME.fullmatch(name):
            raise Violation(
                f"stage {stage}: client {client} refuses with the name {name!r}; name refusals protocol.check, e.g. "
                "mine.asked-twice"
            )
    names = sorted({name for _, _, name in refusals})
    return f"{len(traffic.questions)} questions asked again, refused by {', '.join(names) or 'no check'}"
