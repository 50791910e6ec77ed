"""Client side of what both variants of Lotto share (arXiv 2401.02880, section 3.4): verification and consistency.

Each failed check is a refusal that names it.
"""

from collections.abc import Collection
from typing import ClassVar

from testbed.crypto import signatures
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, Refusal
from testbed.parties.client import Client, Role, handles
from testbed.parties.pki import Directory
from testbed.parties.round_beacon import check_pulse, check_receipt, randomness_of
from testbed.selection.lotto.candidacy import selection_input, under_threshold
from testbed.selection.lotto.messages import (
    LIST_DOMAIN,
    Agreed,
    ListSignature,
    ListSignatures,
    ParticipantEntry,
    ParticipantList,
    list_content,
    list_digest,
)
from testbed.selection.lotto.parameters import AgreedListParameters


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
    def uses_beacon(self) -> bool:
        """Whether a beacon opens the rounds."""
        return self.parameters.round_beacon == "public"

    def take_pulse(self, number: int, pulse: bytes | None) -> None:
        """Verify that the beacon has opened this round, and keep its randomness; nothing where there is no beacon."""
        if not self.uses_beacon:
            return
        try:
            check_pulse(self.environment.directory.beacon, self.environment.experiment_id, number, pulse)
        except ProtocolError as error:
            raise Refusal("lotto.round-not-opened", f"round {number}: {error}") from None
        assert pulse is not None
        self._randomness = randomness_of(pulse)

    def selection_input(self, round_number: int) -> bytes:
        """What the VRF or PRF is evaluated on in this round."""
        return selection_input(self.environment.experiment_id, round_number, self._randomness)

    def check_registered(self, message: ParticipantList) -> None:
        """Has the beacon registered this list, which is then the round's only one? Nothing where there is no beacon."""
        if not self.uses_beacon:
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
