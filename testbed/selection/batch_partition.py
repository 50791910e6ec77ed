"""Batch-partition selection: So, Ali, Guler, Jiao, Avestimehr, Securing Secure Aggregation: Mitigating Multi-Round
Privacy Leakage in Federated Learning (Multi-RoundSecAgg), AAAI 2023, arXiv 2106.03328, Algorithms 1 and 2.

The N users are split into batches of T. A round takes K/T whole batches all of whose members are available, so that
any sum of rounds is a sum over groups of at least T equally weighted users. `batch-partition` samples uniformly
among the admissible sets, or (fair, the printed Algorithm 2) among those that hold an available user with the fewest
participations, or (least-total, what the paper's public code does) among those with the least sum of participations.
The paper enumerates the family of C(N/T, K/T) sets; sampling eligible batches without replacement is the same
distribution in O(N). `partition` is the case T = K, `random` the case T = 1.

When T does not divide N, the first N mod floor(N/T) batches have one member more (T+1, or a little more when N/T is
small), so none has fewer than T and a round may hold a few users more than K.
"""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from testbed.arrays import Ids
from testbed.batches import Batches
from testbed.errors import RoundSkipped
from testbed.parties.client import RoleSpec
from testbed.selection.check_in import STAGE, CheckInRole, check_in
from testbed.selection.contract import Selection, SelectionParameters, SelectionProtocol, SelectionRound, ending_with
from testbed.selection.supply import Supply


class BatchPartitionParameters(SelectionParameters):
    """K/T whole batches of T users each."""

    stages: ClassVar[tuple[str, ...]] = (STAGE,)
    needs_rounds: ClassVar[str] = "it draws whole batches, which are summed together"
    protocol: Literal["batch-partition"] = "batch-partition"
    privacy: int = Field(5, gt=0, description="Batch size T: the multi-round privacy guarantee")
    mode: Literal["uniform", "fair", "least-total"] = Field(
        "fair",
        description="Which of the available sets of batches; uniform: any of them; fair: one with the user who took "
        "part least often (Algorithm 2 as printed); least-total: one with the least sum of participations, which keeps "
        "users even when their drop-out probabilities differ",
    )

    def supply(self, population: int, online: float) -> Supply | None:
        """See `SelectionParameters.supply`."""
        return whole_batches(self.participants, self.privacy, population, online)

    def check(self, population: int) -> None:
        """T must divide K, and K/T batches must exist."""
        super().check(population)
        check_batch_size(self.privacy, self.participants)


class PartitionParameters(SelectionParameters):
    """G = N/K fixed groups; one whole group takes part."""

    stages: ClassVar[tuple[str, ...]] = (STAGE,)
    mode: ClassVar[str] = "fair"
    needs_rounds: ClassVar[str] = "it draws whole groups, which are summed together"
    protocol: Literal["partition"] = "partition"

    @property
    def privacy(self) -> int:
        """T = K."""
        return self.participants

    def supply(self, population: int, online: float) -> Supply | None:
        """See `SelectionParameters.supply`."""
        return whole_batches(self.participants, self.participants, population, online)


def whole_batches(participants: int, size: int, population: int, online: float) -> Supply:
    """What a round of K / T whole batches of T = `size` clients needs: see `SelectionParameters.supply`."""
    keys = ("selection.privacy", "selection.participants", "population", "availability")
    return Supply("batches with all members online", participants // size, population // size, online**size, keys)


def check_batch_size(privacy: int, participants: int) -> None:
    """Raise `ValueError` unless T divides K."""
    if participants % privacy:
        allowed = ", ".join(str(t) for t in range(1, participants + 1) if participants % t == 0)
        raise ValueError(
            f"privacy: T = {privacy} does not divide participants K = {participants}; allowed here: {allowed}"
        )


class BatchSelection(SelectionProtocol):
    """How many participants a round of K/T whole batches has.

    Attributes:
        batches: all of them.
        wanted: K/T.
    """

    parameters: SelectionParameters
    batches: Batches
    wanted: int

    @property
    def minimum_participants(self) -> int:
        """K: whole batches of T or more."""
        return self.parameters.participants

    @property
    def maximum_participants(self) -> int:
        """The largest K/T batches together."""
        return self.batches.largest(self.wanted)


class BatchPartitionSelection(BatchSelection):
    """Server side of `batch-partition` (and, with T = K and fair mode, of `partition`)."""

    stages = (STAGE,)

    def __init__(self, parameters: BatchPartitionParameters | PartitionParameters, population: int) -> None:
        super().__init__(parameters, population)
        self.mode = parameters.mode
        self.batches = Batches.consecutive(population, parameters.privacy)
        self.wanted = parameters.participants // parameters.privacy

    @property
    def roles(self) -> list[RoleSpec]:
        """Clients only say that they are there."""
        return [RoleSpec(CheckInRole, self.parameters)]

    async def select(self, round_: SelectionRound) -> Selection:
        """See `SelectionProtocol.select`."""
        present = await check_in(round_)
        with ending_with(len(present)):
            chosen = self.choose(present, round_.participations, round_.rng("participants"))
        return Selection(self.batches.members(chosen), len(present))

    def choose(self, present: Ids, participations: Ids, rng: np.random.Generator) -> Ids:
        """`(K/T,)` batches to take; raises `RoundSkipped` when fewer than K/T are whole (Algorithm 2)."""
        eligible = self.batches.whole(present)
        if len(eligible) < self.wanted:
            raise RoundSkipped("too-few-whole-batches", f"{len(eligible)} whole batches, {self.wanted} wanted")
        if self.mode == "uniform":
            return np.sort(rng.choice(eligible, self.wanted, replace=False))
        if self.mode == "least-total":
            return self._least_total(eligible, participations, rng)
        # Algorithm 2 names the available user of minimum participation and says nothing for the case that this
        # user's own batch is not whole: the minimum is taken over the users of eligible batches, ties uniformly.
        users = self.batches.members(eligible)
        fewest = users[participations[users] == participations[users].min()]
        first = int(self.batches.of[rng.choice(fewest)])
        others = rng.choice(eligible[eligible != first], self.wanted - 1, replace=False)
        return np.sort(np.append(others, first).astype(np.int64))

    def _least_total(self, eligible: Ids, participations: Ids, rng: np.random.Generator) -> Ids:
        """The K/T batches with the least totals, which are the set with the least sum; of equal sets any, uniformly.

        Sets of equal sum differ only in which of the batches whose total is the K/T-th they take.
        """
        totals = np.bincount(self.batches.of, participations, len(self.batches))[eligible]
        last = np.partition(totals, self.wanted - 1)[self.wanted - 1]
        sure, tied = eligible[totals < last], eligible[totals == last]
        return np.sort(np.append(sure, rng.choice(tied, self.wanted - len(sure), replace=False)))
