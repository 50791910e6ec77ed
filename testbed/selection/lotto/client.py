"""Client side shared by both variants of Lotto (arXiv 2401.02880, section 3.4): verification and consistency.

Each failed check is a refusal with its own code. The table `STAGES` says which question a client accepts in which
state.
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
"""The states in which a client accepts each question, in both variants.

A round is announced; then its participants are shown one list and the signatures on that list. A client accepts a valid
announcement in every state, also after it has refused another announcement. In the server-centric variant the list also
announces its round.

A client accepts one list in each round: a client that signed a second list could be made to agree with peers that hold
another list. After a refused list, or an announcement that follows a list, the state is "over". Signatures on the
signed list may be shown again until another round is announced.
"""


class LottoClient(Role):
    """One client in one round; the methods follow the protocol's stages.

    Attributes:
        output_bytes: length of a client's number.
        progress: state in the table `STAGES`.
        randomness: the beacon's randomness for the round; empty if there is no beacon.
        participant_list: the list that the client has signed.
        content: the signed bytes of that list.
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

    # -- differences between the variants -------------------------------------------------------------------------

    def check_round(self, message: ParticipantList) -> None:
        """Refuse a list for another round or population than the announced one."""
        raise NotImplementedError

    def check_own_entry(self, entry: ParticipantEntry) -> None:
        """Refuse a list in which this client's entry differs from the client's own claim."""
        raise NotImplementedError

    def check_entry(self, entry: ParticipantEntry, directory: Directory, round_number: int) -> None:
        """Refuse an entry with a number that does not follow from the protocol.

        Args:
            entry: row of the list.
            directory: public keys of the participants.
            round_number: the list's round.
        """
        raise NotImplementedError

    # -- stage 1: a round begins ----------------------------------------------------------------------------------

    def check_population(self, population: int) -> None:
        """Refuse a population smaller than n_min."""
        honest = self.parameters.smallest_population(self.environment.population)
        minimum = self.parameters.min_population or honest
        if population < minimum:
            raise Refusal("lotto.population-below-minimum", f"n = {population} announced, n_min = {minimum}")

    @property
    def uses_beacon(self) -> bool:
        """Whether a beacon opens the rounds."""
        return self.parameters.round_beacon == "public"

    def take_pulse(self, number: int, pulse: bytes | None) -> None:
        """Verify that the beacon has opened this round, and store its randomness; do nothing without a beacon.

        Args:
            number: the round.
            pulse: the beacon's signature for the round.
        """
        if not self.uses_beacon:
            return
        try:
            check_pulse(self.environment.directory.beacon, self.environment.experiment_id, number, pulse)
        except ProtocolError as error:
            raise Refusal("lotto.round-not-opened", f"round {number}: {error}") from None
        assert pulse is not None
        self.randomness = randomness_of(pulse)

    def use_round(self, number: int) -> None:
        """Refuse a round number that was used before; otherwise end the agreement of the last round."""
        if number <= self.client.last_round:
            raise Refusal("lotto.round-reused", f"round {number} was used before")
        if number > self.environment.rounds:
            raise Refusal("lotto.after-last-round", f"round {number} of {self.environment.rounds}")
        self.client.last_round = number
        self.client.agreed_participants = None
        self.progress.begin(number)

    def selection_input(self, round_number: int) -> bytes:
        """Return the input of the VRF or PRF in this round."""
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
        """Verify a participant list.

        Returns:
            The bytes to sign.

        Raises:
            Refusal: a check fails; its code names the check.
        """
        self.check_population(message.population)
        entries = {entry.client: entry for entry in message.participants}
        if len(entries) != len(message.participants):
            raise Refusal("lotto.duplicate-client", "a client stands twice in the list")
        self.check_size(entries)
        own = entries.get(self.client.number)
        if own is None:
            raise Refusal("lotto.not-in-list", "sent a list that this client is not in")
        assert self.client.identity is not None
        if own.registration_key != self.client.identity.signing.public:
            raise Refusal("lotto.own-entry-mismatch", "the list holds another registration key for this client")
        self.check_own_entry(own)
        directory = self.environment.look_up(entries)
        for entry in message.participants:
            if directory.signing_key(entry.client) != entry.registration_key:
                raise Refusal("lotto.registration-key-mismatch", f"client {entry.client} has another key at the PKI")
            if len(entry.output) != self.output_bytes:
                raise Refusal(
                    "lotto.above-threshold", f"client {entry.client} has no number of {self.output_bytes} bytes"
                )
        self.check_threshold(message)
        content = list_content(self.environment.experiment_id, self.parameters, message)
        self.check_registered(message, content)
        self.verify_together(message, directory)
        for entry in message.participants:  # the expensive checks come last
            if entry.client != self.client.number:
                self.check_entry(entry, directory, message.round)
        return content

    def verify_together(self, message: ParticipantList, directory: Directory) -> None:
        """Prepare the checks of all entries at once, where that is faster and results are memoised."""
        return

    def check_size(self, participants: Collection[int]) -> None:
        """Refuse a list that does not have the agreed number of participants."""
        if len(participants) != self.parameters.participants:
            raise Refusal(
                "lotto.wrong-size",
                f"{len(participants)} participants announced, {self.parameters.participants} agreed on",
            )

    def check_threshold(self, message: ParticipantList) -> None:
        """Refuse a list with a number that is not below the threshold. All numbers have the right length here."""
        for entry in message.participants:
            if not under_threshold(
                entry.output, self.parameters.factor, self.parameters.participants, message.population
            ):
                raise Refusal("lotto.above-threshold", f"client {entry.client} is not a candidate")

    def check_registered(self, message: ParticipantList, content: bytes) -> None:
        """Refuse a list that the beacon has not registered as the round's only list; do nothing without a beacon."""
        if not self.uses_beacon:
            return
        receipt = None if message.beacon is None else message.beacon.receipt
        registered_for = self.environment.directory.beacon, self.environment.experiment_id, message.round
        try:
            check_receipt(*registered_for, list_digest(content), receipt)
        except ProtocolError as error:
            raise Refusal("lotto.list-not-registered", f"the list of round {message.round}: {error}") from None

    def sign(self, content: bytes) -> ListSignature:
        """Sign a list.

        Args:
            content: the bytes from `verify`.
        """
        assert self.client.identity is not None
        meter("ed25519.sign")
        return ListSignature(self.client.identity.signing.sign(LIST_DOMAIN, content))

    # -- stage 3: consistency check -------------------------------------------------------------------------------

    @handles(ListSignatures)
    def on_signatures(self, message: ListSignatures) -> Agreed:
        """Verify that enough participants have signed the list that this client holds."""
        with self.progress.answering(message, message.round):
            keys = {entry.client: entry.registration_key for entry in self.participant_list.participants}
            self.check_signatures(message, keys)
            self.client.agreed_participants = keys
            return Agreed()

    def check_signatures(self, message: ListSignatures, keys: Mapping[int, bytes]) -> None:
        """Refuse too few signatures, or a signature that does not verify.

        Args:
            message: the signatures.
            keys: registration key of each participant.
        """
        signed = {row.client: row.signature for row in message.signatures}
        if len(signed) != len(message.signatures) or not signed.keys() <= keys.keys():
            raise Refusal("lotto.unexpected-signature", "a signature occurs twice, or its signer is not in the list")
        needed = self.parameters.quorum_of(len(keys))
        if len(signed) < needed:
            raise Refusal("lotto.too-few-signatures", f"{len(signed)} of {needed} needed")
        meter("ed25519.verify", len(signed))
        for client, signature in signed.items():
            try:
                memo.verify(keys[client], LIST_DOMAIN, self.content, signature)
            except ProtocolError:
                raise Refusal("lotto.inconsistent-lists", f"client {client} has not signed this list") from None
