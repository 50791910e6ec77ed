"""A malicious server that sums a batch without one of its members, under aggregations other than SecAgg.

In the next round with the whole batch, the difference of the two sums would be that member's update: multi-round
privacy would end (`testbed.aggregation.batch_policy`). A client that holds shares of the others' masks sees the
survivors and refuses with `aggregation.partial-batch`. With ``batches: ignored`` no client refuses.
"""

from typing import ClassVar

from testbed.adversary.misbehaviour import AggregationMisbehaviour, MisbehaviourOptions
from testbed.adversary.secagg.small_sums import BreakBatch
from testbed.adversary.victims import VictimOptions, draw_victim
from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.flamingo.round import FlamingoRound
from testbed.aggregation.flamingo.server import Flamingo
from testbed.aggregation.lightsecagg.server import LightSecAgg, LightSecAggRound
from testbed.aggregation.one_shot.server import OneShot, OneShotRound
from testbed.aggregation.pine.server import Pine, PineRound
from testbed.arrays import Ids


class _LeavesOneOut(AggregationMisbehaviour):
    """Leaves one client of a batch out of the survivors."""

    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions

    def without_victim(self, kind: type[AggregationMisbehaviour], survivors: Ids, round_: AggregationRound) -> Ids:
        """Return the survivors without one honest client of a batch with other survivors.

        Args:
            kind: the calling class.
            survivors: sorted clients.
            round_: the round.

        Returns:
            All survivors if there is no such client.
        """
        if round_.batches is None:
            return survivors
        sizes = round_.batches.sizes[round_.batches.of]
        victim = draw_victim(self, kind, survivors[sizes[survivors] > 1], round_)
        if victim is None:
            return survivors
        self.record_attack(kind, f"claimed that client {victim} of batch {round_.batches.of[victim]} dropped out")
        others: Ids = survivors[survivors != victim]
        return others


class BreakBatchOfLightSecAgg(_LeavesOneOut, LightSecAgg):
    """Leaves one honest client out of the survivors, but not its batch-mates."""

    name: ClassVar[str] = BreakBatch.name
    applies_to: ClassVar[tuple[str, ...]] = ("lightsecagg",)

    async def collect_masked_inputs(self, state: LightSecAggRound) -> None:
        """Collect inputs honestly, then leave out the victim."""
        await super().collect_masked_inputs(state)
        state.survivors = self.without_victim(BreakBatchOfLightSecAgg, state.survivors, state.start)


class BreakBatchOfFlamingo(_LeavesOneOut, Flamingo):
    """Labels one honest client offline, and its batch-mates online."""

    name: ClassVar[str] = BreakBatch.name
    applies_to: ClassVar[tuple[str, ...]] = ("flamingo",)

    def choose_online(self, state: FlamingoRound, arrived: Ids) -> Ids:
        """Return the honest choice without the victim."""
        return self.without_victim(BreakBatchOfFlamingo, super().choose_online(state, arrived), state.start)


class BreakBatchOfOneShot(_LeavesOneOut, OneShot):
    """Leaves one honest client out of the survivors that it names to the committee, but not its batch-mates."""

    name: ClassVar[str] = BreakBatch.name
    applies_to: ClassVar[tuple[str, ...]] = ("one-shot",)

    async def collect_submissions(self, state: OneShotRound) -> None:
        """Collect submissions honestly, then leave out the victim."""
        await super().collect_submissions(state)
        state.survivors = self.without_victim(BreakBatchOfOneShot, state.survivors, state.start)


class BreakBatchOfPine(_LeavesOneOut, Pine):
    """Leaves one honest client's valid report out of the helper's sum, but not its batch-mates' reports."""

    name: ClassVar[str] = BreakBatch.name
    applies_to: ClassVar[tuple[str, ...]] = ("pine",)

    def survivors(self, state: PineRound) -> Ids:
        """Return the honest choice without the victim."""
        return self.without_victim(BreakBatchOfPine, super().survivors(state), state.start)
