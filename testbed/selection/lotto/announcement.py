"""How a round is announced, and how candidates prove that they are, in client-centric Lotto and what is built on it.

Jiang et al., arXiv 2401.02880, section 3.4: the server announces a round; clients check the announcement and evaluate
their verifiable random function on it, under keys that the PKI made for them; every entry of the list holds a proof.
"""

from typing import ClassVar

from testbed.arrays import Ids
from testbed.crypto import vrf
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, Refusal
from testbed.network.hosts import ClientRefusal
from testbed.parties.pki import Directory
from testbed.selection.contract import SelectionRound
from testbed.selection.lotto.client import LottoClient
from testbed.selection.lotto.messages import Announce, Candidacy, ParticipantEntry, ParticipantList
from testbed.selection.lotto.parameters import AnnouncedParameters
from testbed.selection.lotto.server import GroupMessages, LottoServer, ask_groups


class AnnouncedClient(LottoClient):
    """Client side: what was announced, this client's number, and the proofs of others.

    Attributes:
        announced: the last announcement that held.
        claim: this client's number and proof, once it has proven it.
    """

    output_bytes: ClassVar[int] = vrf.OUTPUT_BYTES
    parameters: AnnouncedParameters
    announced: Announce
    claim: Candidacy | None = None

    # -- stage 1: the round is announced ------------------------------------------------------------------------------

    def accept(self, message: Announce) -> None:
        """Check the announcement; the round then begins."""
        self.check_population(message.population)
        factor = self.parameters.factor
        announced = message.participants, message.factor_numerator, message.factor_denominator
        if announced != (self.parameters.participants, factor.numerator, factor.denominator):
            raise Refusal("lotto.other-parameters", "s or a differs from what was agreed on")
        self.take_pulse(message.round, message.pulse)
        self.use_round(message.round)
        self.announced = message

    def use_round(self, number: int) -> None:
        """Rounds are announced one after the other, also those that then end early.

        What was heard of is over, whatever came of it: else announcements that are refused would leave a server more
        numbers than G to choose the next round from.
        """
        last, gap = self.client.last_announced, self.parameters.round_gap
        if gap is not None and last + gap < number <= self.environment.rounds:
            raise Refusal(
                "lotto.round-skipped", f"round {number} announced, and none after {last}; at most {last + gap}"
            )
        if gap is not None and self.client.last_round < number <= last:
            raise Refusal("lotto.round-passed", f"round {number} announced, and {last} rounds have been heard of")
        super().use_round(number)

    def evaluate(self, round_number: int) -> bytes:
        """The client's number, 64 bytes: its VRF on the round."""
        meter("vrf.output")
        return self.vrf_key.output(self.selection_input(round_number))

    def prove(self, round_number: int) -> Candidacy:
        """The number with its proof, which the list must then hold."""
        meter("vrf.prove")
        self.claim = Candidacy(*self.vrf_key.prove(self.selection_input(round_number)))
        return self.claim

    @property
    def vrf_key(self) -> vrf.SecretKey:
        """The client's, made by the PKI."""
        assert self.client.identity is not None
        assert self.client.identity.vrf is not None
        return self.client.identity.vrf

    # -- stage 2: what is verified of the list ------------------------------------------------------------------------

    def check_round(self, message: ParticipantList) -> None:
        """The list must belong to the announcement that this client has answered."""
        self.progress.check_round(message, message.round)
        if message.population != self.announced.population:
            raise Refusal(
                "lotto.population-changed",
                f"n = {message.population}, announced was {self.announced.population}",
            )

    def check_own_entry(self, entry: ParticipantEntry) -> None:
        """The server must not have changed this client's number or proof."""
        if self.claim is None or (entry.output, entry.proof) != (self.claim.output, self.claim.proof):
            raise Refusal("lotto.own-entry-changed", "the list holds another number or proof for this client")

    def check_entry(self, entry: ParticipantEntry, directory: Directory, round_number: int) -> None:
        """The proof must be valid under the key that the PKI has for this client, and give this number."""
        meter("vrf.verify")
        try:
            output = vrf.verify(directory.vrf_key(entry.client), self.selection_input(round_number), entry.proof)
        except ProtocolError as error:
            raise Refusal("lotto.invalid-proof", f"client {entry.client}: {error}") from None
        if output != entry.output:
            raise Refusal("lotto.output-mismatch", f"client {entry.client}'s proof belongs to another number")


class AnnouncingServer(LottoServer):
    """Server side. A malicious one may also override `announcement_for`."""

    async def announce(self, pool: Ids, round_: SelectionRound) -> tuple[dict[int, Candidacy], list[ClientRefusal]]:
        """Stage 1: begin the round; the answers that decode, by client, and the refusals."""
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
        return await ask_groups(round_, self.announcement_for(pool, message))

    def announcement_for(self, everyone: Ids, message: Announce) -> GroupMessages:
        """Who is told that which round begins: everybody (of a refined population) the same."""
        return [(everyone, message)]

    def entries(self, chosen: Ids, claims: dict[int, Candidacy], round_: SelectionRound) -> list[ParticipantEntry]:
        """The rows of the list: `chosen` clients, with the numbers and proofs that they have claimed."""
        rows = []
        for client in chosen.tolist():
            output, proof = claims[client].output, claims[client].proof
            assert output is not None
            assert proof is not None
            rows.append(ParticipantEntry(client, round_.directory.signing_key(client), output, proof))
        return rows
