"""A malicious LightSecAgg server: two sets of survivors, or a list of keys for each of several groups.

Nobody signs the survivors in `testbed.aggregation.lightsecagg`: each client believes the set that it alone is shown,
and sums the pieces of its members once. So U holders may sum over all survivors, and U others over all but the victim
(`ContradictSurvivors`): the difference is the victim's update. With x accomplices, who sum as often as they are asked
to, that takes 2 (U - x) honest survivors. Both sums are over U clients or more, and nobody's check fails. Fewer holders
for the second set give nothing while they are T or fewer; between T and U of them, each gives one piece's worth of
equations on the victim's mask.

Nor does anybody see a list of keys but those who are shown it. So each U - x honest clients can be shown one with the x
accomplices alone, and are summed apart from the others (`ParallelGroups`): by U <= N / 2 without accomplices.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from testbed.adversary.misbehaviour import AggregationMisbehaviour, MisbehaviourOptions
from testbed.adversary.secagg.parallel_sums import rounds_of_lists, summed_apart
from testbed.adversary.selection.lists import LISTS, ListsOptions, ParallelLists
from testbed.adversary.victims import VICTIM_RECONSTRUCTED, VictimOptions, drawn_victim, recovery_told
from testbed.aggregation.contract import Aggregate, AggregationRound
from testbed.aggregation.lightsecagg.client import LightSecAggClient
from testbed.aggregation.lightsecagg.messages import (
    AdvertiseLightSecAggKeys,
    ShareMasks,
    SummedPieces,
    SumPieces,
)
from testbed.aggregation.lightsecagg.server import LightSecAgg, LightSecAggRound
from testbed.arrays import Ids
from testbed.crypto.prime_field import Elements, difference, elements_to_bytes, total
from testbed.errors import RoundAborted
from testbed.network.contract import ids
from testbed.parties.client import StageTable, Transition, handles

_ORDER = "lightsecagg.out-of-order"
_ALWAYS = {"new", "advertised", "shared", "masked", "summed", "refused"}


class LightSecAggAccomplice(LightSecAggClient):
    """An honest client in everything that others can see; but it takes part in as many sums as it is asked to."""

    STAGES: ClassVar[StageTable] = LightSecAggClient.STAGES.extended(
        {
            AdvertiseLightSecAggKeys: Transition(
                sources=_ALWAYS, target="advertised", refusal=_ORDER, starts_round=True
            ),
            ShareMasks: Transition(sources=_ALWAYS - {"new"}, target="shared", refusal=_ORDER),
            SumPieces: Transition(sources={"masked", "summed"}, target="summed", refusal=_ORDER),
        }
    )

    def check_size(self, participants: int) -> None:
        """Any list will do, whatever it has agreed on."""
        self.client.agreed_participants = None

    @handles(SumPieces)
    def on_sum_pieces(self, message: SumPieces) -> SummedPieces:
        """As often as it is asked to."""
        with self.progress.answering(message, message.round):
            return SummedPieces(elements_to_bytes(total([self.piece_of(peer) for peer in sorted(message.survivors)])))


class ContradictSurvivors(AggregationMisbehaviour, LightSecAgg):
    """Some survivors are told that the victim has survived, the others that it dropped out; the round is completed."""

    name: ClassVar[str] = "contradict-dropouts"
    applies_to: ClassVar[tuple[str, ...]] = ("lightsecagg",)
    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions
    update_recovered = VICTIM_RECONSTRUCTED
    accomplice_roles = (LightSecAggAccomplice,)

    async def unmasked_sum(self, state: LightSecAggRound) -> Elements:
        """See `LightSecAgg.unmasked_sum`; beside it the sum without the victim, as far as it can be had."""
        victim = drawn_victim(self, ContradictSurvivors, state.survivors, state.start)
        if victim is None:
            return await super().unmasked_sum(state)
        needed = state.announced.threshold
        accomplices = np.intersect1d(state.arrived, sorted(self.dishonest))
        honest = np.setdiff1d(state.arrived, accomplices)
        least = max(0, needed - len(accomplices))
        spare = max(0, len(honest) - 2 * least)  # some for either sum, in case that somebody does not answer
        told_all = honest[: least + spare // 2]
        others = ids(state.survivors[state.survivors != victim])
        replies, of_all = await self.summed_pieces(state, np.union1d(told_all, accomplices), state.survivors)
        _, of_others = await self.summed_pieces(state, np.setdiff1d(state.arrived, told_all), others)
        summed = None
        if len(of_all) >= needed:
            summed = await self.without_masks(state, state.survivors, of_all)
        counted = f"victim {victim}: {len(of_all)} and {len(of_others)} of {needed} needed sums with it and without it"
        self.record_attack(ContradictSurvivors, await self._told(state, counted, summed, others, of_others))
        if summed is None:
            state.at_least(len(of_all), replies, "summed the pieces that they hold")
            raise RoundAborted("below-threshold", counted)
        return summed

    async def _told(
        self,
        state: LightSecAggRound,
        counted: str,
        summed: Elements | None,
        others: Ids,
        of_others: dict[int, Elements],
    ) -> str:
        """What came of it, in one line."""
        if summed is None or len(of_others) < state.announced.threshold:
            return f"{counted}; failed: too few sums"
        update = difference(summed, await self.without_masks(state, others, of_others))
        return recovery_told(counted, update, elements_to_bytes(update), self.parameters.quantisation)


class ParallelGroups(AggregationMisbehaviour, LightSecAgg):
    """Sums over each of several groups by itself, with the accomplices in all of them; the model gets their mean.

    Groups are the participant lists where the selection has made several (`ParallelLists`). Otherwise they are parts of
    one list: clients whose keys are there, as many groups as reach U with the accomplices.
    """

    name: ClassVar[str] = ParallelLists.name
    applies_to: ClassVar[tuple[str, ...]] = ("lightsecagg",)
    Options = ListsOptions
    accomplice_roles = (LightSecAggAccomplice,)

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Sum over each list. Raises `RoundAborted` when no sum comes about."""
        parts = rounds_of_lists(round_)
        return await summed_apart(self, ParallelGroups, parts or [round_], super().aggregate)

    async def summed(self, state: LightSecAggRound) -> Aggregate:
        """Sum over each group, which is shown the keys of its own members."""
        groups = self.groups(state) if self.attacking and LISTS not in state.start.memory else []
        if len(groups) < 2:
            return await super().summed(state)
        parts = [
            replace(state, adverts={client: state.adverts[client] for client in group}, sealed={}) for group in groups
        ]
        return await summed_apart(self, ParallelGroups, parts, super().summed)

    def groups(self, state: LightSecAggRound) -> list[list[int]]:
        """The members of each group, sorted: every honest client in one of them, the accomplices in all."""
        accomplices = sorted(self.dishonest & state.adverts.keys())
        honest = [client for client in sorted(state.adverts) if client not in self.dishonest]
        possible = len(honest) // max(1, state.announced.threshold - len(accomplices))
        wanted = self.context.options_of(ParallelGroups).lists
        count = possible if wanted is None else min(possible, wanted)
        parts = np.array_split(np.array(honest, np.int64), count) if count else []
        return [sorted([*part.tolist(), *accomplices]) for part in parts]
