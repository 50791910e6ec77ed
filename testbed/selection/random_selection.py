"""Random selection and its relatives: the baselines that trust the server.

`random`: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, arXiv 1602.05629.
`weighted-random`, `bernoulli`: So et al., Securing Secure Aggregation: Mitigating Multi-Round Privacy Leakage in
Federated Learning, arXiv 2106.03328, section 3.3 and appendix H.
"""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from testbed.errors import RoundSkipped
from testbed.parties.client import RoleSpec
from testbed.selection.check_in import STAGE, Attendant, check_in
from testbed.selection.choosing import Ids, Selection, SelectionParameters, SelectionRound


class RandomParameters(SelectionParameters):
    """K of the available clients, uniformly; the round is skipped when fewer than K are available."""

    protocol: Literal["random"] = "random"


class WeightedRandomParameters(SelectionParameters):
    """K at random among the available clients with the smallest participation counts."""

    protocol: Literal["weighted-random"] = "weighted-random"


class BernoulliParameters(SelectionParameters):
    """Each available client independently, with probability K / (N (1 - p))."""

    protocol: Literal["bernoulli"] = "bernoulli"
    assumed_unavailable: float = Field(
        0.0, ge=0, lt=1, description="The server's estimate of the mean probability p of being away"
    )

    def check(self, population: int) -> None:
        """The probability must not exceed 1."""
        super().check(population)
        reachable = population * (1 - self.assumed_unavailable)
        if self.participants > reachable:
            raise ValueError(
                f"participants: {self.participants} of {reachable:g} clients expected to be there "
                f"(population * (1 - assumed_unavailable)); take fewer"
            )


class _AmongThePresent:
    """Shared by the baselines: check-in, then the server chooses freely."""

    stages: ClassVar[tuple[str, ...]] = (STAGE,)
    needs_registration: ClassVar[bool] = False

    def __init__(self, parameters: SelectionParameters, population: int) -> None:
        self.parameters = parameters
        self.population = population

    @property
    def minimum_participants(self) -> int:
        """K: with fewer available, the round is skipped."""
        return self.parameters.participants

    @property
    def roles(self) -> list[RoleSpec]:
        """Clients only say that they are there: they can check nothing."""
        return [RoleSpec(Attendant, self.parameters)]

    async def select(self, round_: SelectionRound) -> Selection:
        """See `SelectionProtocol.select`."""
        present = await check_in(round_)
        return Selection(np.sort(self.choose(present, round_)), len(present))

    def choose(self, present: Ids, round_: SelectionRound) -> Ids:
        """The participants among those present."""
        raise NotImplementedError

    def _enough(self, present: Ids) -> None:
        if len(present) < self.parameters.participants:
            raise RoundSkipped("too-few-available", f"{len(present)} available, {self.parameters.participants} wanted")


class RandomSelection(_AmongThePresent):
    """`random`."""

    def choose(self, present: Ids, round_: SelectionRound) -> Ids:
        """K uniformly, without replacement."""
        self._enough(present)
        return round_.coin("participants").choice(present, self.parameters.participants, replace=False)


class WeightedRandomSelection(_AmongThePresent):
    """`weighted-random`."""

    def choose(self, present: Ids, round_: SelectionRound) -> Ids:
        """The K with the fewest participations; ties are broken uniformly."""
        self._enough(present)
        shuffled = round_.coin("participants").permutation(present)
        order = np.argsort(round_.participations[shuffled], kind="stable")
        return shuffled[order[: self.parameters.participants]]


class BernoulliSelection(_AmongThePresent):
    """`bernoulli`."""

    parameters: BernoulliParameters

    @property
    def minimum_participants(self) -> int:
        """However few are drawn; a sum of fewer than 2 hides nothing."""
        return 2

    @property
    def maximum_participants(self) -> int:
        """Everybody may be drawn."""
        return self.population

    def choose(self, present: Ids, round_: SelectionRound) -> Ids:
        """Every available client on its own; the round is skipped when nobody is chosen."""
        reachable = self.population * (1 - self.parameters.assumed_unavailable)
        drawn = round_.coin("participants").random(len(present)) < self.parameters.participants / reachable
        if not drawn.any():
            raise RoundSkipped("nobody-selected", f"none of {len(present)} available clients was drawn")
        return present[drawn]
