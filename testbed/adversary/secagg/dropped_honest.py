"""A malicious server that sums as few honest clients as the threshold allows: it declares the others dropped out.

Clients see no difference to real dropouts: an honest server names survivors in the same way. The sum keeps t survivors.
The server's own clients count among them, so with t - 1 of these the sum is the victim's update plus updates that the
server knows. Bonawitz et al., CCS 2017, section 6.2, accept this: t bounds the attack. It does not depend on the
selection of participants, so Lotto does not prevent it either; with whole batches the clients refuse.
"""

from typing import ClassVar

import numpy as np

from testbed.adversary.misbehaviour import AggregationMisbehaviour, MisbehaviourOptions
from testbed.adversary.victims import VictimOptions, draw_victim
from testbed.aggregation.secagg.round import SecAggRound
from testbed.aggregation.secagg.server import SecAgg
from testbed.arrays import Ids
from testbed.errors import RoundAborted


class DropHonest(AggregationMisbehaviour, SecAgg):
    """Keeps its own clients, one victim, and as few further honest clients as the threshold allows."""

    name: ClassVar[str] = "drop-honest"
    applies_to: ClassVar[tuple[str, ...]] = ("secagg", "secagg-plus")
    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions

    def choose_survivors(self, state: SecAggRound) -> Ids:
        """Return the honest choice without unneeded honest clients; the whole honest choice if there is no victim."""
        survivors, round_ = super().choose_survivors(state), state.start
        victim = draw_victim(self, DropHonest, survivors, round_)
        if victim is None:
            return survivors
        remaining = survivors
        for client in survivors.tolist():
            if client != victim and client not in self.dishonest:
                # One by one: in a sparse graph some clients are needed to recover the others' secrets.
                fewer = remaining[remaining != client]
                remaining = fewer if self._is_enough(state, fewer) else remaining
        dropped = len(survivors) - len(remaining)
        if dropped:
            honest = len(remaining) - int(np.isin(remaining, list(self.dishonest)).sum())
            others = f"client {victim} is summed with {honest - 1} honest ones"
            self.record_attack(DropHonest, f"claimed that {dropped} clients dropped out: {others}")
        return remaining

    @staticmethod
    def _is_enough(state: SecAggRound, survivors: Ids) -> bool:
        """Return whether the sum over these clients can still be unmasked, as far as the graph says."""
        if len(survivors) < state.graph.min_survivors:
            return False
        try:
            state.graph.check_recoverable(state.shared, survivors)
        except RoundAborted:
            return False
        return True
