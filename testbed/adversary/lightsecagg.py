"""A malicious LightSecAgg server: contradictory survivors, or different lists of keys for different groups.

Survivors are not signed in `testbed.aggregation.lightsecagg`: each client trusts the set that it receives, and sums the
pieces of its members once. So U holders may sum over all survivors, and U others over all but the victim
(`ContradictSurvivors`): the difference is the victim's update. With x accomplices, which sum as often as asked, that
needs 2 (U - x) honest survivors. Both sums are over U clients or more, so every check passes. T or fewer holders for
the second set reveal nothing; between T and U of them, each gives one piece of equations on the victim's mask.

Lists of keys are seen only by their recipients. So each U - x honest clients can receive a list with only themselves
and the x accomplices, and are summed apart from the others (`ParallelGroups`): with U <= N / 2 this needs no
accomplices.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from testbed.adversary.misbehaviour import AggregationMisbehaviour, MisbehaviourOptions
from testbed.adversary.secagg.parallel_sums import rounds_of_lists, sum_separately
from testbed.adversary.selection.lists import LISTS, ListsOptions, ParallelLists
from testbed.adversary.victims import VICTIM_RECONSTRUCTED, VictimOptions, describe_recovery, draw_victim
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
# An honest client sums once in a round; an accomplice from every stage.
_ALWAYS = {"new", "advertised", "shared", "masked", "summed", "refused"}


class LightSecAggAccomplice(LightSecAggClient):
    """A client that appears honest to others, but takes part in as many sums as the server asks."""

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
        """Accept any list, also after agreeing on another."""
        self.client.agreed_participants = None

    @handles(SumPieces)
    def on_sum_pieces(self, message: SumPieces) -> SummedPieces:
        """Sum as often as asked."""
        with self.progress.answering(message, message.round):
            return SummedPieces(elements_to_bytes(total([self.piece_of(peer) for peer in sorted(message.survivors)])))


class ContradictSurvivors(AggregationMisbehaviour, LightSecAgg):
    """Tells some survivors that the victim has survived, the others that it dropped out; completes the round."""

    name: ClassVar[str] = "contradict-dropouts"
    applies_to: ClassVar[tuple[str, ...]] = ("lightsecagg",)
    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions
    update_recovered = VICTIM_RECONSTRUCTED
    accomplice_roles = (LightSecAggAccomplice,)

    async def unmasked_sum(self, state: LightSecAggRound) -> Elements:
        """Return the sum over all survivors; also recover the sum without the victim if enough holders answer."""
        victim = draw_victim(self, ContradictSurvivors, state.survivors, state.start)
        if victim is None:
            return await super().unmasked_sum(state)
        needed = state.announced.threshold
        accomplices = np.intersect1d(state.arrived, sorted(self.dishonest))
        honest = np.setdiff1d(state.arrived, accomplices)
        least = max(0, needed - len(accomplices))
        spare = max(
            0, len(honest) - 2 * least
        )  # holders for either sum beyond the minimum, in case that some do not answer
        # Disjoint groups of honest holders: each sums once, so no one can compare the two sets.
        told_all = honest[: least + spare // 2]
        others = ids(state.survivors[state.survivors != victim])
        replies, of_all = await self.summed_pieces(state, np.union1d(told_all, accomplices), state.survivors)
        _, of_others = await self.summed_pieces(state, np.setdiff1d(state.arrived, told_all), others)
        summed = None
        if len(of_all) >= needed:
            summed = await self.without_masks(state, state.survivors, of_all)
        counted = f"victim {victim}: {len(of_all)} and {len(of_others)} of {needed} needed sums with it and without it"
        self.record_attack(ContradictSurvivors, await self._outcome(state, counted, summed, others, of_others))
        if summed is None:
            state.at_least(len(of_all), replies, "summed the pieces that they hold")
            raise RoundAborted("below-threshold", counted)
        return summed

    async def _outcome(
        self,
        state: LightSecAggRound,
        counted: str,
        summed: Elements | None,
        others: Ids,
        of_others: dict[int, Elements],
    ) -> str:
        """Describe the result in one line."""
        if summed is None or len(of_others) < state.announced.threshold:
            return f"{counted}; failed: too few sums"
        update = difference(summed, await self.without_masks(state, others, of_others))
        return describe_recovery(counted, update, elements_to_bytes(update), self.parameters.quantisation)


class ParallelGroups(AggregationMisbehaviour, LightSecAgg):
    """Sums over each of several groups separately, with the accomplices in all of them; the model gets the mean.

    Groups are the participant lists if selection has made several (`ParallelLists`). Otherwise one list is split into
    as many groups as reach U together with the accomplices.
    """

    name: ClassVar[str] = ParallelLists.name
    applies_to: ClassVar[tuple[str, ...]] = ("lightsecagg",)
    Options = ListsOptions
    accomplice_roles = (LightSecAggAccomplice,)

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Sum over each list.

        Raises:
            RoundAborted: no sum succeeds.
        """
        parts = rounds_of_lists(round_)
        return await sum_separately(self, ParallelGroups, parts or [round_], super().aggregate)

    async def summed(self, state: LightSecAggRound) -> Aggregate:
        """Sum over each group; a group receives only the keys of its members."""
        groups = self.groups(state) if self.attacking and LISTS not in state.start.memory else []
        if len(groups) < 2:
            return await super().summed(state)
        parts = [
            replace(state, adverts={client: state.adverts[client] for client in group}, sealed={}) for group in groups
        ]
        return await sum_separately(self, ParallelGroups, parts, super().summed)

    def groups(self, state: LightSecAggRound) -> list[list[int]]:
        """Return the members of each group, sorted: every honest client in one group, the accomplices in all."""
        accomplices = sorted(self.dishonest & state.adverts.keys())
        honest = [client for client in sorted(state.adverts) if client not in self.dishonest]
        possible = len(honest) // max(1, state.announced.threshold - len(accomplices))
        most = self.context.options_of(ParallelGroups).lists
        count = possible if most is None else min(possible, most)
        parts = np.array_split(np.array(honest, np.int64), count) if count else []
        return [sorted([*part.tolist(), *accomplices]) for part in parts]
