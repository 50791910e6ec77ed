"""Secure aggregation for each of several participant lists of one round (`ParallelLists`)."""

from dataclasses import replace
from typing import ClassVar

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
        rows = round_.memory.get(LISTS)
        if rows is None or len(rows) < 2:
            return await super().aggregate(round_)
        made: list[Aggregate] = []
        end: RoundAborted | None = None
        for row in rows:
            members = ids(row[row >= 0])
            one = replace(round_, participants=members, trained=np.intersect1d(round_.trained, members))
            try:
                made.append(await super().aggregate(one))
            except RoundAborted as failed:
                end = failed
        over = ", ".join(str(sum(client not in self.dishonest for client in one.survivors.tolist())) for one in made)
        detail = f"{len(made)} sums in one round, over {over} honest clients" if made else "no sum came about"
        self.record_attack(ParallelSums, detail)
        if not made:
            assert end is not None
            raise end
        weight = sum(one.weight for one in made)
        mean = sum((one.weight / weight * one.mean for one in made[1:]), made[0].weight / weight * made[0].mean)
        survivors = np.unique(np.concatenate([one.survivors for one in made]))
        return Aggregate(mean, weight, survivors, min(one.noise for one in made))
