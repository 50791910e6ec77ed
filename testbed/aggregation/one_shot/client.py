"""Client side of `one-shot`: a single message per round; see `testbed.aggregation.one_shot.server`."""

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from testbed.aggregation.kit.message_parts import point_of
from testbed.aggregation.kit.participant import Participant, row
from testbed.aggregation.one_shot.charges import charge_shares
from testbed.aggregation.one_shot.messages import (
    SEALING_PURPOSE,
    OneShotSubmission,
    OneShotSubmit,
    challenge_context,
    commitment_to,
    context_digest,
    public_seed,
    seal_share,
)
from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.committee.choice import verified
from testbed.committee.messages import CommitteeList
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.encryption import NONCE_BYTES
from testbed.crypto.negacyclic_ntt import DEGREE
from testbed.crypto.packed_sums import key_of
from testbed.crypto.prime_field import PRIME, Elements, elements_to_bytes
from testbed.crypto.ring_lwe import PRIMES
from testbed.crypto.share_test import ShareTest, root_of
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.parties.client import StageTable, handles
from testbed.training import trained_update
from testbed.vectors.integers import IntegerVector

ORDER = "one-shot.out-of-order"


def code_of(parameters: OneShotParameters, committee: CommitteeList) -> MaskCode:
    """Return the code by which keys are shared to this committee; refuses an unsafe one, e.g. with too few members.

    Args:
        parameters: of the experiment.
        committee: of the round.
    """
    try:
        return parameters.code_for(len(committee.members))
    except ValueError as error:
        raise Refusal("one-shot.unsafe-committee", str(error)) from None


class OneShotClient(Participant):
    """A participant of one round."""

    STAGES: ClassVar[StageTable] = StageTable(start="new", rows={OneShotSubmit: row("new", "submitted", ORDER)})
    parameters: OneShotParameters

    @handles(OneShotSubmit)
    def on_submit(self, message: OneShotSubmit) -> OneShotSubmission:
        """Mask the update, and share the key of its mask to the committee of this round."""
        with self.progress.answering(message, message.round):
            self.check_size(message.participants)
            verified(self.parameters.committee, message.committee, message.round, self.environment)
            update = trained_update(self, message.round)  # a number used before would bring the same mask again
            self.round = message.round
            code = code_of(self.parameters, message.committee)
            notice = self.notice(message.participants, update)
            facts = self.environment.experiment_id, notice, message.committee
            context = context_digest(*facts, code, self.parameters.bits)
            key, test = self.mask_key(), ShareTest(code, len(message.committee.members))
            return self.submission(self.masked(key), key, message.committee.clients, test, context)

    def mask_key(self) -> npt.NDArray[np.int64]:
        """Return the `(4096,)` key of the mask."""
        meter("ring_lwe.error", DEGREE)
        return key_of(self.secret("one-shot key"))

    def masked(self, key: npt.NDArray[np.int64]) -> IntegerVector:
        """Return the `(3 C,)` update under its mask."""
        packing, elements = self.parameters.packing, self.encoded()
        count = packing.coefficients(len(elements))
        meter("mask.element", len(PRIMES) * count)
        meter("ring_lwe.multiply", len(PRIMES) * count)
        meter("ring_lwe.error", count)
        meter("ring_lwe.add", len(PRIMES) * (count + len(elements)))
        seed = public_seed(self.environment.experiment_id, self.round)
        return IntegerVector(packing.masked(elements, key, self.secret("one-shot errors"), seed).reshape(-1))

    def encoded(self) -> npt.NDArray[np.unsignedinteger]:
        """Return the update's `(d+1,)` elements; the last element is its weight."""
        return np.asarray(self.quantised_update(trained_update(self, self.round)))

    def submission(
        self,
        masked: IntegerVector,
        key: npt.NDArray[np.int64],
        members: tuple[int, ...],
        test: ShareTest,
        context: bytes,
    ) -> OneShotSubmission:
        """Return the masked update, a sealed share of the key per member, and a proof that the shares are consistent.

        Args:
            masked: the masked update.
            key: of the mask.
            members: in the committee's order.
            test: of their shares.
            context: digest to which the shares are bound.
        """
        pair_keys = self.pair_keys(members)
        # Pair keys last for all rounds, so each round has a nonce of its own.
        nonce = self.secret("one-shot nonce")[:NONCE_BYTES]
        polynomials = self.polynomials(key, test)
        rows = self.rows(polynomials, members, test)
        whom = list(zip(members, pair_keys, rows, strict=True))
        commitments = [commitment_to(pair, nonce, self.number, member, row, context) for member, pair, row in whom]
        # Commit before the challenge, which follows from the root.
        root = root_of(commitments)
        challenge = test.challenge(root, challenge_context(self.number, context))
        responses = elements_to_bytes(test.response(polynomials, challenge))
        sealed = [seal_share(pair, nonce, self.number, member, row, context, root) for member, pair, row in whom]
        charge_shares(test)
        return OneShotSubmission(masked, sealed, b"".join(commitments), responses)

    def pair_keys(self, members: tuple[int, ...]) -> list[bytes]:
        """Return the key in common with each member."""
        self.environment.look_up(members)
        return [self.shared_key(member, SEALING_PURPOSE) for member in members]

    def polynomials(self, key: npt.NDArray[np.int64], test: ShareTest) -> Elements:
        """Return the `(U, row_length)` coefficients of the polynomials that share the key."""
        secrets = self.secret("one-shot shares"), self.secret("one-shot blinds")
        # The key has small signed numbers; elements of the field are not negative.
        return test.polynomials((key % PRIME).astype(np.uint32), *secrets)

    def rows(self, polynomials: Elements, members: tuple[int, ...], test: ShareTest) -> Elements:
        """Return the `(members, row_length)` shares of the key with their blinds, as elements of the field."""
        return test.code.evaluated(polynomials, tuple(point_of(member) for member in members))
