"""A malicious server that breaks up batches: it claims that one member of a batch has dropped out, and sums the others.

Multi-RoundSecAgg (arXiv 2106.03328, section 4) has batches in a round with all their members or none. The sum over a
batch in one round less the sum without one member in another is that member's update, if updates do not change: the
multi-round privacy T falls to 1. Clients that keep batches whole refuse it (`testbed.aggregation.secagg.batches`).
"""

from typing import ClassVar

from testbed.adversary.misbehaviour import AggregationMisbehaviour, MisbehaviourOptions
from testbed.adversary.secagg.reconstruction import ReconstructionOptions
from testbed.aggregation.secagg.round_state import SecAggRound
from testbed.aggregation.secagg.server import SecAgg
from testbed.arrays import Ids


class BreakBatch(AggregationMisbehaviour, SecAgg):
    """Leaves one honest client out of the survivors that it names, and its batch-mates in."""

    name: ClassVar[str] = "break-batch"
    applies_to: ClassVar[tuple[str, ...]] = ("secagg", "secagg-plus")
    Options: ClassVar[type[MisbehaviourOptions]] = ReconstructionOptions

    def choose_survivors(self, state: SecAggRound) -> Ids:
        """As the honest server's, without the victim; in a round without batches, or without the victim, no other."""
        survivors, round_ = super().choose_survivors(state), state.start
        honest = [client for client in survivors.tolist() if client not in self.dishonest]
        victim = self.context.options_of(BreakBatch).victim
        if victim is None and honest and round_.randomness is not None:
            victim = int(round_.randomness.generator("server", round_.number, "victim").choice(honest))
        if not self.attacking or round_.batches is None or victim not in honest:
            return survivors
        self.record_attack(BreakBatch, f"claimed that client {victim} of batch {round_.batches.of[victim]} dropped out")
        others: Ids = survivors[survivors != victim]
        return others
