"""A client's side of `one-shot`, which says one thing once; see `testbed.aggregation.one_shot.server`."""

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from testbed.aggregation.one_shot.messages import (
    SEALING_PURPOSE,
    Submission,
    Submit,
    context_digest,
    public_seed,
    seal_share,
)
from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.aggregation.participant import Participant, row
from testbed.aggregation.secagg.messages import point_of
from testbed.committee.choice import verified
from testbed.committee.messages import CommitteeList
from testbed.crypto import remembered
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.encryption import NONCE_BYTES
from testbed.crypto.negacyclic_ntt import DEGREE
from testbed.crypto.packed_sums import key_of
from testbed.crypto.prime_field import ELEMENT_BYTES, PRIME, Elements
from testbed.crypto.ring_lwe import PRIMES
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.parties.client import StageTable, handles
from testbed.training import trained_update
from testbed.vectors.integers import IntegerVector

ORDER = "one-shot.out-of-order"


def code_of(parameters: OneShotParameters, committee: CommitteeList) -> MaskCode:
    """How keys are shared to this committee; refuses one that is not safe, as one with too few members may be."""
    try:
        return parameters.code_for(len(committee.members))
    except ValueError as error:
        raise Refusal("one-shot.unsafe-committee", str(error)) from None


class OneShotClient(Participant):
    """One participant of one round."""

    STAGES: ClassVar[StageTable] = StageTable(start="new", rows={Submit: row("new", "submitted", ORDER)})
    parameters: OneShotParameters

    @handles(Submit)
    def on_submit(self, message: Submit) -> Submission:
        """Mask the update, and share the key of its mask to the committee of this round."""
        with self.progress.answering(message, message.round):
            self.check_size(message.participants)
            verified(self.parameters.committee, message.committee, message.round, self.environment)
            update = trained_update(self, message.round)  # a number used before would bring the same mask again
            self.round = message.round
            code = code_of(self.parameters, message.committee)
            context = context_digest(
                self.environment.experiment_id,
                self.round,
                message.participants,
                self.digest_of_training(update),
                self.client.agreed_participants or (),
                message.committee,
                code,
                self.parameters.bits,
            )
            key = self.mask_key()
            return Submission(self.masked(key), self.sealed_shares(key, message.committee, code, context))

    def mask_key(self) -> npt.NDArray[np.int64]:
        """`(4096,)` the key of the mask."""
        meter("ring_lwe.error", DEGREE)
        return key_of(self.secret("one-shot key"))

    def masked(self, key: npt.NDArray[np.int64]) -> IntegerVector:
        """`(3 C,)` the update under its mask."""
        packing, elements = self.parameters.packing, self.encoded()
        count = packing.coefficients(len(elements))
        meter("mask.element", len(PRIMES) * count)
        meter("ring_lwe.multiply", len(PRIMES) * count)
        meter("ring_lwe.error", count)
        meter("ring_lwe.add", len(PRIMES) * (count + len(elements)))
        seed = public_seed(self.environment.experiment_id, self.round)
        return IntegerVector(packing.masked(elements, key, self.secret("one-shot errors"), seed).reshape(-1))

    def encoded(self) -> npt.NDArray[np.unsignedinteger]:
        """`(d+1,)` the update's elements, its weight the last of them."""
        update = trained_update(self, self.round)
        weight = update.samples if self.parameters.weights == "samples" else 1
        coins = self.environment.randomness.simulation_key(self.number, self.round, "stochastic rounding")
        return self.parameters.quantisation.encode(np.asarray(update.delta, np.float32), weight, coins)

    def sealed_shares(
        self, key: npt.NDArray[np.int64], committee: CommitteeList, code: MaskCode, context: bytes
    ) -> list[bytes]:
        """A share of the key for each member, in the committee's order, sealed."""
        members = committee.clients
        directory = self.environment.look_up(members)
        identity = self.client.identity
        assert identity is not None
        nonce = self.secret("one-shot nonce")[:NONCE_BYTES]
        sealed = []
        for member, share in zip(members, self.shares(key, members, code), strict=True):
            pair_key = remembered.agree(identity.agreement, directory.agreement_key(member), SEALING_PURPOSE)
            sealed.append(seal_share(pair_key, nonce, self.number, member, share, context))
        meter("x25519.agree", len(members))
        meter("aead.seal", len(members))
        meter("aead.byte", len(members) * ELEMENT_BYTES * code.piece_length)
        return sealed

    def shares(self, key: npt.NDArray[np.int64], members: tuple[int, ...], code: MaskCode) -> Elements:
        """`(members, piece_length)` the shares of the key, as elements of the field."""
        points = tuple(point_of(member) for member in members)
        meter("mask.element", code.private * code.piece_length)
        meter("field.multiply", len(members) * code.needed * code.piece_length)
        return code.shared((key % PRIME).astype(np.uint32), self.secret("one-shot shares"), points)
