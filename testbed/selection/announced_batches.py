"""Batches that the server announces in each round, and clients that pin theirs.

Multi-round privacy T (So et al., arXiv 2106.03328) holds for one partition of the clients. A server that moves to
another partition mixes two families of sets, and differences of their sums cover fewer than T clients. Most clients of
batch partition know the partition before the first round: it follows from the client numbers and T, or stands on a
bulletin board (`selection.membership: known`). If they do not, the server announces the batches of each round's
participants:

- `announced`: participants believe the server. Nothing stops a second partition.
- `pinned`: a client keeps the members of the batch of its first round, and refuses every other batch. All participants
  sign the list, and each verifies all signatures, so that they refuse in the same round.

A client pins its batch only after it has seen the signatures of all members. Honest members of one batch have therefore
pinned the same clients. See docs/explanation/pinned-batches.md.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from testbed.arrays import Ids
from testbed.batches import Batches
from testbed.crypto import memo
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, Refusal, RoundAborted
from testbed.messages import ClientId, Count, Message, RoundNumber, Signature64, signed_content
from testbed.network.contract import ids
from testbed.network.hosts import ClientRefusal
from testbed.parties.client import Client, Role, StageTable, Transition, handles
from testbed.selection.contract import SelectionRound
from testbed.selection.lotto.server import refusals_by_check

LIST_DOMAIN = b"testbed/batch-partition/batch-list/v1"
LIST_STAGE, SIGNATURES_STAGE = "batches/list", "batches/signatures"
_MOST_PARTICIPANTS = 100_000


class BatchListReceipt(Message, frozen=True):
    """The client accepts the list; with its signature if batches are pinned."""

    signature: Signature64 | None = None


class BatchList(Message, frozen=True):
    """The participants of a round, with the number of each participant's batch."""

    stage: ClassVar[str] = LIST_STAGE
    Answer: ClassVar[type[Message] | None] = BatchListReceipt

    round: RoundNumber
    clients: Annotated[list[ClientId], msgspec.Meta(max_length=_MOST_PARTICIPANTS)]
    batches: Annotated[list[Count], msgspec.Meta(max_length=_MOST_PARTICIPANTS)]


class BatchesPinned(Message, frozen=True):
    """The client has verified all signatures, pinned its batch, and takes part."""


class BatchListSignatures(Message, frozen=True):
    """The participants' signatures on the list, in the order of the list."""

    stage: ClassVar[str] = SIGNATURES_STAGE
    Answer: ClassVar[type[Message] | None] = BatchesPinned

    round: RoundNumber
    signatures: Annotated[list[Signature64], msgspec.Meta(max_length=_MOST_PARTICIPANTS)]


def list_content(experiment_id: bytes, message: BatchList) -> bytes:
    """Return the signed bytes of a list.

    Args:
        experiment_id: 16 bytes.
        message: the list.
    """
    return signed_content(experiment_id, message.round, message.clients, message.batches)


def batches_of_list(message: BatchList, population: int) -> Batches:
    """Return the listed batches as a partition of all clients; clients outside the list form one more batch.

    Args:
        message: the list, with clients below `population`.
        population: number of clients n.
    """
    _, numbers = np.unique(np.array(message.batches, np.int64), return_inverse=True)
    of = np.full(population, numbers.max(initial=-1) + 1, np.int64)
    of[message.clients] = numbers
    return Batches(of)


_TABLE = StageTable(
    start="new",
    rows={
        BatchList: Transition(
            # A second list in one round could name another batch.
            sources={"new"},
            target="listed",
            refusal="batches.second-list",
            detail="a list for round {round} was shown before",
            starts_round=True,
        ),
        BatchListSignatures: Transition(
            sources={"listed"},
            target="agreed",
            refusal="batches.no-list",
            detail="signatures for a list that this client has not accepted",
        ),
    },
)


class BatchMember(Role):
    """A participant that is told the batches of its round.

    Attributes:
        message: the accepted list.
        mates: members of its batch, itself included.
    """

    message: BatchList
    mates: frozenset[int]

    def __init__(self, client: Client, parameters: Any) -> None:
        super().__init__(client, parameters)
        self.progress = _TABLE.progress()

    @handles(BatchList)
    def on_list(self, message: BatchList) -> BatchListReceipt:
        """Check the list; sign it if batches are pinned, otherwise believe it."""
        with self.progress.answering(message, message.round):
            self.mates = self.own_batch(message)
            self.message = message
            if self.environment.pinned_batches is None:
                self.use_list()
                return BatchListReceipt()
            self.check_round(message.round)
            self.check_pinned()
            self.client.last_round = message.round
            assert self.client.identity is not None
            meter("ed25519.sign")
            content = list_content(self.environment.experiment_id, message)
            return BatchListReceipt(self.client.identity.signing.sign(LIST_DOMAIN, content))

    def own_batch(self, message: BatchList) -> frozenset[int]:
        """Return the members of this client's batch in the list; refuses a list that no honest server sends."""
        if len(set(message.clients)) != len(message.clients) or len(message.clients) != len(message.batches):
            raise Refusal("batches.malformed-list", "a client is listed twice, or without a batch")
        if max(message.clients, default=0) >= self.environment.population:
            raise Refusal("batches.malformed-list", f"client {max(message.clients)} is not in the population")
        members: dict[int, set[int]] = {}
        for client, batch in zip(message.clients, message.batches, strict=True):
            members.setdefault(batch, set()).add(client)
        own = next((mates for mates in members.values() if self.client.number in mates), None)
        if own is None:
            raise Refusal("batches.not-in-list", "sent a list that this client is not in")
        smallest = min(map(len, members.values()))
        if smallest < self.parameters.privacy:
            raise Refusal("batches.too-small", f"a batch of {smallest}; at least T = {self.parameters.privacy}")
        return frozenset(own)

    def check_round(self, number: int) -> None:
        """Refuse a round that was used before, or that the experiment does not have."""
        last, rounds = self.client.last_round, self.environment.rounds
        if number <= last or number > rounds:
            raise Refusal("batches.round-reused", f"round {number}; used up to {last}, of {rounds}")

    def check_pinned(self) -> None:
        """Refuse another batch than the pinned one."""
        assert self.environment.pinned_batches is not None
        pinned = self.environment.pinned_batches.of(self.client.number)
        if pinned is not None and pinned != self.mates:
            new, gone = len(self.mates - pinned), len(pinned - self.mates)
            raise Refusal("batches.changed-batch", f"{new} clients are new in this client's batch, {gone} are missing")

    def use_list(self) -> None:
        """Take the listed batches for the aggregation of this round."""
        message, population = self.message, self.environment.population
        content = list_content(self.environment.experiment_id, message)
        # One object for all participants of a host: it has a number for each client of the population.
        self.client.round_batches = memo.cached_latest(
            "batches of a list", content, lambda: batches_of_list(message, population)
        )

    @handles(BatchListSignatures)
    def on_signatures(self, message: BatchListSignatures) -> BatchesPinned:
        """Verify that all participants have signed this list, then pin the batch."""
        with self.progress.answering(message, message.round):
            clients = self.message.clients
            if len(message.signatures) != len(clients):
                detail = f"{len(message.signatures)} of {len(clients)} signatures"
                raise Refusal("batches.too-few-signatures", detail)
            directory = self.environment.look_up(clients)
            keys = {client: directory.signing_key(client) for client in clients}
            content = list_content(self.environment.experiment_id, self.message)
            meter("ed25519.verify", len(clients))
            for client, signature in zip(clients, message.signatures, strict=True):
                try:
                    memo.verify(keys[client], LIST_DOMAIN, content, signature)
                except ProtocolError:
                    detail = f"client {client} has not signed this list"
                    raise Refusal("batches.inconsistent-lists", detail) from None
            self.pin()
            self.client.agreed_participants = keys
            self.use_list()
            return BatchesPinned()

    def pin(self) -> None:
        """Keep the members of this batch; no effect if they are pinned."""
        assert self.environment.pinned_batches is not None
        self.environment.pinned_batches.pin(self.client.number, self.mates)


# -- server ------------------------------------------------------------------------------------------------------------


async def announce_batches(participants: Ids, batches: Batches, round_: SelectionRound, pinned: bool) -> Ids:
    """Tell the participants their batches, and have them agree on the list if batches are pinned.

    Args:
        participants: sorted clients, whole batches.
        batches: the server's partition.
        round_: the round.
        pinned: whether clients pin their batches.

    Returns:
        The participants that have accepted the list, sorted.

    Raises:
        RoundAborted: no participant accepts the list; or, with pinned batches, a single one does not.
    """
    clients = participants.tolist()
    message = BatchList(round_.number, clients, batches.of[participants].tolist())
    meter("message", len(clients))
    replies = await round_.network.ask(participants, message)
    receipts = replies.valid()
    if not pinned:
        _require(1, len(receipts), "receipts", replies.missing.refusals)
        return ids(sorted(receipts))
    content = list_content(round_.experiment_id, message)
    signatures = {client: receipt.signature for client, receipt in receipts.items() if receipt.signature is not None}
    meter("ed25519.verify", len(signatures))
    for client in list(signatures):
        try:
            memo.verify(round_.directory.signing_key(client), LIST_DOMAIN, content, signatures[client])
        except ProtocolError:
            round_.network.record_event(f"client:{client}", "misbehaviour", "signed something else than the batch list")
            del signatures[client]
    _require(len(clients), len(signatures), "signatures", replies.missing.refusals)
    meter("message", len(clients))
    question = BatchListSignatures(round_.number, [signatures[client] for client in clients])
    replies = await round_.network.ask(participants, question)
    agreed = replies.valid()
    _require(1, len(agreed), "agreements", replies.missing.refusals)
    return ids(sorted(agreed))


def _require(needed: int, count: int, noun: str, refusals: Sequence[ClientRefusal]) -> None:
    """Raise `RoundAborted` if there are too few answers."""
    if count >= needed:
        return
    if refusals:
        raise RoundAborted("refused", refusals_by_check(refusals, "participants"))
    raise RoundAborted(f"too-few-{noun}", f"{count} of {needed} needed")
