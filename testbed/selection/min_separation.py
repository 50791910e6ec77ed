"""Min-separation: whoever has taken part rests for b - 1 rounds. The participation pattern of noise that is correlated
over rounds.

Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta, Xu, (Amplified) Banded Matrix Factorization: A Unified
Approach to Private Training, NeurIPS 2023, arXiv 2306.08153, section 3 (b-min-sep-participation, kept by timers on the
devices); McMahan, Xu, Zhang, A Hassle-free Algorithm for Strong Differential Privacy in Federated Learning Systems,
EMNLP 2024, arXiv 2408.08868 (min-sep b and at most k participations).

The server draws K uniformly among those that are there and have rested. It counts a client's rounds from selection,
whatever came of them: of one that did not answer it cannot know if it has trained. The client counts from training, and
refuses (`testbed.parties.participation`). So no honest server is refused (but for a run that was stopped and, on a real
clock, repeats a round with others), and no server at all has a client in two sums whose rounds are closer than b:
without an update that was trained in the very round there is nothing to sum.

A participant can check nothing but itself. What the pattern protects is who keeps to it, and that is enough: the
privacy of one client depends on its own rounds alone, not on those of others.

With `privacy` T above 1 whole batches of T take part and rest together, as in `batch-partition` (So et al., arXiv
2106.03328): the separation itself hides nobody in a sum of several rounds.
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
from testbed.selection.contract import Selection, SelectionParameters, SelectionProtocol, SelectionRound, ending_with
from testbed.selection.supply import Supply

_LAST = ArrayName("min-separation/last")  # (n,) int64, the round for which each was selected last; 0: it never was


class MinSeparationParameters(SelectionParameters):
    """K of those that are available and have rested; who takes part then rests for b - 1 rounds."""

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
        """See `SelectionParameters.participation_pattern`."""
        return ParticipationPattern(self.separation, self.max_participations)

    def supply(self, population: int, online: float) -> Supply | None:
        """See `SelectionParameters.supply`; groups that rest are aside."""
        return whole_batches(self.participants, self.privacy, population, online)

    def check(self, population: int) -> None:
        """T must divide K, and b rounds need as many clients."""
        super().check(population)
        check_batch_size(self.privacy, self.participants)
        wanted = self.participants // self.privacy
        most = max(1, population // self.privacy) // wanted
        if self.separation > most:
            raise ValueError(
                f"separation: {self.separation} rounds of {self.participants} participants need "
                f"{self.separation * self.participants} clients, and the population is {population}: rounds would be "
                f"skipped although all are there; at most {most} with so many participants"
            )


class MinSeparationSelection(SelectionProtocol):
    """Server side.

    Attributes:
        groups: who takes part together: batches, or single clients.
    """

    parameters: MinSeparationParameters
    stages = (STAGE,)

    def __init__(self, parameters: MinSeparationParameters, population: int) -> None:
        super().__init__(parameters, population)
        self.groups = Batches.consecutive(population, parameters.privacy)
        self.batches = self.groups if parameters.privacy > 1 else None

    @property
    def minimum_participants(self) -> int:
        """K: with fewer rested, the round is skipped."""
        return self.parameters.participants

    @property
    def maximum_participants(self) -> int:
        """The largest K/T batches together."""
        return self.groups.largest(self.parameters.participants // self.parameters.privacy)

    @property
    def roles(self) -> list[RoleSpec]:
        """Clients say that they are there; what they insist on, they do when they are asked to train."""
        return [RoleSpec(CheckInRole, self.parameters)]

    async def select(self, round_: SelectionRound) -> Selection:
        """See `SelectionProtocol.select`."""
        present = await check_in(round_)
        with ending_with(len(present)):
            participants = self.choose(present, round_)
        last = round_.memory.setdefault(_LAST, np.zeros(self.population, np.int64))
        last[participants] = round_.number
        return Selection(participants, len(present), available=present)

    def choose(self, present: Ids, round_: SelectionRound) -> Ids:
        """The sorted members of K/T groups all of whose members are there and have rested, drawn uniformly.

        Raises `RoundSkipped` where there are fewer.
        """
        wanted = self.parameters.participants // self.parameters.privacy
        rested = present[self.rested(round_)[present]]
        eligible = self.groups.whole(rested)
        if len(eligible) < wanted:
            what = "clients" if self.batches is None else "whole batches"
            detail = f"{len(rested)} of {len(present)} available clients have rested"
            raise RoundSkipped("too-few-rested", f"{detail}: {len(eligible)} {what}, {wanted} wanted")
        return self.groups.members(round_.rng("participants").choice(eligible, wanted, replace=False))

    def rested(self, round_: SelectionRound) -> npt.NDArray[np.bool_]:
        """`(n,)` who may take part: not in the last b - 1 rounds, and in fewer than k so far."""
        last = round_.memory.get(_LAST, np.zeros(self.population, np.int64))
        rested: npt.NDArray[np.bool_] = (last == 0) | (round_.number - last >= self.parameters.separation)
        if self.parameters.max_participations is not None:
            rested &= round_.participations < self.parameters.max_participations
        return rested
