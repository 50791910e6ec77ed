"""Member's side of the set-up of a committee of `flamingo`, including former members that hand over; see `set_up`."""

from collections.abc import Sequence
from typing import ClassVar

from testbed.aggregation.flamingo.certificates import check_certificate
from testbed.aggregation.flamingo.messages import SERVICE_DOMAIN, SealedMemberState, service_content
from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.aggregation.flamingo.set_up import SetUp
from testbed.aggregation.flamingo.set_up_messages import (
    COMPLAINTS_DOMAIN,
    DEALING_DOMAIN,
    DEALING_PURPOSE,
    KNOWN_DOMAIN,
    AnswerComplaints,
    Answered,
    CheckDealings,
    Complaints,
    ComplaintsOf,
    Deal,
    Dealing,
    DealingOf,
    DealtShares,
    FinishSetUp,
    Former,
    Serving,
    ShareInTheOpen,
    commitments_digest,
    complaints_content,
    dealing_content,
    dealings_digest,
    open_dealt,
    seal_dealt,
)
from testbed.aggregation.flamingo.state import opened_state, sealed_state
from testbed.aggregation.kit.participant import Participant
from testbed.committee.choice import verified
from testbed.committee.messages import CommitteeList
from testbed.crypto import InvalidShares, InvalidSignature, OpeningFailed, feldman, signatures
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.parties.client import Client, StageTable, Transition, handles

ORDER = "flamingo.out-of-order"


class SetUpMember(Participant):
    """A member, or former member, in one round. It serves once per round, and never in an earlier round again.

    Attributes:
        set_up: the set-up in which it takes part.
        polynomial: the polynomial that it deals, after dealing.
        dealings: the dealings that it was shown.
        dealt: by dealer, its share; dealers without a share that opened are missing.
        complained: the dealers about which it complains.
    """

    STAGES: ClassVar[StageTable] = StageTable(
        start="idle",
        rows={
            Deal: Transition(sources={"idle"}, target="dealt", refusal=ORDER, starts_round=True),
            CheckDealings: Transition(sources={"idle", "dealt"}, target="checked", refusal=ORDER, starts_round=True),
            AnswerComplaints: Transition(sources={"dealt", "checked"}, target=None, refusal=ORDER),
            FinishSetUp: Transition(sources={"checked"}, target="ready", refusal=ORDER),
        },
    )
    parameters: FlamingoParameters
    set_up: SetUp | None = None
    polynomial: list[bytes] | None = None
    dealings: Sequence[DealingOf]

    def __init__(self, client: Client, parameters: FlamingoParameters) -> None:
        super().__init__(client, parameters)
        self.dealt: dict[int, bytes] = {}
        self.complained: list[int] = []

    def serve(self, round_number: int) -> None:
        """Begin to serve in this round; refuses a round in which it has served before, or that is over."""
        if round_number == self.round:
            return
        # A member that served twice in a round could open shares for two sets of labels.
        if round_number <= self.client.last_served or round_number > self.environment.rounds:
            raise Refusal("flamingo.round-reused", f"round {round_number}; served in {self.client.last_served}")
        self.client.last_served = self.round = round_number

    def begin_set_up(self, round_number: int, committee: CommitteeList, former: Former | None) -> SetUp:
        """Return the set-up in question; refuses committees other than those that all parties can derive."""
        self.serve(round_number)
        section, environment = self.parameters.committee, self.environment
        proposed = SetUp(round_number, committee, former, section)
        if self.set_up is not None:
            if self.set_up.digest != proposed.digest:
                raise Refusal(
                    "flamingo.set-up-mismatch", "the question is about another set-up than before in this round"
                )
            return self.set_up
        verified(section, committee, round_number, environment)
        if former is not None:
            service = former.certificate.service
            if service.committee.first_round >= committee.first_round:
                raise Refusal("flamingo.no-previous-committee", "the former committee is not earlier than the new one")
            check_certificate(former.certificate, section, service.committee.first_round, environment)
            # Under other commitments a server could hand over a key of its own.
            if commitments_digest(former.commitments) != service.commitments:
                raise Refusal("flamingo.commitments-mismatch", "the former members have signed other commitments")
        self.set_up = proposed
        environment.look_up({*proposed.members, *proposed.dealers})
        return proposed

    # -- dealing ------------------------------------------------------------------------------------------------------

    @handles(Deal)
    def on_deal(self, message: Deal, private: SealedMemberState) -> Dealing:
        """Deal a random secret, or the share of the former key, among the members."""
        with self.progress.answering(message, message.round):
            set_up = self.begin_set_up(message.round, message.committee, message.former)
            if self.number not in set_up.dealers:
                raise Refusal("flamingo.not-a-member", f"client {self.number} is not a dealer of this set-up")
            secret = self.secret_to_deal(set_up, private.sealed)
            entropy = self.secret("flamingo polynomial")
            self.polynomial = feldman.polynomial(secret, set_up.threshold, entropy)
            committed = list(feldman.commitments(self.polynomial))
            shares = [self.sealed_share(set_up, member, committed) for member in set_up.members]
            meter("edwards25519.multiply_base", set_up.threshold)
            meter("scalar.multiply", len(shares) * (set_up.threshold - 1))
            meter("x25519.agree", len(shares))
            meter("aead.seal", len(shares))
            content = dealing_content(set_up.digest, self.number, committed)
            return Dealing(committed, shares, self.sign(DEALING_DOMAIN, content), self.knowledge_proof(secret, content))

    def knowledge_proof(self, secret: bytes, content: bytes) -> bytes:
        """Return the proof that the dealer knows its secret."""
        meter("edwards25519.multiply_base", 2)
        return signatures.sign_with_scalar(secret, KNOWN_DOMAIN + self.environment.experiment_id, content)

    def secret_to_deal(self, set_up: SetUp, sealed: bytes) -> bytes:
        """Return the scalar that this dealer deals."""
        if set_up.former is None:
            return feldman.random_scalar(self.secret("flamingo dealt secret"))
        return self.own_share(set_up.former.certificate.service.digest, sealed)

    def own_share(self, service: bytes, sealed: bytes) -> bytes:
        """Return the share that the member has sealed for itself; refuses the share of another service."""
        meter("aead.open")
        try:
            of, share = opened_state(self.identity, self.environment.experiment_id, sealed)
        except OpeningFailed as error:
            raise Refusal("flamingo.invalid-state", f"the state does not open: {error}") from None
        if of != service:
            raise Refusal("flamingo.invalid-state", "the sealed state is of another service")
        return share

    def sealed_share(self, set_up: SetUp, member: int, committed: Sequence[bytes]) -> bytes:
        """Return a member's share of the dealt secret, sealed for it."""
        assert self.polynomial is not None
        share = feldman.share_at(self.polynomial, set_up.members[member])
        return seal_dealt(self.pair_key(member), self.number, member, share, set_up.digest, committed)

    def pair_key(self, other: int) -> bytes:
        """Return the key that dealer and member agree on."""
        return self.shared_key(other, DEALING_PURPOSE)

    # -- checking -----------------------------------------------------------------------------------------------------

    @handles(CheckDealings)
    def on_check_dealings(self, message: CheckDealings, private: DealtShares) -> Complaints:
        """Verify the dealings, and complain about dealers if a share does not match the commitments."""
        with self.progress.answering(message, message.round):
            set_up = self.begin_set_up(message.round, message.committee, message.former)
            if self.number not in set_up.members:
                raise Refusal("flamingo.not-a-member", f"client {self.number} is not on the committee that is set up")
            self.check_dealings(set_up, message.dealings)
            self.dealings = message.dealings
            if len(private.shares) != len(message.dealings):
                detail = f"{len(private.shares)} shares for {len(message.dealings)} dealings"
                raise Refusal("flamingo.shares-mismatch", detail)
            self.open_dealt_shares(set_up, private.shares)
            self.complained = self.dealers_at_fault(set_up)
            content = complaints_content(self.dealings_digest(set_up), self.number, self.complained)
            return Complaints(self.complained, self.sign(COMPLAINTS_DOMAIN, content))

    def check_dealings(self, set_up: SetUp, dealings: Sequence[DealingOf]) -> None:
        """Refuse dealings that an honest server would have left out."""
        dealers = [dealing.dealer for dealing in dealings]
        if dealers != [dealer for dealer in set_up.dealers if dealer in set(dealers)]:
            raise Refusal("flamingo.unexpected-dealer", "dealers are listed twice, out of order, or are unknown")
        if len(dealers) < set_up.needed:
            raise Refusal("flamingo.too-few-dealers", f"{len(dealers)} have dealt, {set_up.needed} needed")
        for dealing in dealings:
            set_up.check_dealing(dealing.dealer, dealing.commitments)
            content = dealing_content(set_up.digest, dealing.dealer, dealing.commitments)
            self.check_signed(DEALING_DOMAIN, dealing.dealer, content, dealing.signature)
            try:
                # As in FROST (Komlo, Goldberg, SAC 2020): without the proof, a dealt point could cancel the honest
                # dealers' keys and leave a key of the server. Shares are no such proof: the server may show them to
                # only t - x honest members, and commitments that fit these and the x accomplices' shares exist for any
                # point.
                self.verify(dealing.commitments[0], KNOWN_DOMAIN, content, dealing.proof_of_knowledge)
            except InvalidSignature:
                detail = f"client {dealing.dealer} has not proven that it knows the secret that it deals"
                raise Refusal("flamingo.invalid-dealing", detail) from None

    def check_signed(self, domain: bytes, client: int, content: bytes, signature: bytes) -> None:
        """Refuse content that this client has not signed."""
        try:
            self.verify(self.environment.directory.signing_key(client), domain, content, signature)
        except InvalidSignature:
            detail = f"the signature of client {client} does not match the content shown"
            raise Refusal("flamingo.invalid-signature", detail) from None

    def open_dealt_shares(self, set_up: SetUp, sealed: Sequence[bytes]) -> None:
        """Store the shares that open."""
        meter("x25519.agree", len(sealed))
        meter("aead.open", len(sealed))
        for dealing, ciphertext in zip(self.dealings, sealed, strict=True):
            try:
                key = self.pair_key(dealing.dealer)
                share = open_dealt(key, dealing.dealer, self.number, ciphertext, set_up.digest, dealing.commitments)
            except OpeningFailed:
                continue
            self.dealt[dealing.dealer] = share

    def dealers_at_fault(self, set_up: SetUp) -> list[int]:
        """Return the dealers of shares that did not open or are not on the polynomial."""
        # If the combination of all used shares is right, accept them all: this multiplies points once, not per dealer.
        point, used = set_up.members[self.number], set_up.used(self.dealings)
        shares = [self.dealt[dealing.dealer] for dealing in used if dealing.dealer in self.dealt]
        if len(shares) == len(used) and self.holds(set_up, used, shares):
            return []
        meter("edwards25519.multiply", len(self.dealings) * (set_up.threshold - 1))
        meter("edwards25519.add", len(self.dealings) * (set_up.threshold - 1))
        return [
            dealing.dealer
            for dealing in self.dealings
            if not feldman.is_share(self.dealt.get(dealing.dealer, b""), dealing.commitments, point)
        ]

    def holds(self, set_up: SetUp, dealings: Sequence[DealingOf], shares: Sequence[bytes]) -> bool:
        """Return whether these shares, combined, are on the combined polynomial of these dealings."""
        meter("scalar.multiply", len(shares))
        meter("edwards25519.multiply_base")
        meter("edwards25519.multiply", set_up.threshold - 1)
        meter("edwards25519.add", set_up.threshold - 1)
        try:
            share = feldman.weighted_shares(shares, set_up.weights(dealings))
            return feldman.is_share(share, set_up.commitments(dealings), set_up.members[self.number])
        except InvalidShares:
            return False

    def dealings_digest(self, set_up: SetUp) -> bytes:
        """Return a digest that is equal for all members that were shown the same dealings."""
        return dealings_digest(set_up.digest, self.dealings)

    # -- complaints ---------------------------------------------------------------------------------------------------

    @handles(AnswerComplaints)
    def on_answer_complaints(self, message: AnswerComplaints) -> Answered:
        """Reveal the shares of the members that complain about this dealer: once, and too few to decrypt with."""
        self.progress.check(message, message.round)
        # Forget the polynomial first: a second list of complaints would reveal further shares.
        set_up, polynomial, self.polynomial = self.set_up, self.polynomial, None
        if set_up is None or polynomial is None:
            raise Refusal(ORDER, f"client {self.number} has not dealt, or has already answered complaints")
        self.check_complaints(set_up, message.dealings, message.complaints)
        about = [row.member for row in message.complaints if self.number in row.against]
        # With the shares of dishonest members, more revealed shares would be t: the dealt secret.
        if len(about) > set_up.most_complaints:
            raise Refusal("flamingo.too-many-complaints", f"{len(about)} complaints; at most {set_up.most_complaints}")
        meter("scalar.multiply", len(about) * (set_up.threshold - 1))
        shares = [feldman.share_at(polynomial, set_up.members[member]) for member in about]
        return Answered([ShareInTheOpen(self.number, *pair) for pair in zip(about, shares, strict=True)])

    def check_complaints(self, set_up: SetUp, dealings: bytes, complaints: Sequence[ComplaintsOf]) -> None:
        """Refuse complaints that members have not signed."""
        members = [row.member for row in complaints]
        if len(set(members)) != len(members) or not set(members) <= set_up.members.keys():
            detail = "a member's complaints are listed twice, or a client is not a member"
            raise Refusal("flamingo.unexpected-complaint", detail)
        for row in complaints:
            content = complaints_content(dealings, row.member, row.against)
            self.check_signed(COMPLAINTS_DOMAIN, row.member, content, row.signature)

    # -- the service --------------------------------------------------------------------------------------------------

    @handles(FinishSetUp)
    def on_finish(self, message: FinishSetUp) -> Serving:
        """Combine the shares of the dealings that count; sign the key, and seal the share for later rounds."""
        with self.progress.answering(message, message.round):
            set_up = self.set_up
            assert set_up is not None
            self.check_complaints(set_up, self.dealings_digest(set_up), message.complaints)
            own = next((row.against for row in message.complaints if row.member == self.number), [])
            # A server that withholds a complaint could make a wrong share count.
            if own != self.complained:
                raise Refusal("flamingo.complaints-withheld", "this member's own complaints are missing")
            counting, shown = set_up.qualified(self.dealings, message.complaints, message.answered)
            try:
                shares = [
                    shown[dealer, self.number] if dealer in own else self.dealt[dealer]
                    for dealer in (dealing.dealer for dealing in counting)
                ]
                commitments = set_up.commitments(counting)
                service = set_up.service(commitments).digest
            except (InvalidShares, KeyError) as error:
                raise Refusal("flamingo.invalid-dealing", f"the dealings give no key: {error}") from None
            # The last check of all shares at once: a member with a wrong share would give wrong decryptions.
            if not self.holds(set_up, counting, shares):
                raise Refusal("flamingo.invalid-dealing", "this member's combined share is not on the polynomial")
            share = feldman.weighted_shares(shares, set_up.weights(counting))
            meter("aead.seal")
            state = sealed_state(self.identity, self.environment.experiment_id, service, share)
            return Serving(service, self.sign(SERVICE_DOMAIN, service_content(service)), state)
