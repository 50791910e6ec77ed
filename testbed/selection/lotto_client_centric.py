"""Lotto, client-centric variant (Jiang et al., arXiv 2401.02880, section 3.4): clients select themselves.

Each client evaluates a verifiable random function on the round number under a key that the PKI made for it, and
stands as candidate when the result falls below the threshold. The server cannot predict who will, and participants
verify each other's proofs.
"""

from typing import Annotated, ClassVar, Literal

import msgspec
from pydantic import Field

from testbed.cost import charge
from testbed.crypto import vrf
from testbed.errors import ProtocolError, Refusal
from testbed.messages import Count, Message, RoundNumber
from testbed.network.asking import ids
from testbed.parties.client import Client, RoleSpec, handles
from testbed.parties.pki import Directory
from testbed.selection.choosing import Ids, Selection, SelectionRound
from testbed.selection.lotto import Lot, LottoClient, LottoParameters, ParticipantList, selection_input, under_threshold
from testbed.selection.lotto_server import LottoServer, Told, tell

Term = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]  # of a fraction that a float's shortest decimal gives


class ClientCentricParameters(LottoParameters):
    """Clients select themselves with a verifiable random function."""

    protocol: Literal["lotto-client-centric"] = "lotto-client-centric"
    unselected: Literal["silent", "acknowledge"] = Field(
        "acknowledge",
        description="What clients that are not selected do: 'silent' costs the server the deadline (the paper), "
        "'acknowledge' a small message of each (the authors' code)",
    )


class Candidacy(Message, frozen=True):
    """The client's number and its proof when it is selected; nothing when it only acknowledges."""

    output: Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)] | None = None
    proof: Annotated[bytes, msgspec.Meta(min_length=80, max_length=80)] | None = None


class Announce(Message, frozen=True):
    """A round begins: its number, the population n, participants s and the over-selection factor a as a fraction."""

    stage: ClassVar[str] = "lotto/announce"
    Answer: ClassVar[type[Message] | None] = Candidacy

    round: RoundNumber
    population: Count
    participants: Count
    factor_numerator: Term
    factor_denominator: Term


class ClientCentricClient(LottoClient):
    """Client side."""

    parameters: ClientCentricParameters
    output_bytes: ClassVar[int] = vrf.OUTPUT_BYTES

    def __init__(self, client: Client, parameters: ClientCentricParameters) -> None:
        super().__init__(client, parameters)
        self._announced: Announce | None = None
        self._own: Candidacy | None = None

    # -- stage 1: client-centric selection ------------------------------------------------------------------------

    @handles(Announce)
    def on_announce(self, message: Announce) -> Candidacy | None:
        """Check the announcement, evaluate the VRF, and answer with number and proof if selected."""
        self.check_population(message.population)
        factor = self.parameters.factor
        if (message.participants, message.factor_numerator, message.factor_denominator) != (
            self.parameters.participants, factor.numerator, factor.denominator,
        ):  # fmt: skip
            raise Refusal("lotto.other-parameters", "s or a differs from what was agreed on")
        self.use_round(message.round)
        self._announced = message
        assert self.client.identity is not None
        secret = self.client.identity.vrf
        assert secret is not None
        evaluated = selection_input(self.environment.experiment_id, message.round)
        charge("vrf.output")
        output = secret.output(evaluated)
        if not under_threshold(output, factor, message.participants, message.population):
            return Candidacy() if self.parameters.unselected == "acknowledge" else None
        charge("vrf.prove")
        output, proof = secret.prove(evaluated)
        self._own = Candidacy(output, proof)
        return self._own

    # -- stage 2 ----------------------------------------------------------------------------------------------------

    def check_round(self, message: ParticipantList) -> None:
        """The list must belong to the announcement that this client has answered."""
        if self._announced is None or message.round != self._announced.round:
            raise Refusal("lotto.unannounced-round", f"a list for round {message.round}, which was not announced")
        if message.population != self._announced.population:
            raise Refusal(
                "lotto.population-changed",
                f"n = {message.population}, announced was {self._announced.population}",
            )

    def check_own(self, own: Lot) -> None:
        """The server must not have changed this client's number or proof."""
        if self._own is None or (own.output, own.proof) != (self._own.output, self._own.proof):
            raise Refusal("lotto.own-entry-changed", "the list holds another number or proof for this client")

    def check_lot(self, lot: Lot, directory: Directory, round_number: int) -> None:
        """The proof must be valid under the key that the PKI has for this client, and give this number."""
        charge("vrf.verify")
        evaluated = selection_input(self.environment.experiment_id, round_number)
        try:
            output = vrf.verify(directory.vrf_key(lot.client), evaluated, lot.proof)
        except ProtocolError as error:
            raise Refusal("lotto.invalid-proof", f"client {lot.client}: {error}") from None
        if output != lot.output:
            raise Refusal("lotto.output-mismatch", f"client {lot.client}'s proof belongs to another number")


class ClientCentricServer(LottoServer):
    """Server side. A malicious one may also override `announcement_for`."""

    parameters: ClientCentricParameters
    stages: ClassVar[tuple[str, ...]] = ("lotto/announce", "lotto/participants", "lotto/signatures")

    @property
    def roles(self) -> list[RoleSpec]:
        """See `SelectionProtocol.roles`."""
        return [RoleSpec(ClientCentricClient, self.parameters)]

    async def select(self, round_: SelectionRound) -> Selection:
        """See `SelectionProtocol.select`."""
        factor = self.parameters.factor
        pool = self.pool(round_)
        message = Announce(
            round_.number, self.population, self.parameters.participants, factor.numerator, factor.denominator
        )
        answers, refusals = await tell(round_, self.announcement_for(pool, message))
        claims = {
            client: answer
            for client, answer in answers.items()
            if answer.output is not None and self.is_candidate(client, answer, round_)
        }
        candidates = ids(list(claims))
        self.enough(candidates, round_, refusals)
        chosen = self.choose(candidates, round_)
        lots = [
            Lot(client, round_.directory.signing_key(client), claims[client].output, claims[client].proof)
            for client in chosen.tolist()
        ]
        return await self.agree(lots, len(claims), round_)

    def is_candidate(self, client: int, claim: Candidacy, round_: SelectionRound) -> bool:
        """Check a claim as the participants will: one false candidate must not be able to end everybody's round."""
        if client not in round_.directory or claim.output is None or claim.proof is None:
            return False
        if self.dropped[client]:
            detail = "claimed to be a candidate and is not in the refined population"
            round_.network.record_event(f"client:{client}", "misbehaviour", detail)
            return False
        charge("vrf.verify")
        try:
            evaluated = selection_input(round_.experiment_id, round_.number)
            valid = vrf.verify(round_.directory.vrf_key(client), evaluated, claim.proof) == claim.output
        except ProtocolError:
            valid = False
        s, factor = self.parameters.participants, self.parameters.factor
        if not valid or not under_threshold(claim.output, factor, s, self.population):
            round_.network.record_event(f"client:{client}", "misbehaviour", "claimed to be a candidate and is not")
            return False
        return True

    def announcement_for(self, everyone: Ids, message: Announce) -> Told:
        """Who is told that which round begins: everybody (of a refined population) the same."""
        return [(everyone, message)]
