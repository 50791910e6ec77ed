"""Secure aggregation for each of several participant lists of one round (`ParallelLists`)."""

from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from dataclasses import replace
from typing import ClassVar, TypeVar

import numpy as np

from testbed.adversary.misbehaviour import AggregationMisbehaviour
from testbed.adversary.secagg.dishonest_clients import SecAggAccomplice, SecAggPlusAccomplice
from testbed.adversary.selection.lists import LISTS, ListsOptions, ParallelLists
from testbed.aggregation.contract import Aggregate, AggregationRound
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg_plus.protocol import SecAggPlus
from testbed.errors import RoundAborted
from testbed.network.contract import ids
from testbed.parties.client import RoleSpec


class ParallelSums(AggregationMisbehaviour, SecAgg):
    """Sums over each list by itself, one after the other; the model gets their weighted mean.

    The accomplices are in all of them: they begin again each time.
    """

    name: ClassVar[str] = ParallelLists.name
    applies_to: ClassVar[tuple[str, ...]] = ("secagg", "secagg-plus")
    only_follows: ClassVar[bool] = True
    Options = ListsOptions

    @property
    def roles(self) -> list[RoleSpec]:
        """Those of the honest server, and the accomplices."""
        kind = SecAggPlusAccomplice if isinstance(self, SecAggPlus) else SecAggAccomplice
        return [*super().roles, RoleSpec(kind, self.parameters, self.dishonest)]

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """See `AggregationProtocol.aggregate`. Raises `RoundAborted` when no sum comes about."""
        parts = rounds_of_lists(round_)
        if len(parts) < 2:
            return await super().aggregate(round_)
        made, end = await each_sum(parts, super().aggregate)
        self.record_attack(ParallelSums, sums_made(made, self.dishonest))
        return mean_over(made, end)


def rounds_of_lists(round_: AggregationRound) -> list[AggregationRound]:
    """An aggregation for each list that was agreed on; none where the server has not made several."""
    parts = []
    for row in round_.memory.get(LISTS, ()):
        members = ids(row[row >= 0])
        parts.append(replace(round_, participants=members, trained=np.intersect1d(round_.trained, members)))
    return parts


Part = TypeVar("Part")


async def each_sum(
    parts: Iterable[Part], summed: Callable[[Part], Awaitable[Aggregate]]
) -> tuple[list[Aggregate], RoundAborted | None]:
    """The sums over each of these, one after the other, and how the last one ended that did not come about."""
    made: list[Aggregate] = []
    end: RoundAborted | None = None
    for part in parts:
        try:
            made.append(await summed(part))
        except RoundAborted as failed:
            end = failed
    return made, end


def sums_made(made: Sequence[Aggregate], dishonest: Set[int]) -> str:
    """What came of it, in one line."""
    over = ", ".join(str(sum(client not in dishonest for client in one.survivors.tolist())) for one in made)
    return f"{len(made)} sums in one round, over {over} honest clients" if made else "no sum came about"


def mean_over(made: Sequence[Aggregate], end: RoundAborted | None) -> Aggregate:
    """All sums as one; raises `end` where there is none."""
    if not made:
        assert end is not None
        raise end
    weight = sum(one.weight for one in made)
    mean = sum((one.weight / weight * one.mean for one in made[1:]), made[0].weight / weight * made[0].mean)
    survivors = np.unique(np.concatenate([one.survivors for one in made]))
    return Aggregate(mean, weight, survivors, min(one.noise for one in made))
