"""Batch-partition selection (Multi-RoundSecAgg).

So, Ali, Guler, Jiao, Avestimehr, Securing Secure Aggregation: Mitigating Multi-Round Privacy Leakage in Federated
Learning, AAAI 2023, arXiv 2106.03328, Algorithms 1 and 2.

The N users are split into batches of T. A round takes K/T complete batches (all members available), so any sum over
rounds is a sum over groups of at least T equally weighted users. `batch-partition` samples among the admissible sets of
batches:

- `uniform`: uniformly;
- `fair` (Algorithm 2 as printed): among sets that contain an available user with the fewest participations;
- `least-total` (the paper's public code): among sets with the smallest sum of participations.

By default batches have consecutive client numbers; `testbed.selection.reliability` describes the alternative.
`partition` is the case T = K, `random` the case T = 1.
"""

from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from testbed.arrays import Ids
from testbed.batches import Batches
from testbed.errors import RoundSkipped
from testbed.parties.client import RoleSpec
from testbed.selection.announced_batches import LIST_STAGE, SIGNATURES_STAGE, BatchMember, announce_batches
from testbed.selection.check_in import STAGE, CheckInRole, check_in
from testbed.selection.contract import (
    Selection,
    SelectionParameters,
    SelectionProtocol,
    SelectionRound,
    attach_selection_state,
)
from testbed.selection.reliability import like_reliability, read_lost_rounds
from testbed.selection.supply import Supply


class BatchPartitionParameters(SelectionParameters):
    """K/T whole batches of T users each."""

    stages: ClassVar[tuple[str, ...]] = (STAGE,)
    further_stages: ClassVar[tuple[str, ...]] = (LIST_STAGE, SIGNATURES_STAGE)
    needs_rounds: ClassVar[str] = "it draws whole batches, which are summed together"
    protocol: Literal["batch-partition"] = "batch-partition"
    privacy: int = Field(5, gt=0, description="Batch size T: the multi-round privacy guarantee")
    mode: Literal["uniform", "fair", "least-total"] = Field(
        "fair",
        description="How to choose among the available sets of batches. uniform: any set; fair: a set with the user "
        "that took part least often (Algorithm 2 as printed); least-total: a set with the smallest sum of "
        "participations, which balances participation even when dropout probabilities differ",
    )
    membership: Literal["known", "announced", "pinned"] = Field(
        "known",
        exclude_if=lambda value: value == "known",
        description="How clients know the members of batches. known: before the first round, from client numbers and T "
        "or a bulletin board; announced: the server tells each round's participants, who believe it; pinned: as "
        "announced, but each client keeps the batch of its first round, refuses another, and all participants sign the "
        "list",
    )
    reliability_from: Path | None = Field(
        None,
        exclude_if=lambda path: path is None,
        description="A recorded schedule (`testbed trace record`): batches then unite clients that were away or "
        "dropped out in about equally many of its rounds, and are complete more often; none: consecutive client "
        "numbers",
    )

    @property
    def announced_membership(self) -> str | None:
        """See `membership`; None for ``known``."""
        return None if self.membership == "known" else self.membership

    def supply(self, population: int, online: float) -> Supply | None:
        """Return the number of whole batches that a round needs; None with batches of like reliability."""
        # These are complete with different chances, mostly more often than one chance for all clients suggests.
        if self.reliability_from is not None:
            return None
        return whole_batches(self.participants, self.privacy, population, online)

    def check(self, population: int) -> None:
        """Check that T divides K and that K/T batches exist."""
        super().check(population)
        check_batch_size(self.privacy, self.participants)

    def stages_of_round(self) -> tuple[str, ...]:
        """Return the stages: check-in, and the announcement of the batches where clients do not know them."""
        return (STAGE, *self.further_stages[: {"known": 0, "announced": 1, "pinned": 2}[self.membership]])


class PartitionParameters(SelectionParameters):
    """G = N/K fixed groups; one whole group takes part."""

    stages: ClassVar[tuple[str, ...]] = (STAGE,)
    mode: ClassVar[str] = "fair"
    membership: ClassVar[str] = "known"
    reliability_from: ClassVar[Path | None] = None
    needs_rounds: ClassVar[str] = "it draws whole groups, which are summed together"
    protocol: Literal["partition"] = "partition"

    @property
    def privacy(self) -> int:
        """The batch size T, which equals K."""
        return self.participants

    def supply(self, population: int, online: float) -> Supply | None:
        """Return the need of a round: one whole group."""
        return whole_batches(self.participants, self.participants, population, online)


def whole_batches(participants: int, size: int, population: int, online: float) -> Supply:
    """Return the number of whole batches that a round needs and how likely a batch is complete.

    Args:
        participants: participants K of a round.
        size: batch size T.
        population: number of clients n.
        online: probability that a client is online.
    """
    keys = ("selection.privacy", "selection.participants", "population", "availability")
    return Supply("batches with all members online", participants // size, population // size, online**size, keys)


def check_batch_size(privacy: int, participants: int) -> None:
    """Check that T divides K.

    Args:
        privacy: batch size T.
        participants: participants K of a round.

    Raises:
        ValueError: T does not divide K; the message lists the allowed values.
    """
    if participants % privacy:
        allowed = ", ".join(str(t) for t in range(1, participants + 1) if participants % t == 0)
        raise ValueError(
            f"privacy: T = {privacy} does not divide participants K = {participants}; allowed here: {allowed}"
        )


class BatchSelection(SelectionProtocol):
    """Server side of protocols that select K/T whole batches: the numbers of participants.

    Attributes:
        batches: all batches.
        required: number of batches in a round, K/T.
    """

    parameters: SelectionParameters
    batches: Batches
    required: int

    @property
    def minimum_participants(self) -> int:
        """K: whole batches have T members or more."""
        return self.parameters.participants

    @property
    def maximum_participants(self) -> int:
        """The size of the K/T largest batches together."""
        return self.batches.largest(self.required)


class BatchPartitionSelection(BatchSelection):
    """Server side of `batch-partition` and, with T = K and fair mode, of `partition`."""

    def __init__(self, parameters: BatchPartitionParameters | PartitionParameters, population: int) -> None:
        super().__init__(parameters, population)
        self.mode, self.batch_size = parameters.mode, parameters.privacy
        self.required = parameters.participants // parameters.privacy
        self.membership, self.reliability_from = parameters.membership, parameters.reliability_from
        self.stages = parameters.stages_of_round()
        self.clients_know_batches = self.membership == "known"
        self.clients_pin_batches = self.participants_agree = self.needs_registration = self.membership == "pinned"

    @cached_property
    def batches(self) -> Batches:  # type: ignore[override]  # a cached property may be set, too
        """All batches. Read from the file on first use, so that a missing file is reported once, with its key."""
        # If T does not divide N, some batches have T + 1 members or slightly more, and none has fewer than T.
        if self.reliability_from is None:
            return Batches.consecutive(self.population, self.batch_size)
        return like_reliability(read_lost_rounds(self.reliability_from, self.population), self.batch_size)

    def check_files(self) -> None:
        """Read the record of the clients' reliability, if there is one.

        Raises:
            TraceError: the record cannot be used in this experiment.
        """
        _ = self.batches

    @property
    def maximum_participants(self) -> int:
        """The size of the K/T largest batches together; the same for every partition."""
        return Batches.consecutive(self.population, self.batch_size).largest(self.required)

    @property
    def roles(self) -> list[RoleSpec]:
        """The check-in role, and the role of participants that are told their batches."""
        announced = [] if self.clients_know_batches else [RoleSpec(BatchMember, self.parameters)]
        return [RoleSpec(CheckInRole, self.parameters), *announced]

    async def select(self, round_: SelectionRound) -> Selection:
        """Check in, choose among the complete batches, and announce them where clients do not know them."""
        present = await check_in(round_)
        with attach_selection_state(len(present)):
            chosen = self.choose(present, round_.participations, round_.rng("participants"))
        participants = self.batches.members(chosen)
        if self.clients_know_batches:
            return Selection(participants, len(present))
        with attach_selection_state(len(present), participants):
            ready = await announce_batches(participants, self.batches, round_, pinned=self.clients_pin_batches)
        return Selection(participants, len(present), ready)

    def choose(self, present: Ids, participations: Ids, rng: np.random.Generator) -> Ids:
        """Choose the batches of a round (Algorithm 2).

        Args:
            present: sorted available clients.
            participations: `(n,)` int64, rounds for which each client was selected so far.
            rng: the server's generator.

        Returns:
            `(K/T,)` sorted batch numbers.

        Raises:
            RoundSkipped: fewer than K/T batches are complete.
        """
        eligible = self.batches.whole(present)
        if len(eligible) < self.required:
            raise RoundSkipped("too-few-whole-batches", f"{len(eligible)} whole batches, {self.required} wanted")
        # The paper enumerates C(N/T, K/T) sets; a draw of eligible batches has the same distribution in O(N).
        if self.mode == "uniform":
            return np.sort(rng.choice(eligible, self.required, replace=False))
        if self.mode == "least-total":
            return self._least_total(eligible, participations, rng)
        # Algorithm 2 takes the available user with the fewest participations. It leaves open the case that this
        # user's batch is not complete, so the minimum is over users of eligible batches; ties break uniformly.
        users = self.batches.members(eligible)
        fewest = users[participations[users] == participations[users].min()]
        first = int(self.batches.of[rng.choice(fewest)])
        others = rng.choice(eligible[eligible != first], self.required - 1, replace=False)
        return np.sort(np.append(others, first).astype(np.int64))

    def _least_total(self, eligible: Ids, participations: Ids, rng: np.random.Generator) -> Ids:
        """Return the K/T batches with the smallest totals; ties break uniformly."""
        totals = np.bincount(self.batches.of, participations, len(self.batches))[eligible]
        last = np.partition(totals, self.required - 1)[self.required - 1]
        sure, tied = eligible[totals < last], eligible[totals == last]
        return np.sort(np.append(sure, rng.choice(tied, self.required - len(sure), replace=False)))
