"""The side of `one-shot` that serves on the committee: open and test clients' shares, sign one set of clients, and sum
their shares.

It may be no participant of the round itself, so all that it knows of the clients is what the server says, and that
their shares open: only for what those clients were told, too (`context_digest`).
"""

from typing import ClassVar

import numpy as np

from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.kit.participant import check_signers, row
from testbed.aggregation.kit.serving import ServingClient
from testbed.aggregation.one_shot.charges import charge_opening
from testbed.aggregation.one_shot.client import ORDER, code_of
from testbed.aggregation.one_shot.messages import (
    SEALING_PURPOSE,
    SURVIVORS_DOMAIN,
    OpenedShares,
    OpenShares,
    Rejection,
    ShareFrom,
    SharesFromSurvivors,
    SignedSurvivors,
    SignSurvivors,
    SummedShares,
    SumShares,
    challenge_context,
    commitment_to,
    context_digest,
    open_share,
    survivors_content,
)
from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.committee.choice import verified
from testbed.crypto import OpeningFailed, memo
from testbed.crypto.encryption import NONCE_BYTES
from testbed.crypto.prime_field import ELEMENT_BYTES, Elements, elements_from_bytes, elements_to_bytes, total
from testbed.crypto.share_test import ShareTest
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.parties.client import StageTable, handles

UNOPENED = "one-shot.bad-share"
"""The check of shares that do not open, or are not what their client has committed to."""
INCONSISTENT = "one-shot.inconsistent-share"
"""The check of shares that do not belong to those of the other members."""


class OneShotMember(ServingClient):
    """One member of the committee in one round.

    Attributes:
        asked: the question that brought the shares.
        test: of the shares, and how keys are shared.
        bound_to: what the shares open with.
        opened: by client whose share has passed, the share.
        survivors: the clients whose shares it will sum.
        signed: what it has signed of the survivors.
    """

    PROTOCOL: ClassVar[str] = "one-shot"
    UNBOUND: ClassVar[str] = "the clients' shares are not bound to what they were asked to train"
    STAGES: ClassVar[StageTable] = StageTable(
        start="new",
        rows={
            OpenShares: row("new", "opened", ORDER),
            SignSurvivors: row("opened", "signed", ORDER),
            SumShares: row("signed", "summed", ORDER),
        },
    )
    parameters: OneShotParameters
    question: OpenShares
    test: ShareTest
    bound_to: bytes
    opened: dict[int, Elements]
    survivors: list[int]
    signed: bytes

    # -- OpenShares ---------------------------------------------------------------------------------------------------

    @handles(OpenShares)
    def on_open_shares(self, message: OpenShares, private: SharesFromSurvivors) -> OpenedShares:
        """Open and test the shares of those whose input has arrived; nothing is signed yet."""
        with self.progress.answering(message, message.round):
            self.begin_service(message)
            self.check_notice(message)
            self.check_survivors(message.survivors, message)
            self.question = message
            facts = self.environment.experiment_id, message, message.committee
            self.bound_to = context_digest(*facts, self.test.code, self.parameters.bits)
            shares = {share.client: share for share in private.shares}
            if len(shares) != len(private.shares) or shares.keys() != set(message.survivors):
                raise Refusal("one-shot.foreign-shares", "not one share of each survivor")
            return OpenedShares(self.rejected([shares[client] for client in sorted(shares)]))

    def begin_service(self, message: OpenShares) -> None:
        """Refuse a round in which it does not serve, or has served before."""
        self.check_not_served(message.round)
        if self.number not in message.committee.clients:
            raise Refusal("one-shot.not-a-member", "asked to serve on a committee that it is not on")
        verified(self.parameters.committee, message.committee, message.round, self.environment)
        self.test = ShareTest(code_of(self.parameters, message.committee), len(message.committee.members))
        self.serve(message.round)

    def rejected(self, shares: list[ShareFrom]) -> list[Rejection]:
        """The clients whose shares do not open in this context, or do not belong together; keeps all other shares."""
        self.environment.look_up([share.client for share in shares])
        charge_opening(self.test, len(shares))
        rows: dict[int, Elements] = {}
        for share in shares:
            try:
                rows[share.client] = self.row_of(share)
            except OpeningFailed:
                continue
        passed = self.passing([share for share in shares if share.client in rows], rows)
        self.opened = {client: rows[client][: self.test.code.piece_length] for client in sorted(passed)}
        checks = {share.client: INCONSISTENT if share.client in rows else UNOPENED for share in shares}
        return [Rejection(client, check) for client, check in checks.items() if client not in passed]

    def row_of(self, share: ShareFrom) -> Elements:
        """`(row_length,)` a client's share with its blinds; raises `OpeningFailed`."""
        pair_key = self.shared_key(share.client, SEALING_PURPOSE)
        row = open_share(pair_key, share.client, self.number, share, self.bound_to, self.test)
        nonce = share.sealed[:NONCE_BYTES]
        if commitment_to(pair_key, nonce, share.client, self.number, row, self.bound_to) != share.commitment:
            raise OpeningFailed("not what the client has committed to")
        return row

    def passing(self, shares: list[ShareFrom], rows: dict[int, Elements]) -> set[int]:
        """The clients whose rows pass the test."""
        if not shares:
            return set()
        shape = len(shares), self.test.combinations
        values = elements_from_bytes(b"".join(share.values for share in shares))
        if {len(share.values) for share in shares} != {ELEMENT_BYTES * shape[1]} or values is None:
            raise Refusal("one-shot.foreign-shares", "values of a client's responses that are none")
        roots = tuple((share.client, share.root) for share in shares)
        challenges = memo.cached_latest(
            "one-shot challenges",
            (self.test, self.bound_to, roots),
            lambda: [self.test.challenge(root, challenge_context(client, self.bound_to)) for client, root in roots],
        )
        tested = np.stack([rows[share.client] for share in shares])
        passed = self.test.passes(tested, challenges, values.reshape(shape))
        return {share.client for share, good in zip(shares, passed, strict=True) if good}

    # -- SignSurvivors ------------------------------------------------------------------------------------------------

    @handles(SignSurvivors)
    def on_sign_survivors(self, message: SignSurvivors) -> SignedSurvivors:
        """Sign the one set of survivors whose shares this member will sum, all of which it has opened."""
        with self.progress.answering(message, message.round):
            self.check_survivors(message.survivors, self.question)
            self.survivors = sorted(message.survivors)
            for client in self.survivors:
                if client not in self.opened:
                    raise Refusal(UNOPENED, f"client {client}: its share has not been opened, or has not passed")
            self.signed = survivors_content(self.round, self.survivors, self.bound_to)
            return SignedSurvivors(self.sign(SURVIVORS_DOMAIN, self.signed))

    # -- SumShares ----------------------------------------------------------------------------------------------------

    @handles(SumShares)
    def on_sum_shares(self, message: SumShares) -> SummedShares:
        """The sum of the survivors' shares, once U members have signed that set."""
        with self.progress.answering(message, message.round):
            self.check_signatures_of(message.signatures)
            return SummedShares(elements_to_bytes(self.sum_of_shares()))

    def sum_of_shares(self) -> Elements:
        """`(piece_length,)` the sum of the survivors' shares."""
        meter("field.add.element", len(self.survivors) * self.test.code.piece_length)
        return total([self.opened[client] for client in self.survivors])

    def check_signatures_of(self, rows: list[SignatureOf]) -> None:
        """Refuse unless U members have signed the same: then no other set can have as many."""
        members, needed = set(self.question.committee.clients), self.test.code.needed
        check_signers(rows, members, needed, protocol=self.PROTOCOL, signers="member")
        self.environment.look_up(row.client for row in rows)

        def other_set(client: int) -> Refusal:
            return Refusal("one-shot.inconsistent-survivors", f"member {client} signed another set")

        self.check_same_signed(SURVIVORS_DOMAIN, self.signed, rows, other_set, shown_to_all=True)

    def registered(self, client: int) -> bytes:
        """A member's signing key, of the PKI: it need not be a participant."""
        return self.environment.directory.signing_key(client)
