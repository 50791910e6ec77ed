"""Min-separation: after each participation a client rests for b - 1 rounds.

The participation pattern for noise that is correlated over rounds. Choquette-Choo, Ganesh, McKenna, McMahan, Rush,
Thakurta, Xu, (Amplified) Banded Matrix Factorization: A Unified Approach to Private Training, NeurIPS 2023, arXiv
2306.08153, section 3 (b-min-sep-participation, kept by timers on the devices); McMahan, Xu, Zhang, A Hassle-free
Algorithm for Strong Differential Privacy in Federated Learning Systems, EMNLP 2024, arXiv 2408.08868 (min-sep b and at
most k participations).

The server draws K clients uniformly among the available clients that have rested. A client counts its own rounds from
training and refuses a round that comes too early (`testbed.parties.participation`), so no server has a client in two
sums of rounds that are closer than b. With `privacy` T above 1, whole batches of T take part and rest together, as in
`batch-partition` (So et al., arXiv 2106.03328).
"""

from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from testbed.arrays import Ids
from testbed.batches import Batches
from testbed.errors import RoundSkipped
from testbed.memory import ArrayName
from testbed.parties.client import RoleSpec
from testbed.privacy.participation_pattern import ParticipationPattern
from testbed.selection.batch_partition import check_batch_size, whole_batches
from testbed.selection.check_in import STAGE, CheckInRole, check_in
from testbed.selection.contract import (
    Selection,
    SelectionParameters,
    SelectionProtocol,
    SelectionRound,
    attach_selection_state,
)
from testbed.selection.supply import Supply

_LAST = ArrayName("min-separation/last")  # (n,) int64, the last round for which each was selected; 0: never


class MinSeparationParameters(SelectionParameters):
    """K of the available clients that have rested; participants then rest for b - 1 rounds."""

    stages: ClassVar[tuple[str, ...]] = (STAGE,)
    needs_rounds: ClassVar[str] = "clients rest for whole rounds"
    protocol: Literal["min-separation"] = "min-separation"
    separation: int = Field(
        gt=0,
        le=10_000_000,
        description="Rounds from one participation of a client to its next, at least (b); clients insist on it",
    )
    max_participations: int | None = Field(
        None,
        gt=0,
        description="Rounds that a client takes part in, at most (k); clients insist on it. none: as many as the "
        "separation leaves room for",
    )
    privacy: int = Field(
        1, gt=0, description="Batch size T: whole batches take part, and rest, together; 1: every client by itself"
    )

    def participation_pattern(self, rounds: int) -> ParticipationPattern:
        """Return the pattern: at least b rounds apart, at most k participations."""
        return ParticipationPattern(self.separation, self.max_participations)

    def supply(self, population: int, online: float) -> Supply | None:
        """Return the number of whole batches that a round needs; ignores batches that rest."""
        return whole_batches(self.participants, self.privacy, population, online)

    def check(self, population: int) -> None:
        """Check that T divides K and that the population suffices for b rounds of different clients."""
        super().check(population)
        check_batch_size(self.privacy, self.participants)
        groups = self.participants // self.privacy
        most = max(1, population // self.privacy) // groups
        if self.separation > most:
            raise ValueError(
                f"separation: {self.separation} rounds of {self.participants} participants need "
                f"{self.separation * self.participants} clients, and the population is {population}: rounds would be "
                f"skipped although all clients are available; at most {most} with {self.participants} participants"
            )


class MinSeparationSelection(SelectionProtocol):
    """Server side.

    Attributes:
        groups: clients that take part together: batches, or single clients.
    """

    parameters: MinSeparationParameters
    stages = (STAGE,)

    def __init__(self, parameters: MinSeparationParameters, population: int) -> None:
        super().__init__(parameters, population)
        self.groups = Batches.consecutive(population, parameters.privacy)
        # Separation alone does not hide a client in a sum over several rounds; batches do.
        self.batches = self.groups if parameters.privacy > 1 else None

    @property
    def minimum_participants(self) -> int:
        """K: if fewer clients have rested, the round is skipped."""
        return self.parameters.participants

    @property
    def maximum_participants(self) -> int:
        """The size of the K/T largest batches together."""
        return self.groups.largest(self.parameters.participants // self.parameters.privacy)

    @property
    def roles(self) -> list[RoleSpec]:
        """The check-in role. Clients enforce their rest when they are asked to train."""
        return [RoleSpec(CheckInRole, self.parameters)]

    async def select(self, round_: SelectionRound) -> Selection:
        """Check in, then draw K/T groups that have rested."""
        present = await check_in(round_)
        with attach_selection_state(len(present)):
            participants = self.choose(present, round_)
        last = round_.memory.setdefault(_LAST, np.zeros(self.population, np.int64))
        # Count from selection: a client that does not answer may have trained. Clients count from training, i.e. less
        # strictly, so they do not refuse an honest server.
        last[participants] = round_.number
        return Selection(participants, len(present), available=present)

    def choose(self, present: Ids, round_: SelectionRound) -> Ids:
        """Draw K/T groups uniformly among the groups with all members available and rested.

        Args:
            present: sorted available clients.
            round_: the round.

        Returns:
            Sorted client numbers.

        Raises:
            RoundSkipped: there are fewer than K/T eligible groups.
        """
        needed = self.parameters.participants // self.parameters.privacy
        rested = present[self.rested(round_)[present]]
        eligible = self.groups.whole(rested)
        if len(eligible) < needed:
            what = "clients" if self.batches is None else "whole batches"
            detail = f"{len(rested)} of {len(present)} available clients have rested"
            raise RoundSkipped("too-few-rested", f"{detail}: {len(eligible)} {what}, {needed} wanted")
        return self.groups.members(round_.rng("participants").choice(eligible, needed, replace=False))

    def rested(self, round_: SelectionRound) -> npt.NDArray[np.bool_]:
        """Return `(n,)` bool: clients with fewer than k rounds so far and none in the last b - 1 rounds."""
        last = round_.memory.get(_LAST, np.zeros(self.population, np.int64))
        rested: npt.NDArray[np.bool_] = (last == 0) | (round_.number - last >= self.parameters.separation)
        if self.parameters.max_participations is not None:
            rested &= round_.participations < self.parameters.max_participations
        return rested
