"""What client-centric Lotto (Jiang et al., arXiv 2401.02880, section 3.4) shares with protocols built on it.

The server announces a round; clients check the announcement and evaluate their verifiable random function on it, under
keys that the PKI made for them; whoever is in the list is there with a proof.
"""

from typing import Annotated, ClassVar, Literal

import msgspec
from pydantic import Field

from testbed.arrays import Ids
from testbed.crypto import vrf
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, Refusal
from testbed.messages import Count, Message, RoundNumber, Signature64
from testbed.network.hosts import ClientRefusal
from testbed.parties.client import Client
from testbed.parties.pki import Directory
from testbed.selection.contract import SelectionRound
from testbed.selection.lotto.protocol import AgreedListParameters, LottoClient, ParticipantEntry, ParticipantList
from testbed.selection.lotto.server import GroupMessages, LottoServer, ask_groups

MOST_ROUNDS = 10_000_000
Term = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]  # of a fraction that a float's shortest decimal gives


class AnnouncedParameters(AgreedListParameters):
    """Parameters of protocols that announce a round to all clients."""

    max_round_gap: Annotated[int, Field(gt=0, le=MOST_ROUNDS)] | Literal["auto", "none"] | None = Field(
        "auto",
        description="G: a client refuses a round whose number is more than this above the last one that it has heard "
        "of; 'none' (or null): it accepts any later number, and a server that knows its own clients' outputs announces "
        "favourable rounds alone; 'auto': 1, and none with `refine`, where clients outside the refined population "
        "hear nothing",
    )

    def check(self, population: int) -> None:
        """As for every such protocol; with `refine` a gap would refuse honest rounds."""
        super().check(population)
        if self.refinement is not None and isinstance(self.max_round_gap, int):
            raise ValueError(
                f"max_round_gap: {self.max_round_gap} with `refine`: clients outside the refined population hear "
                "nothing of a round, and would take the next one for skipped; leave one of the two out"
            )

    @property
    def round_gap(self) -> int | None:
        """G; None: any later number is accepted."""
        if self.max_round_gap == "auto":
            return 1 if self.refinement is None else None
        return self.max_round_gap if isinstance(self.max_round_gap, int) else None


class Candidacy(Message, frozen=True):
    """The client's number, its proof, or both; nothing when it only acknowledges."""

    output: Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)] | None = None
    proof: Annotated[bytes, msgspec.Meta(min_length=80, max_length=80)] | None = None


class Announce(Message, frozen=True):
    """A round begins: its number, the population n, participants s and the over-selection factor a as a fraction."""

    stage: ClassVar[str] = "lotto/announce"
    Answer: ClassVar[type[Message] | None] = Candidacy
    announces: ClassVar[bool] = True

    round: RoundNumber
    population: Count
    participants: Count
    factor_numerator: Term
    factor_denominator: Term
    pulse: Signature64 | None = None


class AnnouncedClient(LottoClient):
    """Client side: what was announced, this client's number, and the proofs of others."""

    parameters: AnnouncedParameters
    output_bytes: ClassVar[int] = vrf.OUTPUT_BYTES

    def __init__(self, client: Client, parameters: AnnouncedParameters) -> None:
        super().__init__(client, parameters)
        self._announced: Announce | None = None
        self._own: Candidacy | None = None

    # -- stage 1 ----------------------------------------------------------------------------------------------------

    def evaluate(self, message: Announce) -> bytes:
        """Check the announcement and evaluate the VRF on its round; the number, 64 bytes."""
        self.check_population(message.population)
        factor = self.parameters.factor
        if (message.participants, message.factor_numerator, message.factor_denominator) != (
            self.parameters.participants, factor.numerator, factor.denominator,
        ):  # fmt: skip
            raise Refusal("lotto.other-parameters", "s or a differs from what was agreed on")
        self.take_pulse(message.round, message.pulse)
        self.use_round(message.round)
        self._announced = message
        meter("vrf.output")
        return self._secret.output(self.evaluated(message.round))

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

    def prove(self, round_number: int) -> Candidacy:
        """The number with its proof, which the list must then hold."""
        meter("vrf.prove")
        self._own = Candidacy(*self._secret.prove(self.evaluated(round_number)))
        return self._own

    @property
    def _secret(self) -> vrf.SecretKey:
        assert self.client.identity is not None
        assert self.client.identity.vrf is not None
        return self.client.identity.vrf

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

    def check_own(self, own: ParticipantEntry) -> None:
        """The server must not have changed this client's number or proof."""
        if self._own is None or (own.output, own.proof) != (self._own.output, self._own.proof):
            raise Refusal("lotto.own-entry-changed", "the list holds another number or proof for this client")

    def check_entry(self, entry: ParticipantEntry, directory: Directory, round_number: int) -> None:
        """The proof must be valid under the key that the PKI has for this client, and give this number."""
        meter("vrf.verify")
        try:
            output = vrf.verify(directory.vrf_key(entry.client), self.evaluated(round_number), entry.proof)
        except ProtocolError as error:
            raise Refusal("lotto.invalid-proof", f"client {entry.client}: {error}") from None
        if output != entry.output:
            raise Refusal("lotto.output-mismatch", f"client {entry.client}'s proof belongs to another number")


class AnnouncingServer(LottoServer):
    """Server side. A malicious one may also override `announcement_for`."""

    async def announce(self, pool: Ids, round_: SelectionRound) -> tuple[dict[int, Candidacy], list[ClientRefusal]]:
        """Stage 1: begin the round; the answers that decode, by client, and the refusals."""
        factor = self.parameters.factor
        pulse = await self.opened(round_)
        message = Announce(
            round_.number, self.population, self.parameters.participants, factor.numerator, factor.denominator, pulse
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


def proves(claim: Candidacy, key: bytes, evaluated: bytes) -> bool:
    """Whether a claim's proof is valid under a VRF key, and its number the one that it proves."""
    if claim.output is None or claim.proof is None:
        return False
    meter("vrf.verify")
    try:
        return vrf.verify(key, evaluated, claim.proof) == claim.output
    except ProtocolError:
        return False
