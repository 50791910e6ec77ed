"""The two variants of Lotto (Jiang et al., arXiv 2401.02880, section 3.4), and base classes for protocols built on it.

Client-centric: clients select themselves. The server announces a round; each client checks the announcement, evaluates
a verifiable random function on the round number under its key from the PKI, and is a candidate if the result is below
the threshold. The server cannot predict the candidates, and every entry of the list holds a proof.

Server-centric: the server evaluates a PRF for all clients. The number of a client is HMAC-SHA-256 of the round under
the client's public key on the bulletin board, so that every party can recompute it. This is cheaper for clients, but
the server can predict future rounds.
"""

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from testbed.arrays import Ids
from testbed.crypto import memo, prf, vrf
from testbed.crypto.sortition import Bytes, certainly_above_threshold, under_threshold
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, Refusal
from testbed.messages import Message
from testbed.network.contract import ids
from testbed.network.hosts import ClientRefusal
from testbed.parties.client import Environment, RoleSpec, handles
from testbed.parties.pki import Directory
from testbed.parties.round_beacon import randomness_of
from testbed.selection.check_in import STAGE, CheckInRole, check_in
from testbed.selection.contract import Selection, SelectionRound, attach_selection_state
from testbed.selection.lotto.client import STAGES, LottoClient
from testbed.selection.lotto.messages import (
    Announce,
    Candidacy,
    ParticipantEntry,
    ParticipantList,
    below_threshold,
    selection_input,
    verify_claim,
)
from testbed.selection.lotto.parameters import AnnouncedParameters, LottoParameters
from testbed.selection.lotto.server import GroupMessages, LottoServer, ask_groups

_BLOCK = 1 << 18  # clients with numbers in the server's memory at the same time

# -- announced rounds and proven numbers -------------------------------------------------------------------------------


class AnnouncedClient(LottoClient):
    """Client side: the announcement, this client's number, and verification of the others' proofs.

    Attributes:
        announced: the last valid announcement.
        claim: this client's number and proof, after it has proven the number.
    """

    output_bytes: ClassVar[int] = vrf.OUTPUT_BYTES
    parameters: AnnouncedParameters
    announced: Announce
    claim: Candidacy | None = None

    # -- stage 1: announcement ----------------------------------------------------------------------------------------

    def accept(self, message: Announce) -> None:
        """Check the announcement and begin the round."""
        self.check_population(message.population)
        factor = self.parameters.factor
        announced = message.participants, message.factor_numerator, message.factor_denominator
        if announced != (self.parameters.participants, factor.numerator, factor.denominator):
            raise Refusal("lotto.parameters-mismatch", "s or a differs from what was agreed on")
        self.take_pulse(message.round, message.pulse)
        self.use_round(message.round)
        self.announced = message

    def use_round(self, number: int) -> None:
        """Refuse a skipped round or one below the last announced round, then use the number."""
        # An announced round counts as used whatever its outcome: otherwise refused announcements would leave a server
        # more than G numbers to choose the next round from.
        last, gap = self.client.last_announced, self.parameters.round_gap
        if gap is not None and last + gap < number <= self.environment.rounds:
            raise Refusal(
                "lotto.round-gap-too-large", f"round {number} announced, and none after {last}; at most {last + gap}"
            )
        if gap is not None and self.client.last_round < number <= last:
            raise Refusal("lotto.round-in-the-past", f"round {number} announced, and {last} rounds have been heard of")
        super().use_round(number)

    def evaluate(self, round_number: int) -> bytes:
        """Return the client's number, 64 bytes: the VRF output of the round."""
        meter("vrf.output")
        return self.vrf_key.output(self.selection_input(round_number))

    def prove(self, round_number: int) -> Candidacy:
        """Return the number with its proof; the list must contain both."""
        meter("vrf.prove")
        self.claim = Candidacy(*self.vrf_key.prove(self.selection_input(round_number)))
        return self.claim

    @property
    def vrf_key(self) -> vrf.SecretKey:
        """The client's VRF key, made by the PKI."""
        assert self.client.identity is not None
        assert self.client.identity.vrf is not None
        return self.client.identity.vrf

    # -- stage 2: verification of the list ----------------------------------------------------------------------------

    def check_round(self, message: ParticipantList) -> None:
        """Refuse a list that does not belong to the answered announcement."""
        self.progress.check_round(message, message.round)
        # Another n would move the threshold after the clients have made their claims.
        if message.population != self.announced.population:
            raise Refusal(
                "lotto.population-mismatch",
                f"n = {message.population}, announced was {self.announced.population}",
            )

    def check_own_entry(self, entry: ParticipantEntry) -> None:
        """Refuse a list with another number or proof for this client."""
        if self.claim is None or (entry.output, entry.proof) != (self.claim.output, self.claim.proof):
            raise Refusal("lotto.own-entry-mismatch", "the list holds another number or proof for this client")

    def verify_together(self, message: ParticipantList, directory: Directory) -> None:
        """Verify the proofs on all cores."""
        alpha = self.selection_input(message.round)
        others = [entry for entry in message.participants if entry.client != self.client.number]
        memo.verify_outputs([(directory.vrf_key(entry.client), alpha, entry.proof) for entry in others])

    def check_entry(self, entry: ParticipantEntry, directory: Directory, round_number: int) -> None:
        """Refuse an entry with a proof that is invalid under the client's PKI key or gives another number."""
        meter("vrf.verify")
        try:
            key = directory.vrf_key(entry.client)
            output = memo.verify_output(key, self.selection_input(round_number), entry.proof)
        except ProtocolError as error:
            raise Refusal("lotto.invalid-proof", f"client {entry.client}: {error}") from None
        if output != entry.output:
            raise Refusal("lotto.output-mismatch", f"client {entry.client}'s proof belongs to another number")


class AnnouncingServer(LottoServer):
    """Server side. A malicious server may also override `announcement_for`."""

    async def announce(self, pool: Ids, round_: SelectionRound) -> tuple[dict[int, Candidacy], list[ClientRefusal]]:
        """Announce the round (stage 1).

        Args:
            pool: clients to ask.
            round_: the round.

        Returns:
            The answers that decode, by client, and the refusals.
        """
        factor = self.parameters.factor
        pulse = await self.open_round(round_)
        message = Announce(
            round=round_.number,
            population=self.population,
            participants=self.parameters.participants,
            factor_numerator=factor.numerator,
            factor_denominator=factor.denominator,
            pulse=pulse,
        )
        # A client without an answer of its own is no candidate.
        return await ask_groups(round_, self.announcement_for(pool, message), shared=False)

    def announcement_for(self, everyone: Ids, message: Announce) -> GroupMessages:
        """Return the announcement for each group: the same for all clients of the refined population."""
        return [(everyone, message)]

    def entries(self, chosen: Ids, claims: dict[int, Candidacy], round_: SelectionRound) -> list[ParticipantEntry]:
        """Return the rows of the list.

        Args:
            chosen: participants.
            claims: number and proof of each client.
            round_: the round.
        """
        rows = []
        for client in chosen.tolist():
            output, proof = claims[client].output, claims[client].proof
            assert output is not None
            assert proof is not None
            rows.append(ParticipantEntry(client, round_.directory.signing_key(client), output, proof))
        return rows


# -- client-centric ----------------------------------------------------------------------------------------------------


class ClientCentricParameters(AnnouncedParameters, LottoParameters):
    """Clients select themselves with a verifiable random function."""

    stages: ClassVar[tuple[str, ...]] = ("lotto/announce", "lotto/participants", "lotto/signatures")

    protocol: Literal["lotto-client-centric"] = "lotto-client-centric"
    unselected: Literal["silent", "acknowledge"] = Field(
        "acknowledge",
        description="Behaviour of clients that are not selected. 'silent' (the paper): they send nothing, and the "
        "server waits until the deadline; 'acknowledge' (the authors' code): they send a small message",
    )
    server_verifies: Literal["all", "none"] = Field(
        "all",
        description="Claims that the server verifies before it draws. 'all': it verifies every claim and leaves out "
        "false claims; 'none' (the paper's protocol): the participants verify, and a false claim that is drawn ends "
        "the round",
    )


class ClientCentricClient(AnnouncedClient, answers=(Announce, *STAGES.rows)):
    """Client side."""

    parameters: ClientCentricParameters

    @handles(Announce)
    def on_announce(self, message: Announce) -> Candidacy | None:
        """Check the announcement, evaluate the VRF, and answer with number and proof if selected."""
        self.accept(message)
        output = self.evaluate(message.round)
        if under_threshold(output, self.parameters.factor, message.participants, message.population):
            return self.prove(message.round)
        return Candidacy() if self.parameters.unselected == "acknowledge" else None

    @classmethod
    def shared_answer_predicate(
        cls, message: Message, parameters: ClientCentricParameters, environment: Environment
    ) -> Callable[[bytes, bytes], bool] | None:
        """Return a test for keys with a number that is certainly above the threshold: these clients answer alike."""
        # A subclass, e.g. a client that misbehaves, may answer otherwise.
        if cls is not ClientCentricClient or not isinstance(message, Announce):
            return None
        drawn_by_all = b"" if message.pulse is None else randomness_of(message.pulse)
        alpha = selection_input(environment.experiment_id, message.round, drawn_by_all)
        return certainly_above_threshold(alpha, parameters.factor, message.participants, message.population)


class ClientCentricServer(AnnouncingServer):
    """Server side."""

    parameters: ClientCentricParameters
    stages = ClientCentricParameters.stages

    @property
    def roles(self) -> list[RoleSpec]:
        """The client-centric client."""
        return [RoleSpec(ClientCentricClient, self.parameters)]

    async def select(self, round_: SelectionRound) -> Selection:
        """Announce the round, verify claims, draw participants, then agree on the list."""
        answers, refusals = await self.announce(self.pool(round_), round_)
        vrf_input = self.selection_input(round_)
        memo.verify_outputs(
            [
                (round_.directory.vrf_key(client), vrf_input, answer.proof)
                for client, answer in answers.items()
                if client in round_.directory and answer.proof is not None
            ]
        )
        claims = {client: answer for client, answer in answers.items() if self.is_candidate(client, answer, round_)}
        candidates = ids(list(claims))
        self.require_candidates(candidates, round_, refusals)
        entries = self.entries(self.choose(candidates, round_), claims, round_)
        return await self.agree(entries, len(claims), round_)

    def is_candidate(self, client: int, claim: Candidacy, round_: SelectionRound) -> bool:
        """Return whether a claim holds; record false claims.

        With `server_verifies: none` the server only checks that a claim is present.
        """
        if client not in round_.directory or claim.output is None or claim.proof is None:
            return False
        if self.dropped[client]:
            detail = "claimed to be a candidate and is not in the refined population"
            round_.network.record_event(f"client:{client}", "misbehaviour", detail)
            return False
        if self.parameters.server_verifies == "none":
            return True
        vrf_input = self.selection_input(round_)
        s, factor = self.parameters.participants, self.parameters.factor
        # The participants' checks: one false claim in the list would end the round for all.
        if not verify_claim(claim, round_.directory.vrf_key(client), vrf_input) or not under_threshold(
            claim.output, factor, s, self.population
        ):
            round_.network.record_event(f"client:{client}", "misbehaviour", "claimed to be a candidate and is not")
            return False
        return True


# -- server-centric ----------------------------------------------------------------------------------------------------


class ServerCentricParameters(LottoParameters):
    """The server selects with a public pseudo-random function; clients recompute it."""

    stages: ClassVar[tuple[str, ...]] = (STAGE, "lotto/participants", "lotto/signatures")

    protocol: Literal["lotto-server-centric"] = "lotto-server-centric"


class ServerCentricClient(LottoClient):
    """Client side. The list states the population n, so only n_min protects it; all participants sign the same n."""

    parameters: ServerCentricParameters
    output_bytes: ClassVar[int] = 32

    def check_round(self, message: ParticipantList) -> None:
        """Begin the round that the list announces; its number can be used once."""
        self.take_pulse(message.round, None if message.beacon is None else message.beacon.pulse)
        self.use_round(message.round)

    def check_own_entry(self, entry: ParticipantEntry) -> None:
        """Recompute this client's number, as for all others."""
        self.check_entry(entry, self.environment.directory, self.client.last_round)

    def check_entry(self, entry: ParticipantEntry, directory: Directory, round_number: int) -> None:
        """Refuse a number that is not the PRF of the round under the client's key on the bulletin board."""
        meter("hmac")
        output = prf.evaluate(directory.vrf_key(entry.client), self.selection_input(round_number))
        if output != entry.output or entry.proof:
            raise Refusal("lotto.output-mismatch", f"client {entry.client}'s number is not the PRF of this round")


class ServerCentricServer(LottoServer):
    """Server side."""

    parameters: ServerCentricParameters
    announces: ClassVar[bool] = False
    stages = ServerCentricParameters.stages

    @property
    def roles(self) -> list[RoleSpec]:
        """The check-in role and the server-centric client."""
        return [RoleSpec(CheckInRole, self.parameters), RoleSpec(ServerCentricClient, self.parameters)]

    async def select(self, round_: SelectionRound) -> Selection:
        """Check in, evaluate the PRF, draw participants, then agree on the list."""
        present = await check_in(round_, self.pool(round_))
        with attach_selection_state(len(present)):
            await self.open_round(round_)
        candidates, outputs = self.candidates_among(present[round_.directory.registered[present]], round_)
        self.require_candidates(candidates, round_)
        chosen = self.choose(candidates, round_)
        entries = [
            ParticipantEntry(client, round_.directory.signing_key(client), outputs[row].tobytes(), b"")
            for client, row in zip(chosen.tolist(), np.searchsorted(candidates, chosen), strict=True)
        ]
        return await self.agree(entries, len(candidates), round_)

    def candidates_among(self, present: Ids, round_: SelectionRound) -> tuple[Ids, Bytes]:
        """Return the candidates and their numbers.

        Args:
            present: `(m,)` sorted registered clients that are available.
            round_: the round.

        Returns:
            `(c,)` sorted candidates and their `(c, 32)` uint8 numbers.
        """
        blocks = []
        # One block at least, since `concatenate` needs one.
        for first in range(0, max(1, len(present)), _BLOCK):
            some = present[first : first + _BLOCK]
            outputs = self.outputs(round_.directory, some, round_)
            below = below_threshold(outputs, self.parameters, self.population)
            blocks.append((some[below], outputs[below]))
        candidates, numbers = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
        return candidates, numbers

    def outputs(self, directory: Directory, clients: Ids, round_: SelectionRound) -> Bytes:
        """Return the PRF of this round for each client, `(m, 32)` uint8."""
        meter("hmac", len(clients))
        return prf.evaluate_many(directory.vrf[clients], self.selection_input(round_))
