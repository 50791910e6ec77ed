"""Server side shared by both variants of Lotto (arXiv 2401.02880).

Population refinement (section 3.5), residual removal, mutual verification and the consistency check (section 3.4).
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np

from testbed.arrays import Ids
from testbed.crypto import memo
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, RoundAborted
from testbed.messages import Message
from testbed.network.contract import ids
from testbed.network.hosts import ClientRefusal
from testbed.parties.client import RoleSpec
from testbed.parties.round_beacon import randomness_of
from testbed.selection.contract import (
    Selection,
    SelectionProtocol,
    SelectionRound,
    TrainingReports,
    attach_selection_state,
)
from testbed.selection.lotto.messages import (
    LIST_DOMAIN,
    ListRegistration,
    ListSignatures,
    ParticipantEntry,
    ParticipantList,
    SignedBy,
    list_content,
    list_digest,
    selection_input,
)
from testbed.selection.lotto.parameters import AgreedListParameters
from testbed.selection.lotto.refinement import measured_clients, measurements, refined_population, store_measurements

GroupMessages = Sequence[tuple[Ids, Message]]
"""Groups of clients with the message for each group."""


class LottoServer(SelectionProtocol):
    """Server side shared by both variants: residual removal, mutual verification, consistency.

    *Candidates* are clients or, in a protocol built on this class, batches of clients.

    A malicious server overrides `refined_population` (drop other clients), `choose` (among the candidates), `list_for`
    or `signatures_for` (different messages to different clients; the server asks such groups one after the other).

    Attributes:
        population: announced n: the size of this round's refined population.
        dropped: `(n,)` bool, clients outside the refined population.
        required: number of candidates in a list: s, or K/T batches.
        pulse: the beacon's pulse for this round; None without a beacon.
        announces: whether clients receive an announcement of a round before its list.
        candidate_noun: name of candidates in the message of a round with too few.
        candidate_singular: the singular of that name.
    """

    parameters: AgreedListParameters
    needs_registration = True
    participants_agree = True
    announces: ClassVar[bool] = True
    candidate_noun: ClassVar[str] = "candidates"
    candidate_singular: ClassVar[str] = "candidate"
    pulse: bytes | None = None

    def __init__(self, parameters: AgreedListParameters, population: int) -> None:
        super().__init__(parameters, population)
        self.required = parameters.participants
        self.dropped = np.zeros(population, np.bool_)

    # -- differences between the variants -------------------------------------------------------------------------

    @property
    def roles(self) -> list[RoleSpec]:
        """The client side of the variant."""
        raise NotImplementedError

    async def select(self, round_: SelectionRound) -> Selection:
        """Choose the participants; implemented by each variant."""
        raise NotImplementedError

    def members(self, candidates: Ids) -> Ids:
        """Return the clients of these candidates, sorted."""
        return candidates

    @property
    def beacon_latency_s(self) -> float | None:
        """One-way latency [s] between server and beacon; None without a beacon."""
        return None if self.parameters.round_beacon == "none" else self.parameters.beacon_latency_ms / 1000

    # -- decisions ------------------------------------------------------------------------------------------------

    def refined_population(self, round_: SelectionRound) -> Ids:
        """Return the refined population (section 3.5), sorted; called only with `refine`."""
        assert self.parameters.refinement is not None
        return np.flatnonzero(refined_population(self.parameters.refinement, *measurements(round_)))

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """Draw as many candidates as a list takes, uniformly (residual removal)."""
        # No client can verify this draw: a malicious server may choose among the candidates, but only among them.
        return np.sort(round_.rng("residual removal").choice(candidates, self.required, replace=False))

    def list_for(self, participants: Ids, message: ParticipantList) -> GroupMessages:
        """Return the list that each group of participants receives: the same list for all."""
        return [(participants, message)]

    def signatures_for(self, signers: Ids, message: ListSignatures) -> GroupMessages:
        """Return the signatures that each group of signers receives: all signatures for all."""
        return [(signers, message)]

    # -- informed selection ---------------------------------------------------------------------------------------

    def learn(self, round_: SelectionRound, reports: TrainingReports) -> None:
        """Store each client's last response time and data quality, if the population is refined."""
        if self.parameters.refinement is not None:
            store_measurements(round_, reports)

    def pool(self, round_: SelectionRound) -> Ids:
        """Return the clients to draw from, sorted; a refined population changes the announced n."""
        if self.parameters.refinement is None:
            return round_.everyone
        eligible = self.refined_population(round_)
        self.population = len(eligible)
        self.dropped[:] = True
        self.dropped[eligible] = False
        summary = f"n = {len(eligible)} of {round_.population}, {measured_clients(round_)} of them measured"
        round_.network.record_event("server", "refined-population", summary)
        return eligible

    # -- the beacon -----------------------------------------------------------------------------------------------

    async def open_round(self, round_: SelectionRound) -> bytes | None:
        """Open the round at the beacon and return its pulse; None without a beacon."""
        self.pulse = None
        if self.parameters.round_beacon == "public":
            assert round_.beacon is not None
            self.pulse = await round_.beacon.open(round_.number)
        return self.pulse

    def selection_input(self, round_: SelectionRound) -> bytes:
        """Return the input of the VRF or PRF in this round, which must be open."""
        randomness = b"" if self.pulse is None else randomness_of(self.pulse)
        return selection_input(round_.experiment_id, round_.number, randomness)

    async def register(self, message: ParticipantList, round_: SelectionRound) -> ParticipantList:
        """Return the list with the beacon's receipt; unchanged without a beacon.

        Args:
            message: the list.
            round_: the round.
        """
        if self.parameters.round_beacon == "none":
            return message
        assert round_.beacon is not None
        digest = list_digest(list_content(round_.experiment_id, self.parameters, message))
        receipt = await round_.beacon.register(message.round, digest)
        # After an announcement, clients already have the pulse.
        return msgspec.structs.replace(
            message, beacon=ListRegistration(receipt, None if self.announces else self.pulse)
        )

    # -- stages ---------------------------------------------------------------------------------------------------

    def require_candidates(
        self, candidates: Ids, round_: SelectionRound, refusals: Sequence[ClientRefusal] = ()
    ) -> None:
        """Raise `RoundAborted` if there are fewer candidates than a list takes: |C| < s.

        Args:
            candidates: candidate clients or batches.
            round_: the round.
            refusals: refusals of the announcement; if there are any, they are the reason.
        """
        if len(candidates) >= self.required:
            return
        members = len(self.members(candidates))
        noun = self.candidate_singular if len(candidates) == 1 else self.candidate_noun
        summary = f"{len(candidates)} {noun}, {self.required} wanted"
        if refusals:  # the refusals are the reason
            raise RoundAborted("refused", f"{refusals_by_check(refusals, 'clients')}; {summary}", candidates=members)
        raise RoundAborted(f"too-few-{self.candidate_noun.replace(' ', '-')}", summary, candidates=members)

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        """Run stages 2 and 3: participants verify and sign the list, then see each other's signatures.

        Args:
            entries: rows of the list.
            candidates: number of candidates.
            round_: the round.
        """
        participants = ids([entry.client for entry in entries])
        with attach_selection_state(candidates, participants):
            return Selection(participants, candidates, await self._agreed_by(entries, participants, round_))

    async def _agreed_by(self, entries: list[ParticipantEntry], participants: Ids, round_: SelectionRound) -> Ids:
        """Return the participants that have accepted the list and the signatures, sorted."""
        meter("message", len(entries))
        message = await self.register(ParticipantList(round_.number, self.population, entries), round_)
        answers, refusals = await ask_groups(round_, self.list_for(participants, message))
        signed = self.valid_signatures(answers, message, round_)
        self.require_answers(self.parameters.quorum_of(len(entries)), len(signed), "signatures", refusals)
        meter("message", len(signed))
        # Only signers get the signatures: the others have left the round.
        groups = self.signatures_for(ids([row.client for row in signed]), ListSignatures(round_.number, signed))
        agreed, refusals = await ask_groups(round_, groups)
        self.require_answers(1, len(agreed), "agreements", refusals)
        return ids(list(agreed))

    def valid_signatures(
        self, answers: dict[int, Any], message: ParticipantList, round_: SelectionRound
    ) -> list[SignedBy]:
        """Return the signatures on the list that verify; the others are left out of the round.

        Args:
            answers: `ListSignature` of each client.
            message: the list.
            round_: the round.
        """
        content = list_content(round_.experiment_id, self.parameters, message)
        keys = {entry.client: entry.registration_key for entry in message.participants}
        meter("ed25519.verify", len(answers))
        valid = []
        for client in sorted(answers):
            try:
                memo.verify(keys[client], LIST_DOMAIN, content, answers[client].signature)
            except ProtocolError:
                # One invalid signature among those forwarded would make every participant refuse.
                round_.network.record_event(f"client:{client}", "misbehaviour", "signed something else than the list")
            else:
                valid.append(SignedBy(client, answers[client].signature))
        return valid

    def require_answers(self, needed: int, count: int, noun: str, refusals: Sequence[ClientRefusal]) -> None:
        """Raise `RoundAborted` if there are too few answers, or if a client refused and all answers are needed.

        Args:
            needed: number of answers that the round needs.
            count: number of valid answers.
            noun: the answers, in the plural; part of the reason code.
            refusals: refusals of the question.
        """
        strict = self.parameters.signatures == "strict"
        # With a quorum, the others may go on without clients that refuse.
        if refusals and (strict or count < needed):
            raise RoundAborted("refused", refusals_by_check(refusals, "participants"))
        if count < needed:
            raise RoundAborted(f"too-few-{noun}", f"{count} of {needed} needed")


async def ask_groups(
    round_: SelectionRound, groups: GroupMessages, *, shared: bool = True
) -> tuple[dict[int, Any], list[ClientRefusal]]:
    """Ask each group in turn.

    Args:
        round_: the round.
        groups: clients and message of each group.
        shared: whether to include answers that clients share (see `Replies.valid`).

    Returns:
        The answers that decode, by client, and the refusals.
    """
    answers: dict[int, Any] = {}
    refusals: list[ClientRefusal] = []
    for clients, message in groups:
        replies = await round_.network.ask(clients, message)
        answers.update(replies.valid(shared=shared))
        refusals += replies.missing.refusals
    return answers, refusals


def refusals_by_check(refusals: Sequence[ClientRefusal], parties: str) -> str:
    """Return one line with the number of refusals and their codes.

    Args:
        refusals: at least one.
        parties: the refusing parties, in the plural.
    """
    checks = ", ".join(sorted({refusal.check for refusal in refusals}))
    return f"{len(refusals)} {parties} refused: {checks}"
