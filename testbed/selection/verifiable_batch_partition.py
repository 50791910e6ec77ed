"""Verifiable batch partition: whole batches that the server cannot choose. Combines two papers; not published.

From Multi-RoundSecAgg (So, Ali, Guler, Jiao, Avestimehr, AAAI 2023, arXiv 2106.03328, section 4): the clients are split
into batches of T once, and a round takes K/T whole batches, so that any sum over rounds is a sum over groups of at
least T equally weighted clients. From Lotto (Jiang, Ye, Chen, et al., USENIX Security 2024, arXiv 2401.02880, section
3.4): candidates follow from numbers that no party can choose, and all participants verify the candidates.

The assignment of clients to batches is public. In each round every available client evaluates its verifiable random
function and sends beta without a proof. A batch is a candidate if all of its members have answered and

    H(beta_1 || ... || beta_T) < a K m / n,    m = 2**512,

compared in integers. Then the server asks the members of candidate batches for proofs and draws K/T of the proven
candidates. Every participant verifies every batch, and all sign the list, as in Lotto. The guarantees are derived in
docs/explanation/verifiable-batch-bounds.md and computed in `analysis.bounds.verifiable_batch_partition`.
"""

from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256, sha512
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from testbed.arrays import Ids
from testbed.batches import Batches
from testbed.crypto.sortition import under_threshold
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.messages import Message, RoundNumber
from testbed.network.contract import ids
from testbed.network.hosts import ClientRefusal
from testbed.parties.client import RoleSpec, StageTable, Transition, handles
from testbed.selection.batch_partition import BatchSelection, check_batch_size
from testbed.selection.contract import Selection, SelectionRound
from testbed.selection.lotto.client import STAGES
from testbed.selection.lotto.messages import Announce, Candidacy, ParticipantList, verify_claim
from testbed.selection.lotto.parameters import AnnouncedParameters
from testbed.selection.lotto.server import ask_groups
from testbed.selection.lotto.variants import AnnouncedClient, AnnouncingServer
from testbed.selection.supply import Supply

VALUE_DOMAIN = b"testbed/verifiable-batch-partition/value/v1"
ASSIGNMENT_DOMAIN = b"testbed/verifiable-batch-partition/assignment/v1"


class VerifiableBatchPartitionParameters(AnnouncedParameters):
    """K/T whole batches of T clients each; every participant verifies every batch."""

    stages: ClassVar[tuple[str, ...]] = ("lotto/announce", "lotto/prove", "lotto/participants", "lotto/signatures")

    needs_rounds: ClassVar[str] = "whole batches are drawn, and verified, together"
    protocol: Literal["verifiable-batch-partition"] = "verifiable-batch-partition"
    privacy: int = Field(5, gt=0, description="Batch size T: the multi-round privacy guarantee")
    beacon: str | None = Field(
        "",
        max_length=200,
        description="Public randomness, drawn after registration has closed, that assigns clients to batches (any "
        "text; the default is known in advance, so clients must not choose their numbers); null: consecutive client "
        "numbers, for experiments that place dishonest clients by hand",
    )

    def supply(self, population: int, online: float) -> Supply | None:
        """Return the need for K/T batches: a batch is drawn with probability a K/n and complete with the rest."""
        share_of_batches = min(1.0, self.over_selection * self.participants / population)
        keys = ("selection.over_selection", "selection.privacy", "population", "availability")
        chance = share_of_batches * online**self.privacy
        return Supply("drawn batches with all members online", self.required, population // self.privacy, chance, keys)

    def check(self, population: int) -> None:
        """Check that T divides K and that the probability a K/n of a batch is at most 1."""
        super().check(population)
        check_batch_size(self.privacy, self.participants)
        if self.factor * self.participants > population:
            most = population * 1000 // self.participants / 1000  # rounded down, so that it is allowed
            raise ValueError(
                f"over_selection: a = {self.over_selection:g} with K = {self.participants} of {population} clients "
                f"makes a K/n exceed 1; at most {most:g}"
            )

    @property
    def required(self) -> int:
        """K/T, the number of batches in a round."""
        return self.participants // self.privacy

    @property
    def terms(self) -> tuple[int | str, ...]:
        """K, a and the inputs of the partition."""
        # The word "beacon" keeps a beacon with the text "consecutive" apart.
        return *super().terms, self.privacy, "consecutive" if self.beacon is None else f"beacon {self.beacon}"


class Prove(Message, frozen=True):
    """The client's batch is a candidate: prove your number."""

    stage: ClassVar[str] = "lotto/prove"
    Answer: ClassVar[type[Message] | None] = Candidacy

    round: RoundNumber


def assign_batches(population: int, privacy: int, beacon: str | None) -> Batches:
    """Assign clients to batches: order by SHA-256(beacon, client), cut into batches of T or T + 1.

    Args:
        population: number of clients n.
        privacy: batch size T.
        beacon: public randomness; None: consecutive client numbers.
    """
    batches = Batches.consecutive(population, privacy)
    if beacon is None:
        return batches
    # The beacon is drawn after all clients have their numbers, so no party can choose a batch.
    hashed = sha256(ASSIGNMENT_DOMAIN + beacon.encode())
    keys = np.empty((population, 32), np.uint8)
    for client in range(population):
        digest = hashed.copy()
        digest.update(client.to_bytes(8, "big"))
        keys[client] = np.frombuffer(digest.digest(), np.uint8)
    of = np.empty(population, np.int64)
    # Big-endian words compare as the digests do; `lexsort` takes the most significant key last.
    of[np.lexsort(keys.view(">u8").T[::-1])] = batches.of
    return Batches(of)


def batch_value(experiment_id: bytes, round_number: int, outputs: Iterable[bytes]) -> bytes:
    """Return H(beta_1 || ... || beta_T), 64 bytes: SHA-512 of domain, experiment, round and the members' numbers.

    Args:
        experiment_id: 16 bytes.
        round_number: from 1.
        outputs: the members' numbers, 64 bytes each, in ascending order of members.
    """
    meter("hmac")  # costs about as much as SHA-512 of a few hundred bytes
    # Each number has 64 bytes, so the encoding is injective.
    return sha512(VALUE_DOMAIN + experiment_id + round_number.to_bytes(8, "big") + b"".join(outputs)).digest()


def candidate_batches(
    parameters: VerifiableBatchPartitionParameters,
    batches: Batches,
    outputs: Mapping[int, bytes],
    experiment_id: bytes,
    round_number: int,
    population: int,
) -> Ids:
    """Return the candidate batches: all members have a number, and the value is below the threshold.

    Args:
        parameters: a, K and T.
        batches: the public partition.
        outputs: number of each client, 64 bytes.
        experiment_id: 16 bytes.
        round_number: from 1.
        population: announced number of clients n.

    Returns:
        `(c,)` int64, sorted batch numbers.
    """
    whole = batches.whole(ids(list(outputs)))
    members = batches.members(whole)
    ordered = members[np.argsort(batches.of[members], kind="stable")].tolist()  # batch by batch, ascending in each
    standing, end = [], 0
    for batch, size in zip(whole.tolist(), batches.sizes[whole].tolist(), strict=True):
        begin, end = end, end + size
        value = batch_value(experiment_id, round_number, (outputs[client] for client in ordered[begin:end]))
        if under_threshold(value, parameters.factor, parameters.participants, population):
            standing.append(batch)
    return np.array(standing, np.int64)


STAGES_WITH_PROOFS = STAGES.extended(
    {
        Prove: Transition(
            sources={"announced", "signed", "over"},
            target=None,
            refusal="lotto.unannounced-round",
            detail="a proof for round {round}, which was not announced",
        )
    }
)
"""Lotto's table; a client also proves its number of the announced round whenever the server asks."""


class VerifiableBatchClient(AnnouncedClient, answers=(Announce, *STAGES_WITH_PROOFS.rows)):
    """Client side."""

    STAGES: ClassVar[StageTable] = STAGES_WITH_PROOFS
    parameters: VerifiableBatchPartitionParameters

    @property
    def batches(self) -> Batches:
        """The public partition."""
        assert self.environment.batches is not None
        return self.environment.batches

    @handles(Announce)
    def on_announce(self, message: Announce) -> Candidacy:
        """Check the announcement, evaluate the VRF and answer with the number, whether or not it is small."""
        self.accept(message)
        # Every client sends its number, since it cannot know whether its batch is a candidate. The longer proof comes
        # later, from members of candidate batches only.
        return Candidacy(output=self.evaluate(message.round))

    @handles(Prove)
    def on_prove(self, message: Prove) -> Candidacy:
        """Prove the number that this client has sent."""
        with self.progress.answering(message, message.round):
            return Candidacy(proof=self.prove(message.round).proof)

    def check_size(self, participants: Collection[int]) -> None:
        """Refuse a list that is not K/T whole batches."""
        clients = ids(list(participants))
        if clients.max(initial=-1) >= len(self.batches.of):
            raise Refusal("pki.unknown-client", f"client {clients[-1]} is in no batch")
        broken = self.batches.broken(clients)
        if len(broken):
            raise Refusal("lotto.partial-batch", f"some members of batch {broken[0]} are in the list, others are not")
        whole, needed = len(self.batches.whole(clients)), self.parameters.required
        if whole != needed:
            raise Refusal("lotto.wrong-size", f"{whole} batches announced, {needed} agreed on")

    def check_threshold(self, message: ParticipantList) -> None:
        """Refuse a list with a batch that is not a candidate, given the listed numbers."""
        outputs = {entry.client: entry.output for entry in message.participants}
        listed = self.batches.whole(ids(list(outputs)))
        standing = candidate_batches(
            self.parameters, self.batches, outputs, self.environment.experiment_id, message.round, message.population
        )
        others = np.setdiff1d(listed, standing)
        if len(others):
            raise Refusal("lotto.above-threshold", f"batch {others[0]} is not a candidate")


class VerifiableBatchServer(BatchSelection, AnnouncingServer):
    """Server side. `choose` draws among batches; the other decisions are those of Lotto's server."""

    parameters: VerifiableBatchPartitionParameters
    stages = VerifiableBatchPartitionParameters.stages
    candidate_noun = "candidate batches"
    candidate_singular = "candidate batch"

    def __init__(self, parameters: VerifiableBatchPartitionParameters, population: int) -> None:
        super().__init__(parameters, population)
        self.batches = assign_batches(population, parameters.privacy, parameters.beacon)
        self.required = parameters.required

    @property
    def roles(self) -> list[RoleSpec]:
        """The client side of this protocol."""
        return [RoleSpec(VerifiableBatchClient, self.parameters)]

    def members(self, candidates: Ids) -> Ids:
        """Return the clients in these batches, sorted."""
        return self.batches.members(candidates)

    async def select(self, round_: SelectionRound) -> Selection:
        """Announce the round, find candidate batches, ask for proofs, then agree on the list."""
        answers, refusals = await self.announce(self.pool(round_), round_)
        outputs = {
            client: answer.output
            for client, answer in answers.items()
            if answer.output is not None and client in round_.directory
        }
        standing = self.standing(outputs, round_)
        self.require_candidates(standing, round_, refusals)
        claims, more = await self.ask_for_proofs(standing, outputs, round_)
        candidates = self.batches.whole(ids(list(claims)))
        self.require_candidates(candidates, round_, [*refusals, *more])
        chosen = self.members(self.choose(candidates, round_))
        return await self.agree(self.entries(chosen, claims, round_), len(self.members(candidates)), round_)

    # -- stages -----------------------------------------------------------------------------------------------------

    def standing(self, outputs: Mapping[int, bytes], round_: SelectionRound) -> Ids:
        """Return the batches that are candidates if their members' numbers are correct."""
        round_inputs = round_.experiment_id, round_.number, self.population
        return candidate_batches(self.parameters, self.batches, outputs, *round_inputs)

    async def ask_for_proofs(
        self, standing: Ids, outputs: Mapping[int, bytes], round_: SelectionRound
    ) -> tuple[dict[int, Candidacy], list[ClientRefusal]]:
        """Ask the members of candidate batches for proofs (stage 2).

        Args:
            standing: candidate batches.
            outputs: number of each client.
            round_: the round.

        Returns:
            Claims of the members that proved their number, and the refusals.
        """
        answers, refusals = await ask_groups(round_, [(self.members(standing), Prove(round_.number))])
        vrf_input, claims = self.selection_input(round_), {}
        for client, answer in answers.items():
            claim = Candidacy(outputs[client], answer.proof)
            # The participants' check: one false number in the list would end the round for all.
            if verify_claim(claim, round_.directory.vrf_key(client), vrf_input):
                claims[client] = claim
            else:
                round_.network.record_event(f"client:{client}", "misbehaviour", "did not prove the number that it gave")
        return claims, refusals
