"""A malicious server that sums a batch without one of its members, under the aggregations that are no SecAgg.

In the next round with the whole batch, the difference of the two sums would be that member's update: multi-round
privacy would end (`testbed.aggregation.batch_policy`). A client that holds shares of the others' masks sees the
survivors, and refuses: `secagg.partial-batch`. With ``batches: ignored`` nobody does.
"""

from typing import ClassVar

import numpy as np

from testbed.adversary.misbehaviour import AggregationMisbehaviour, MisbehaviourOptions
from testbed.adversary.secagg.small_sums import BreakBatch
from testbed.adversary.victims import VictimOptions, drawn_victim
from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.flamingo.round import FlamingoRound
from testbed.aggregation.flamingo.server import Flamingo
from testbed.aggregation.lightsecagg.server import LightSecAgg, LightSecAggRound
from testbed.aggregation.one_shot.server import OneShot, OneShotRound
from testbed.aggregation.pine.server import Pine, PineRound
from testbed.arrays import Ids


class _LeavesOneOut(AggregationMisbehaviour):
    """What they have in common."""

    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions

    def victim(self, round_: AggregationRound, survivors: Ids, kind: type[AggregationMisbehaviour]) -> int | None:
        """An honest survivor that is in a batch with others; None: the round is not attacked, or there is none."""
        if not self.attacking or round_.batches is None:
            return None
        sizes = round_.batches.sizes[round_.batches.of]
        with_others = [client for client in survivors.tolist() if sizes[client] > 1]
        named: int | None = self.context.options_of(kind).victim
        found = drawn_victim(named, with_others, self.dishonest, round_.randomness, round_.number)
        if found is not None:
            self.record_attack(kind, f"claimed that client {found} of batch {round_.batches.of[found]} dropped out")
        return found


class BreakBatchOfLightSecAgg(_LeavesOneOut, LightSecAgg):
    """Leaves one honest client out of the survivors that it names, and its batch-mates in."""

    name: ClassVar[str] = BreakBatch.name
    applies_to: ClassVar[tuple[str, ...]] = ("lightsecagg",)

    async def collect_masked_inputs(self, state: LightSecAggRound) -> None:
        """As the honest server's, without the victim."""
        await super().collect_masked_inputs(state)
        victim = self.victim(state.start, state.survivors, BreakBatchOfLightSecAgg)
        state.survivors = np.setdiff1d(state.survivors, [] if victim is None else [victim])


class BreakBatchOfFlamingo(_LeavesOneOut, Flamingo):
    """Labels one honest client offline, and its batch-mates online."""

    name: ClassVar[str] = BreakBatch.name
    applies_to: ClassVar[tuple[str, ...]] = ("flamingo",)

    def choose_online(self, state: FlamingoRound, arrived: Ids) -> Ids:
        """As the honest server's, without the victim."""
        online = super().choose_online(state, arrived)
        victim = self.victim(state.start, online, BreakBatchOfFlamingo)
        return np.setdiff1d(online, [] if victim is None else [victim])


class BreakBatchOfOneShot(_LeavesOneOut, OneShot):
    """Leaves one honest client out of the survivors that it names to the committee, and its batch-mates in."""

    name: ClassVar[str] = BreakBatch.name
    applies_to: ClassVar[tuple[str, ...]] = ("one-shot",)

    async def collect_submissions(self, state: OneShotRound) -> None:
        """As the honest server's, without the victim."""
        await super().collect_submissions(state)
        victim = self.victim(state.start, state.survivors, BreakBatchOfOneShot)
        state.survivors = np.setdiff1d(state.survivors, [] if victim is None else [victim])


class BreakBatchOfPine(_LeavesOneOut, Pine):
    """Leaves one honest client's valid report out of those that it has the helper sum, and its batch-mates' in."""

    name: ClassVar[str] = BreakBatch.name
    applies_to: ClassVar[tuple[str, ...]] = ("pine",)

    def survivors(self, state: PineRound) -> Ids:
        """As the honest server's, without the victim."""
        honest = super().survivors(state)
        victim = self.victim(state.start, honest, BreakBatchOfPine)
        return np.setdiff1d(honest, [] if victim is None else [victim])
