"""Misbehaviours of clients, of the leader and of the helper of `pine`.

A client may report any vector, but only a vector within the bound counts. A leader or a helper alone learns nothing
about an update; the leader alone decides which reports are summed, down to `min_survivors`. Both together have every
update. Each of them can also spoil the sum: by adding to its share of the sum it moves the mean arbitrarily, up to the
length that the other one can rule out.
"""

import hashlib
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from testbed.adversary.misbehaviour import AggregationMisbehaviour, ClientMisbehaviour, MisbehaviourOptions
from testbed.adversary.victims import VICTIM_RECONSTRUCTED, VictimOptions, draw_victim
from testbed.aggregation.pine.client import PineClient
from testbed.aggregation.pine.messages import AggregateShare, SumReports
from testbed.aggregation.pine.second_aggregator import PineHelper
from testbed.aggregation.pine.server import Pine, PineRound
from testbed.arrays import Ids
from testbed.crypto import field64
from testbed.crypto.field64 import ELEMENT_BYTES, Elements
from testbed.crypto.pine import PineVdaf, Report
from testbed.crypto.xof import XofHmacSha256Aes128, elements
from testbed.errors import RoundAborted
from testbed.network.contract import ids
from testbed.parties.client import Role, StageTable, Transition, handles

_PINE = ("pine",)


class UnboundedOptions(MisbehaviourOptions):
    """Options of `unbounded-update`."""

    factor: float = Field(10.0, gt=1, le=1e6, description="Length of the update as a multiple of the bound")


class UnboundedUpdate(ClientMisbehaviour, PineClient):
    """Reports an update longer than the bound, with the best possible proof."""

    name: ClassVar[str] = "unbounded-update"
    applies_to: ClassVar[tuple[str, ...]] = _PINE
    extends: ClassVar[type[Role]] = PineClient
    Options: ClassVar[type[MisbehaviourOptions]] = UnboundedOptions

    def vector(self, delta: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """Return a vector in the honest direction with the configured length; for zeros, along the first coordinate."""
        honest = super().vector(delta)
        if not self.attacks(self.round):
            return honest
        factor = self.context.options_of(UnboundedUpdate).factor
        direction = honest.astype(np.float64)
        if not direction.any():
            # A zero vector has no direction to lengthen.
            direction[0] = 1.0
        direction *= factor * self.parameters.integer_bound / np.sqrt(np.square(direction).sum())
        self.record_attack(UnboundedUpdate, f"an update {factor:g} times as long as it may be")
        integers: npt.NDArray[np.int64] = np.rint(direction).astype(np.int64)
        return integers


class WrongProof(ClientMisbehaviour, PineClient):
    """Reports its update with invalid proofs."""

    name: ClassVar[str] = "wrong-proof"
    applies_to: ClassVar[tuple[str, ...]] = _PINE
    extends: ClassVar[type[Role]] = PineClient

    def report(self, vdaf: PineVdaf, vector: npt.NDArray[np.int64], nonce: bytes) -> Report:
        """Replace the leader's share of the proofs by uniform elements."""
        honest = super().report(vdaf, vector, nonce)
        if not self.attacks(self.round):
            return honest
        # The leader's share: first the measurement, then the proofs, in field elements of fixed length.
        begin = ELEMENT_BYTES * vdaf.measurement_length
        made_up = elements(XofHmacSha256Aes128(self.secret("wrong proof"), b""), vdaf.proofs_length)
        proofs = field64.to_bytes(made_up)
        self.record_attack(WrongProof, f"proofs of {len(made_up)} elements that it has made up")
        leader = honest.leader[:begin] + proofs + honest.leader[begin + len(proofs) :]
        return Report(honest.public, leader, honest.helper)


# -- the helper --------------------------------------------------------------------------------------------------------


class PineAccomplice(PineHelper):
    """A helper that colludes with the leader: sums any reports, as often as asked."""

    STAGES: ClassVar[StageTable] = PineHelper.STAGES.extended(
        {SumReports: Transition(sources={"prepared", "summed"}, target="summed", refusal="pine.out-of-order")}
    )

    @handles(SumReports)
    def on_sum_reports(self, message: SumReports) -> AggregateShare:
        """Sum any set of reports."""
        with self.progress.answering(message, message.round):
            return AggregateShare(field64.to_bytes(self.summed(set(message.clients))))


class WrongSumOptions(MisbehaviourOptions):
    """Options of `answer-wrong-sum`."""

    by: float | None = Field(
        None, description="Value added to each coordinate of the sum, in units of an update; none: uniform elements"
    )


class AnswerWrongReportSum(ClientMisbehaviour, PineHelper):
    """Answers, as the helper, with a wrong share of the sum."""

    name: ClassVar[str] = "answer-wrong-sum"
    applies_to: ClassVar[tuple[str, ...]] = _PINE
    extends: ClassVar[type[Role]] = PineHelper
    Options: ClassVar[type[MisbehaviourOptions]] = WrongSumOptions

    def summed(self, named: set[int]) -> Elements:
        """Return uniform elements, or the honest share plus the configured value."""
        honest = super().summed(named)
        if not self.attacks(self.round):
            return honest
        by = self.context.options_of(AnswerWrongReportSum).by
        if by is None:
            self.record_attack(AnswerWrongReportSum, f"a share of {len(honest)} elements that it has made up")
            return elements(XofHmacSha256Aes128(self.secret("wrong sum"), b""), len(honest))
        self.record_attack(AnswerWrongReportSum, f"a share of the sum with {by:g} more in each coordinate")
        return field64.add(honest, field64.element(round(by * 2**self.parameters.fraction_bits)))


# -- the leader --------------------------------------------------------------------------------------------------------


class ContradictHelper(AggregationMisbehaviour, Pine):
    """Asks the helper for the sum, and then for the sum without the victim; completes the round."""

    name: ClassVar[str] = "contradict-dropouts"
    applies_to: ClassVar[tuple[str, ...]] = _PINE
    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions
    update_recovered = VICTIM_RECONSTRUCTED
    accomplice_roles = (PineAccomplice,)

    async def helpers_share(self, state: PineRound, survivors: Ids) -> Elements:
        """Return the honest share; also try to recover the helper's share of the victim's update."""
        share = await super().helpers_share(state, survivors)
        victim = draw_victim(self, ContradictHelper, survivors, state.start)
        if victim is not None:
            self.record_attack(ContradictHelper, await self._outcome(state, survivors, share, victim))
        return share

    async def _outcome(self, state: PineRound, survivors: Ids, share: Elements, victim: int) -> str:
        """Describe the result in one line."""
        try:
            rest = await super().helpers_share(state, survivors[survivors != victim])
        except RoundAborted as refused:
            return f"victim {victim}: failed: {refused.detail}"
        # The helper's share of the victim, plus the leader's own: together the update.
        update = field64.to_signed(field64.add(field64.subtract(share, rest), state.prepared[victim].output))
        # A helper that answers wrongly gives a uniform vector, far beyond the bound.
        if float(np.linalg.norm(update.astype(np.float64))) > self.parameters.integer_bound:
            return f"victim {victim}: failed: the difference of two sums is no update"
        digest = hashlib.sha256(update.astype("<i8").tobytes()).hexdigest()
        return f"victim {victim}: reconstructed, weight 1, sha256 {digest}"


class ShrinkReports(AggregationMisbehaviour, Pine):
    """Asks the helper for the sum of only the victim's report and the accomplices' reports."""

    name: ClassVar[str] = "shrink-the-sum"
    applies_to: ClassVar[tuple[str, ...]] = _PINE
    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions

    def survivors(self, state: PineRound) -> Ids:
        """Return the victim and the clients with updates that the server can subtract."""
        honest = super().survivors(state)
        victim = draw_victim(self, ShrinkReports, honest, state.start)
        if victim is None:
            return honest
        few = ids([victim, *sorted(self.dishonest & set(honest.tolist()))])
        self.record_attack(ShrinkReports, f"asked for the sum of client {victim} and {len(few) - 1} accomplices")
        return few
