"""Lotto: Jiang, Ye, Chen, et al., Lotto: Secure Participant Selection against Adversarial Servers in Federated
Learning, USENIX Security 2024, arXiv 2401.02880. What both variants share: parameters, messages, client checks.

A client stands as candidate when its number beta, which nobody can choose, falls below a s m / n. The server draws s
of the candidates; every participant then verifies every other, and all sign the list that they have verified, so
that a server can neither stuff the round with its own clients nor show different lists to different participants.
"""

from collections.abc import Collection
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from typing import Annotated, ClassVar, Literal

import msgspec
from pydantic import Field

from testbed.crypto import signatures
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, Refusal
from testbed.messages import ClientId, Count, Key32, Message, RoundNumber, Signature64, signed_content
from testbed.parties.client import Client, Role, handles
from testbed.parties.pki import Directory
from testbed.parties.round_beacon import check_pulse, check_receipt, randomness_of
from testbed.selection.contract import SelectionParameters
from testbed.selection.lotto.refinement import Refinement

LIST_DOMAIN = b"testbed/lotto/participant-list/v1"
MAXIMUM_PARTICIPANTS = 100_000


class AgreedListParameters(SelectionParameters):
    """Parameters of every protocol whose participants verify and sign their list."""

    over_selection: float = Field(
        1.3,
        ge=1,
        le=100,
        description="Over-selection factor a (the paper's alpha): a*s candidates are expected",
    )
    min_population: int | None = Field(
        None,
        gt=0,
        description="n_min: clients refuse to take part in a smaller population (default: the smallest that an honest "
        "server announces)",
    )
    round_beacon: Literal["none", "public"] = Field(
        "none",
        description="public: a randomness beacon opens each round; what it publishes then stands in what the VRF or "
        "PRF is evaluated on, so that nobody knows outputs ahead, and it registers one participant list a round. none: "
        "the paper's protocol",
    )
    beacon_latency_ms: float = Field(
        50.0, ge=0, le=1e6, description="Between the server and the beacon, one way; it is asked twice in a round"
    )
    signatures: Literal["strict"] | Annotated[int, Field(gt=0)] = Field(
        "strict",
        description="Signatures on the list that a client needs to see: 'strict' (all s, the paper's) or a number q; "
        "then up to s-q participants may be lost, or have been shown another list",
    )

    def check(self, population: int) -> None:
        """n_min must not exceed n, nor a quorum s."""
        super().check(population)
        if self.min_population is not None and self.min_population > population:
            raise ValueError(
                f"min_population: n_min = {self.min_population} of a population of {population}; at most {population}"
            )
        if self.signatures != "strict" and self.signatures > self.participants:
            raise ValueError(f"signatures: {self.signatures} of {self.participants} participants; at most all")

    @property
    def refinement(self) -> Refinement | None:
        """How the population is refined; None: it is not."""
        return None

    def smallest_population(self, population: int) -> int:
        """The smallest n that an honest server may announce of `population` clients."""
        return population if self.refinement is None else self.refinement.smallest(population)

    @property
    def by_losses(self) -> str:
        """See `SelectionParameters.by_losses`."""
        return "refine.by: loss" if self.refinement is not None and "loss" in self.refinement.by else ""

    @cached_property
    def factor(self) -> Fraction:
        """The over-selection factor as the exact decimal fraction that the experiment says."""
        return Fraction(str(self.over_selection))

    @property
    def terms(self) -> tuple[int | str, ...]:
        """What clients agreed to beforehand and sign with every list: s and a."""
        return self.participants, self.factor.numerator, self.factor.denominator

    def quorum_of(self, listed: int) -> int:
        """Signatures that a client needs to see on a list of so many."""
        return listed if self.signatures == "strict" else self.signatures


class LottoParameters(AgreedListParameters):
    """Parameters of both variants."""

    refine: Refinement | None = Field(
        None, description="Population refinement (informed selection): draw only from the better clients"
    )

    def check(self, population: int) -> None:
        """As for every such protocol; n_min and s must not exceed what refinement may leave of n."""
        super().check(population)
        smallest = self.smallest_population(population)
        if self.refine is not None and not smallest:
            most = self.refine.largest(population, max(self.participants, self.min_population or 0))
            raise ValueError(
                f"refine.exclude: {self.refine.exclude:g} by two metrics with or may leave nobody; at most {most:g}"
            )
        if self.min_population is not None and self.min_population > smallest:
            raise ValueError(
                f"min_population: n_min = {self.min_population}, and `refine` may leave {smallest} of {population} "
                f"clients; at most {smallest}, or a smaller refine.exclude"
            )
        if self.participants > smallest:
            raise ValueError(
                f"participants: {self.participants}, and `refine` may leave {smallest} of {population} clients; "
                f"at most {smallest}, or a smaller refine.exclude"
            )

    @property
    def refinement(self) -> Refinement | None:
        """See `AgreedListParameters.refinement`."""
        return self.refine


class ParticipantEntry(Message, frozen=True):
    """One row of a participant list: who, its registration key, and why it is a candidate."""

    client: ClientId
    registration_key: Key32
    output: Annotated[bytes, msgspec.Meta(min_length=32, max_length=64)]
    proof: Annotated[bytes, msgspec.Meta(max_length=80)]


class Registered(Message, frozen=True):
    """The beacon's receipt for this list; its pulse, where the round was not announced before."""

    receipt: Signature64
    pulse: Signature64 | None = None


class ListSignature(Message, frozen=True):
    """The client has verified the list and signs it."""

    signature: Signature64


class ParticipantList(Message, frozen=True):
    """The outcome of selection as the server tells it."""

    stage: ClassVar[str] = "lotto/participants"
    Answer: ClassVar[type[Message] | None] = ListSignature

    round: RoundNumber
    population: Count
    participants: Annotated[list[ParticipantEntry], msgspec.Meta(max_length=MAXIMUM_PARTICIPANTS)]
    beacon: Registered | None = None


class Agreed(Message, frozen=True):
    """The client has seen enough signatures and takes part."""


class SignedBy(Message, frozen=True):
    """One signature and whose it is."""

    client: ClientId
    signature: Signature64


class ListSignatures(Message, frozen=True):
    """The participants' signatures on the list, sent round by the server."""

    stage: ClassVar[str] = "lotto/signatures"
    Answer: ClassVar[type[Message] | None] = Agreed

    round: RoundNumber
    signatures: Annotated[list[SignedBy], msgspec.Meta(max_length=MAXIMUM_PARTICIPANTS)]


def under_threshold(output: bytes, factor: Fraction, participants: int, population: int) -> bool:
    """Whether beta < a s m / n, with m = 2**(8 len(output)), compared in integers without rounding."""
    beta = int.from_bytes(output, "big")
    return beta * population * factor.denominator < factor.numerator * participants << (8 * len(output))


def selection_input(experiment_id: bytes, round_number: int, randomness: bytes = b"") -> bytes:
    """What the VRF or PRF is evaluated on: domain tag, experiment, round, and (if there is a beacon) its randomness."""
    return b"testbed/lotto/selection/v1" + experiment_id + round_number.to_bytes(8, "big") + randomness


def list_content(experiment_id: bytes, parameters: AgreedListParameters, message: ParticipantList) -> bytes:
    """Canonical bytes of the experiment and (r, n, s, a, P), which participants sign."""
    rows = [[entry.client, entry.registration_key, entry.output, entry.proof] for entry in message.participants]
    return signed_content(experiment_id, message.round, message.population, *parameters.terms, rows)


def list_digest(content: bytes) -> bytes:
    """What the beacon registers of a list with this content, 32 bytes."""
    return sha256(b"testbed/lotto/participant-list-digest/v1" + content).digest()


class LottoClient(Role):
    """Client side of what both variants share. Each failed check is a refusal that names it."""

    parameters: AgreedListParameters
    output_bytes: ClassVar[int]

    def __init__(self, client: Client, parameters: AgreedListParameters) -> None:
        super().__init__(client, parameters)
        self._shown = False
        self._list: ParticipantList | None = None
        self._content = b""
        self._randomness = b""

    # -- what the variants differ in ------------------------------------------------------------------------------

    def check_round(self, message: ParticipantList) -> None:
        """Is this the round, and the population, that this client knows of?"""
        raise NotImplementedError

    def check_own(self, own: ParticipantEntry) -> None:
        """Is the client's own row what the client said?"""
        raise NotImplementedError

    def check_entry(self, entry: ParticipantEntry, directory: Directory, round_number: int) -> None:
        """Did this number come about as the protocol says?"""
        raise NotImplementedError

    def check_size(self, participants: Collection[int]) -> None:
        """Are there as many participants as were agreed on?"""
        if len(participants) != self.parameters.participants:
            raise Refusal(
                "lotto.wrong-size",
                f"{len(participants)} participants announced, {self.parameters.participants} agreed on",
            )

    def check_threshold(self, message: ParticipantList) -> None:
        """Is every participant a candidate, if its number is right? Numbers have the right length."""
        for entry in message.participants:
            if not under_threshold(
                entry.output, self.parameters.factor, self.parameters.participants, message.population
            ):
                raise Refusal("lotto.over-threshold", f"client {entry.client} is not a candidate")

    @property
    def by_beacon(self) -> bool:
        """Whether a beacon opens the rounds."""
        return self.parameters.round_beacon == "public"

    def take_pulse(self, number: int, pulse: bytes | None) -> None:
        """Verify that the beacon has opened this round, and keep its randomness; nothing where there is no beacon."""
        if not self.by_beacon:
            return
        try:
            check_pulse(self.environment.directory.beacon, self.environment.experiment_id, number, pulse)
        except ProtocolError as error:
            raise Refusal("lotto.round-not-opened", f"round {number}: {error}") from None
        assert pulse is not None
        self._randomness = randomness_of(pulse)

    def evaluated(self, round_number: int) -> bytes:
        """What the VRF or PRF is evaluated on in this round."""
        return selection_input(self.environment.experiment_id, round_number, self._randomness)

    def check_registered(self, message: ParticipantList) -> None:
        """Has the beacon registered this list, which is then the round's only one? Nothing where there is no beacon."""
        if not self.by_beacon:
            return
        receipt = None if message.beacon is None else message.beacon.receipt
        known = self.environment.directory.beacon, self.environment.experiment_id, message.round
        try:
            check_receipt(*known, list_digest(self._content), receipt)
        except ProtocolError as error:
            raise Refusal("lotto.list-not-registered", f"the list of round {message.round}: {error}") from None

    def use_round(self, number: int) -> None:
        """A round number serves once, and what was agreed on in an earlier one ends with it."""
        if number <= self.client.last_round:
            raise Refusal("lotto.round-used", f"round {number} was used before")
        if number > self.environment.rounds:
            raise Refusal("lotto.round-beyond-the-last", f"round {number} of {self.environment.rounds}")
        self.client.last_round = number
        self.client.agreed_participants = None

    # -- stage 2: client verification -----------------------------------------------------------------------------

    @handles(ParticipantList)
    def on_list(self, message: ParticipantList) -> ListSignature:
        """Verify the participant list and sign it.

        One list in a round: a client that signed a second one could be made to agree with peers who hold another.
        """
        self.check_round(message)
        if self._shown:
            raise Refusal("lotto.second-list", f"a list for round {message.round} was shown before")
        self._shown = True
        self.check_population(message.population)
        rows = {entry.client: entry for entry in message.participants}
        if len(rows) != len(message.participants):
            raise Refusal("lotto.listed-twice", "a client stands twice in the list")
        self.check_size(rows)
        own = rows.get(self.client.number)
        if own is None:
            raise Refusal("lotto.not-in-list", "sent a list that this client is not in")
        assert self.client.identity is not None
        if own.registration_key != self.client.identity.signing.public:
            raise Refusal("lotto.own-entry-changed", "the list holds another registration key for this client")
        self.check_own(own)
        directory = self.environment.look_up(rows)
        for entry in message.participants:
            if directory.signing_key(entry.client) != entry.registration_key:
                raise Refusal("lotto.wrong-registration-key", f"client {entry.client} has another key at the PKI")
            if len(entry.output) != self.output_bytes:
                raise Refusal(
                    "lotto.over-threshold", f"client {entry.client} has no number of {self.output_bytes} bytes"
                )
        self.check_threshold(message)
        self._content = list_content(self.environment.experiment_id, self.parameters, message)
        self.check_registered(message)
        for entry in message.participants:  # what takes long comes last
            if entry.client != self.client.number:
                self.check_entry(entry, directory, message.round)
        self._list = message
        meter("ed25519.sign")
        return ListSignature(self.client.identity.signing.sign(LIST_DOMAIN, self._content))

    def check_population(self, population: int) -> None:
        """Is the announced population large enough for this client's safety?"""
        honest = self.parameters.smallest_population(self.environment.population)
        minimum = self.parameters.min_population or honest
        if population < minimum:
            raise Refusal("lotto.population-below-minimum", f"n = {population} announced, n_min = {minimum}")

    # -- stage 3: consistency check -------------------------------------------------------------------------------

    @handles(ListSignatures)
    def on_signatures(self, message: ListSignatures) -> Agreed:
        """Verify that enough participants have signed the very list that this client has."""
        if self._list is None or not message.round == self._list.round == self.client.last_round:
            raise Refusal("lotto.no-list", "signatures for a list that this client has not seen")
        keys = {entry.client: entry.registration_key for entry in self._list.participants}
        signed = {row.client: row.signature for row in message.signatures}
        if len(signed) != len(message.signatures) or not signed.keys() <= keys.keys():
            raise Refusal("lotto.foreign-signature", "a signature twice, or of somebody who is not in the list")
        needed = self.parameters.quorum_of(len(keys))
        if len(signed) < needed:
            raise Refusal("lotto.too-few-signatures", f"{len(signed)} of {needed} needed")
        meter("ed25519.verify", len(signed))
        for client, signature in signed.items():
            try:
                signatures.verify(keys[client], LIST_DOMAIN, self._content, signature)
            except ProtocolError:
                raise Refusal("lotto.inconsistent-lists", f"client {client} has not signed this list") from None
        self.client.agreed_participants = keys
        return Agreed()
