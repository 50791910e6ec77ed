"""Client side of what both variants of Lotto share (arXiv 2401.02880, section 3.4): verification and consistency.

Each failed check is a refusal that names it. Which question may come when is a table, `STAGES`.
"""

from collections.abc import Collection, Mapping
from typing import ClassVar

from testbed.crypto import memo
from testbed.crypto.sortition import under_threshold
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, Refusal
from testbed.parties.client import Client, Role, StageTable, Transition, handles
from testbed.parties.pki import Directory
from testbed.parties.round_beacon import check_pulse, check_receipt, randomness_of
from testbed.selection.lotto.messages import (
    LIST_DOMAIN,
    Agreed,
    ListSignature,
    ListSignatures,
    ParticipantEntry,
    ParticipantList,
    list_content,
    list_digest,
    selection_input,
)
from testbed.selection.lotto.parameters import AgreedListParameters

STAGES = StageTable(
    start="new",
    new_round={"new": "announced", "announced": "announced", "signed": "over", "over": "over"},
    rows={
        ParticipantList: Transition(
            sources={"announced"},
            target="signed",
            target_on_refusal="over",
            refusal="lotto.second-list",
            detail="a list for round {round} was shown before",
            other_round=("lotto.unannounced-round", "a list for round {round}, which was not announced"),
        ),
        ListSignatures: Transition(
            sources={"signed"},
            target=None,
            refusal="lotto.no-list",
            detail="signatures for a list that this client has not seen",
        ),
    },
)
"""Which question is answered when, in both variants.

A round is announced, then its participants are shown one list and the signatures on it. An announcement is answered in
every state if its checks hold: a valid one also after one that was refused. In the server-centric variant the list
announces its round, too.

One list, whatever comes of it: a client that signed a second one could be made to agree with peers who hold another.
After one that was refused, or another announcement after a list, it is "over". Signatures on the list that was signed
may be shown again, as long as no other round has been announced.
"""


class LottoClient(Role):
    """One client in one round; the methods follow the protocol's stages.

    Attributes:
        output_bytes: length of a client's number.
        progress: how far it has come.
        randomness: what the beacon has opened the round with; empty where there is no beacon.
        participant_list: the list that it has signed.
        content: what it has signed of it.
    """

    STAGES: ClassVar[StageTable] = STAGES
    output_bytes: ClassVar[int]
    parameters: AgreedListParameters
    participant_list: ParticipantList
    content: bytes

    def __init__(self, client: Client, parameters: AgreedListParameters) -> None:
        super().__init__(client, parameters)
        self.progress = self.STAGES.progress()
        self.randomness = b""

    # -- what the variants differ in ------------------------------------------------------------------------------

    def check_round(self, message: ParticipantList) -> None:
        """Is this the round, and the population, that this client knows of?"""
        raise NotImplementedError

    def check_own_entry(self, entry: ParticipantEntry) -> None:
        """Is this client's entry what the client said?"""
        raise NotImplementedError

    def check_entry(self, entry: ParticipantEntry, directory: Directory, round_number: int) -> None:
        """Did this number come about as the protocol says?"""
        raise NotImplementedError

    # -- stage 1: a round begins ----------------------------------------------------------------------------------

    def check_population(self, population: int) -> None:
        """Is the announced population large enough for this client's safety?"""
        honest = self.parameters.smallest_population(self.environment.population)
        minimum = self.parameters.min_population or honest
        if population < minimum:
            raise Refusal("lotto.population-below-minimum", f"n = {population} announced, n_min = {minimum}")

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
        self.randomness = randomness_of(pulse)

    def use_round(self, number: int) -> None:
        """A round number serves once, and what was agreed on in an earlier one ends with it."""
        if number <= self.client.last_round:
            raise Refusal("lotto.round-used", f"round {number} was used before")
        if number > self.environment.rounds:
            raise Refusal("lotto.round-beyond-the-last", f"round {number} of {self.environment.rounds}")
        self.client.last_round = number
        self.client.agreed_participants = None
        self.progress.begin(number)

    def selection_input(self, round_number: int) -> bytes:
        """What the VRF or PRF is evaluated on in this round."""
        return selection_input(self.environment.experiment_id, round_number, self.randomness)

    # -- stage 2: client verification -----------------------------------------------------------------------------

    @handles(ParticipantList)
    def on_list(self, message: ParticipantList) -> ListSignature:
        """Verify the participant list and sign it."""
        self.check_round(message)
        with self.progress.answering(message, message.round):
            self.content = self.verify(message)
            self.participant_list = message
            return self.sign(self.content)

    def verify(self, message: ParticipantList) -> bytes:
        """What is to be signed of a list in which everything is as the protocol says."""
        self.check_population(message.population)
        entries = {entry.client: entry for entry in message.participants}
        if len(entries) != len(message.participants):
            raise Refusal("lotto.listed-twice", "a client stands twice in the list")
        self.check_size(entries)
        own = entries.get(self.client.number)
        if own is None:
            raise Refusal("lotto.not-in-list", "sent a list that this client is not in")
        assert self.client.identity is not None
        if own.registration_key != self.client.identity.signing.public:
            raise Refusal("lotto.own-entry-changed", "the list holds another registration key for this client")
        self.check_own_entry(own)
        directory = self.environment.look_up(entries)
        for entry in message.participants:
            if directory.signing_key(entry.client) != entry.registration_key:
                raise Refusal("lotto.wrong-registration-key", f"client {entry.client} has another key at the PKI")
            if len(entry.output) != self.output_bytes:
                raise Refusal(
                    "lotto.over-threshold", f"client {entry.client} has no number of {self.output_bytes} bytes"
                )
        self.check_threshold(message)
        content = list_content(self.environment.experiment_id, self.parameters, message)
        self.check_registered(message, content)
        self.verify_together(message, directory)
        for entry in message.participants:  # what takes long comes last
            if entry.client != self.client.number:
                self.check_entry(entry, directory, message.round)
        return content

    def verify_together(self, message: ParticipantList, directory: Directory) -> None:
        """Called before the entries are checked: what is faster for all at once, where results are memo."""
        return

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

    def check_registered(self, message: ParticipantList, content: bytes) -> None:
        """Has the beacon registered this list, which is then the round's only one? Nothing where there is no beacon."""
        if not self.uses_beacon:
            return
        receipt = None if message.beacon is None else message.beacon.receipt
        known = self.environment.directory.beacon, self.environment.experiment_id, message.round
        try:
            check_receipt(*known, list_digest(content), receipt)
        except ProtocolError as error:
            raise Refusal("lotto.list-not-registered", f"the list of round {message.round}: {error}") from None

    def sign(self, content: bytes) -> ListSignature:
        """The client's signature on a list."""
        assert self.client.identity is not None
        meter("ed25519.sign")
        return ListSignature(self.client.identity.signing.sign(LIST_DOMAIN, content))

    # -- stage 3: consistency check -------------------------------------------------------------------------------

    @handles(ListSignatures)
    def on_signatures(self, message: ListSignatures) -> Agreed:
        """Verify that enough participants have signed the very list that this client has."""
        with self.progress.answering(message, message.round):
            keys = {entry.client: entry.registration_key for entry in self.participant_list.participants}
            self.check_signatures(message, keys)
            self.client.agreed_participants = keys
            return Agreed()

    def check_signatures(self, message: ListSignatures, keys: Mapping[int, bytes]) -> None:
        """Are there enough signatures on the list, by participants, who have these keys?"""
        signed = {row.client: row.signature for row in message.signatures}
        if len(signed) != len(message.signatures) or not signed.keys() <= keys.keys():
            raise Refusal("lotto.foreign-signature", "a signature twice, or of somebody who is not in the list")
        needed = self.parameters.quorum_of(len(keys))
        if len(signed) < needed:
            raise Refusal("lotto.too-few-signatures", f"{len(signed)} of {needed} needed")
        meter("ed25519.verify", len(signed))
        for client, signature in signed.items():
            try:
                memo.verify(keys[client], LIST_DOMAIN, self.content, signature)
            except ProtocolError:
                raise Refusal("lotto.inconsistent-lists", f"client {client} has not signed this list") from None
