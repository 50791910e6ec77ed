"""Committee side of `one-shot`: open and test the clients' shares, sign one set of clients, and sum their shares.

A member need not be a participant of the round. Of the clients it knows only the facts that the server tells it. The
shares open only if the clients were told the same facts (`context_digest`).
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

UNOPENED = "one-shot.invalid-share"
"""Check of shares that do not open, or that do not match the client's commitment."""
INCONSISTENT = "one-shot.inconsistent-share"
"""Check of shares that are not consistent with those of the other members."""


class OneShotMember(ServingClient):
    """A committee member in one round.

    Attributes:
        question: the question that brought the shares.
        test: of the shares, with the code by which keys are shared.
        bound_to: context with which the shares open.
        opened: by client, its share that has passed the test.
        survivors: the clients of the shares that it will sum.
        signed: the signed content with these survivors.
    """

    PROTOCOL: ClassVar[str] = "one-shot"
    UNBOUND: ClassVar[str] = "the clients' shares are not bound to their training task"
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
        """Open and test the shares of the clients that have sent their input; nothing is signed yet."""
        with self.progress.answering(message, message.round):
            self.begin_service(message)
            self.check_notice(message)
            self.check_survivors(message.survivors, message)
            self.question = message
            facts = self.environment.experiment_id, message, message.committee
            self.bound_to = context_digest(*facts, self.test.code, self.parameters.bits)
            shares = {share.client: share for share in private.shares}
            if len(shares) != len(private.shares) or shares.keys() != set(message.survivors):
                raise Refusal("one-shot.unexpected-shares", "the message does not have one share of each survivor")
            return OpenedShares(self.rejected([shares[client] for client in sorted(shares)]))

    def begin_service(self, message: OpenShares) -> None:
        """Refuse a round in which it does not serve, or has served before."""
        self.check_not_served(message.round)
        if self.number not in message.committee.clients:
            raise Refusal("one-shot.not-a-member", f"client {self.number} is not on the committee of this round")
        verified(self.parameters.committee, message.committee, message.round, self.environment)
        self.test = ShareTest(code_of(self.parameters, message.committee), len(message.committee.members))
        self.serve(message.round)

    def rejected(self, shares: list[ShareFrom]) -> list[Rejection]:
        """Return the clients with shares that do not open or are inconsistent, and the failed check."""
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
        """Return a client's `(row_length,)` share with its blinds; raises `OpeningFailed`."""
        pair_key = self.shared_key(share.client, SEALING_PURPOSE)
        row = open_share(pair_key, share.client, self.number, share, self.bound_to, self.test)
        # The server passes the commitments on, so compare them with the opened row.
        nonce = share.sealed[:NONCE_BYTES]
        if commitment_to(pair_key, nonce, share.client, self.number, row, self.bound_to) != share.commitment:
            raise OpeningFailed("the share does not match the client's commitment")
        return row

    def passing(self, shares: list[ShareFrom], rows: dict[int, Elements]) -> set[int]:
        """Return the clients with rows that pass the test."""
        if not shares:
            return set()
        shape = len(shares), self.test.combinations
        values = elements_from_bytes(b"".join(share.values for share in shares))
        if {len(share.values) for share in shares} != {ELEMENT_BYTES * shape[1]} or values is None:
            raise Refusal("one-shot.unexpected-shares", "the values of a client's responses are malformed")
        roots = tuple((share.client, share.root) for share in shares)
        # All members that a process hosts test the same roots.
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
        """Sign the one set of survivors for the sum of shares; the member has opened all their shares."""
        with self.progress.answering(message, message.round):
            self.check_survivors(message.survivors, self.question)
            self.survivors = sorted(message.survivors)
            for client in self.survivors:
                if client not in self.opened:
                    raise Refusal(UNOPENED, f"client {client}: its share was not opened, or did not pass the test")
            self.signed = survivors_content(self.round, self.survivors, self.bound_to)
            return SignedSurvivors(self.sign(SURVIVORS_DOMAIN, self.signed))

    # -- SumShares ----------------------------------------------------------------------------------------------------

    @handles(SumShares)
    def on_sum_shares(self, message: SumShares) -> SummedShares:
        """Return the sum of the survivors' shares, once U members have signed that set."""
        with self.progress.answering(message, message.round):
            self.check_signatures_of(message.signatures)
            return SummedShares(elements_to_bytes(self.sum_of_shares()))

    def sum_of_shares(self) -> Elements:
        """Return the `(piece_length,)` sum of the survivors' shares."""
        meter("field.add.element", len(self.survivors) * self.test.code.piece_length)
        return total([self.opened[client] for client in self.survivors])

    def check_signatures_of(self, rows: list[SignatureOf]) -> None:
        """Refuse unless U members have signed the same set; no other set can then have U signatures."""
        members, needed = set(self.question.committee.clients), self.test.code.needed
        check_signers(rows, members, needed, protocol=self.PROTOCOL, signers="member")
        self.environment.look_up(row.client for row in rows)

        def other_set(client: int) -> Refusal:
            return Refusal("one-shot.inconsistent-survivors", f"member {client} signed another set")

        self.check_same_signed(SURVIVORS_DOMAIN, self.signed, rows, other_set, shown_to_all=True)

    def registered(self, client: int) -> bytes:
        """Return a member's signing key from the PKI; the member need not be a participant."""
        return self.environment.directory.signing_key(client)
