"""Secure aggregation for each of several participant lists in one round (`ParallelLists`)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import ClassVar, TypeVar

import numpy as np

from testbed.adversary.misbehaviour import AggregationMisbehaviour, ServerMisbehaviour
from testbed.adversary.secagg.dishonest_clients import SecAggAccomplice, SecAggPlusAccomplice
from testbed.adversary.selection.lists import LISTS, ListsOptions, ParallelLists
from testbed.aggregation.contract import Aggregate, AggregationRound
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg_plus.protocol import SecAggPlus
from testbed.errors import RoundAborted
from testbed.network.contract import ids
from testbed.parties.client import RoleSpec


class ParallelSums(AggregationMisbehaviour, SecAgg):
    """Sums over each list separately, one after the other; the model gets the weighted mean.

    The accomplices are in all lists: they begin again each time.
    """

    name: ClassVar[str] = ParallelLists.name
    applies_to: ClassVar[tuple[str, ...]] = ("secagg", "secagg-plus")
    only_follows: ClassVar[bool] = True
    Options = ListsOptions

    @property
    def roles(self) -> list[RoleSpec]:
        """The roles of the honest server and of the accomplices."""
        kind = SecAggPlusAccomplice if isinstance(self, SecAggPlus) else SecAggAccomplice
        return [*super().roles, RoleSpec(kind, self.parameters, self.dishonest)]

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Sum over each list.

        Raises:
            RoundAborted: no sum succeeds.
        """
        parts = rounds_of_lists(round_)
        return await sum_separately(self, ParallelSums, parts or [round_], super().aggregate)


def rounds_of_lists(round_: AggregationRound) -> list[AggregationRound]:
    """Return an aggregation for each agreed list; empty if the server has not made several lists."""
    parts = []
    for row in round_.memory.get(LISTS, ()):
        members = ids(row[row >= 0])
        parts.append(replace(round_, participants=members, trained=np.intersect1d(round_.trained, members)))
    return parts if len(parts) > 1 else []


Part = TypeVar("Part")


async def sum_separately(
    server: ServerMisbehaviour,
    kind: type[ServerMisbehaviour],
    parts: Sequence[Part],
    summed: Callable[[Part], Awaitable[Aggregate]],
) -> Aggregate:
    """Sum over each part, one after the other, and return the weighted mean of the successful sums.

    A single part is summed as by the honest server, and nothing is recorded.

    Args:
        server: the malicious server.
        kind: the calling class.
        parts: groups of clients.
        summed: sums over one part.

    Raises:
        RoundAborted: no sum succeeds.
    """
    if len(parts) == 1:
        return await summed(parts[0])
    made: list[Aggregate] = []
    end: RoundAborted | None = None
    for part in parts:
        try:
            made.append(await summed(part))
        except RoundAborted as failed:
            end = failed
    over = ", ".join(str(int((~np.isin(part.survivors, list(server.dishonest))).sum())) for part in made)
    summary = f"{len(made)} sums in one round, over {over} honest clients" if made else "no sum came about"
    server.record_attack(kind, summary)
    if not made:
        assert end is not None
        raise end
    weight = sum(part.weight for part in made)
    mean = sum((part.weight / weight * part.mean for part in made[1:]), made[0].weight / weight * made[0].mean)
    survivors = np.unique(np.concatenate([part.survivors for part in made]))
    return Aggregate(mean, weight, survivors, min(part.noise for part in made))
