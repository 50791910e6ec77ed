"""The side of `one-shot` that serves on the committee: open the shares of one set of clients, and sum them.

It may be no participant of the round itself, so all that it knows of the clients is what the server says, and that
their shares open: only for what those clients were told, too (`context_digest`).
"""

from typing import ClassVar

from testbed.aggregation.one_shot.client import ORDER, code_of
from testbed.aggregation.one_shot.messages import (
    SEALING_PURPOSE,
    SURVIVORS_DOMAIN,
    OpenShares,
    ShareFrom,
    SharesFromSurvivors,
    SignedSurvivors,
    SummedShares,
    SumShares,
    context_digest,
    open_share,
    survivors_content,
)
from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.aggregation.participant import Participant, row
from testbed.aggregation.secagg.messages import SignatureOf
from testbed.committee.choice import verified
from testbed.crypto import OpeningFailed, remembered
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.prime_field import ELEMENT_BYTES, Elements, elements_to_bytes, total
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.parties.client import Client, StageTable, handles


class OneShotMember(Participant):
    """One member of the committee in one round.

    Attributes:
        opened: the question that named the survivors.
        code: how keys are shared.
        signed: what it has signed of the survivors.
        summed: the sum of the survivors' shares.
    """

    STAGES: ClassVar[StageTable] = StageTable(
        start="new", rows={OpenShares: row("new", "signed", ORDER), SumShares: row("signed", "summed", ORDER)}
    )
    parameters: OneShotParameters
    opened: OpenShares
    code: MaskCode
    signed: bytes
    summed: Elements

    def __init__(self, client: Client, parameters: OneShotParameters) -> None:
        super().__init__(client, parameters)
        self.batches = parameters.batch_policy(self.environment.batches)

    # -- OpenShares ---------------------------------------------------------------------------------------------------

    @handles(OpenShares)
    def on_open_shares(self, message: OpenShares, private: SharesFromSurvivors) -> SignedSurvivors:
        """Sign the one set of survivors whose shares this member will sum, once they have all opened."""
        with self.progress.answering(message, message.round):
            self.begin_service(message)
            self.check_told(message)
            self.check_survivors(message)
            environment, committee = self.environment, message.committee
            context = context_digest(
                environment.experiment_id, self.round, message.participants, message.training, message.agreed,
                committee, self.code, self.parameters.bits,
            )  # fmt: skip
            self.opened, survivors = message, sorted(message.survivors)
            self.summed = self.sum_of(survivors, private.shares, context)
            self.signed = survivors_content(self.round, survivors, context)
            return SignedSurvivors(self.sign(SURVIVORS_DOMAIN, self.signed))

    def begin_service(self, message: OpenShares) -> None:
        """Refuse a round in which it does not serve, or has served before: two sums' difference is an update."""
        client = self.client
        if message.round <= client.last_served or message.round > self.environment.rounds:
            detail = f"round {message.round}; served up to {client.last_served}, of {self.environment.rounds}"
            raise Refusal("one-shot.served-before", detail)
        if self.number not in message.committee.clients:
            raise Refusal("one-shot.not-a-member", "asked to serve on a committee that it is not on")
        verified(self.parameters.committee, message.committee, message.round, self.environment)
        self.code = code_of(self.parameters, message.committee)
        self.round = client.last_served = message.round

    def check_told(self, message: OpenShares) -> None:
        """Refuse what no honest server can have told the clients."""
        self.check_announced(message.participants)
        bound = 0 if self.parameters.model_binding == "none" else 32
        if len(message.training) != bound:
            raise Refusal("one-shot.unbound", "the clients' shares are not bound to what they were asked to train")
        agreed = self.environment.participants_are_agreed
        if len(set(message.agreed)) != (message.participants if agreed else 0):
            raise Refusal("one-shot.other-participants", "not a list of all participants, on which they have agreed")

    def check_announced(self, participants: int) -> None:
        """Refuse a round of so many, where no honest server has such; it may itself be none of them."""
        fewest, most = max(2, self.environment.minimum_participants), self.environment.maximum_participants
        if not fewest <= participants <= most:
            raise Refusal("one-shot.wrong-size", f"{participants} announced, never fewer than {fewest} or over {most}")

    def check_survivors(self, message: OpenShares) -> None:
        """Refuse a set that no honest server sums."""
        survivors, fewest = set(message.survivors), self.parameters.fewest(message.participants)
        if len(survivors) != len(message.survivors):
            raise Refusal("one-shot.foreign-survivor", "a survivor twice")
        if message.agreed and not survivors <= set(message.agreed):
            raise Refusal("one-shot.foreign-survivor", "a survivor that is not on the agreed list")
        if not fewest <= len(survivors) <= message.participants:
            detail = f"{len(survivors)} of {message.participants} survive, never fewer than {fewest}"
            raise Refusal("one-shot.too-few", detail)
        self.batches.check_survivors(message.survivors)

    def sum_of(self, survivors: list[int], shares: list[ShareFrom], context: bytes) -> Elements:
        """`(piece_length,)` the sum of the survivors' shares; refuses unless each has sealed one, in this context."""
        sealed = {share.client: share.sealed for share in shares}
        if len(sealed) != len(shares) or sealed.keys() != set(survivors):
            raise Refusal("one-shot.foreign-shares", "not one share of each survivor")
        directory, identity = self.environment.look_up(survivors), self.client.identity
        assert identity is not None
        opened = []
        for client in survivors:
            pair_key = remembered.agree(identity.agreement, directory.agreement_key(client), SEALING_PURPOSE)
            try:
                opened.append(open_share(pair_key, client, self.number, sealed[client], context, self.code))
            except OpeningFailed as error:
                raise Refusal("one-shot.bad-share", f"client {client}: {error}") from None
        elements = len(survivors) * self.code.piece_length
        meter("x25519.agree", len(survivors))
        meter("aead.open", len(survivors))
        meter("aead.byte", ELEMENT_BYTES * elements)
        meter("field.add.element", elements)
        return total(opened)

    # -- SumShares ----------------------------------------------------------------------------------------------------

    @handles(SumShares)
    def on_sum_shares(self, message: SumShares) -> SummedShares:
        """The sum of the survivors' shares, once U members have signed that set."""
        with self.progress.answering(message, message.round):
            self.check_signatures_of(message.signatures)
            return SummedShares(elements_to_bytes(self.summed))

    def check_signatures_of(self, rows: list[SignatureOf]) -> None:
        """Refuse unless U members have signed the same: then no other set can have as many."""
        signed = {row.client: (row.signature,) for row in rows}
        if len(signed) != len(rows) or not signed.keys() <= set(self.opened.committee.clients):
            raise Refusal("one-shot.foreign-signature", "a signature twice, or of somebody who is no member")
        if len(signed) < self.code.needed:
            raise Refusal("one-shot.too-few-signatures", f"{len(signed)} signatures, threshold {self.code.needed}")
        self.environment.look_up(signed)

        def other_set(client: int) -> Refusal:
            return Refusal("one-shot.inconsistent-survivors", f"member {client} signed another set")

        self.check_signatures(
            SURVIVORS_DOMAIN, self.signed, signed, lambda client: self.signed, other_set, shown_to_all=True
        )

    def registered(self, client: int) -> bytes:
        """A member's signing key, of the PKI: it need not be a participant."""
        return self.environment.directory.signing_key(client)
