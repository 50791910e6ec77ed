"""A malicious server that selects a client too early, although selection guarantees a distance between rounds.

Noise that is correlated over rounds is planned for that distance (Choquette-Choo et al., arXiv 2306.08153): two closer
participations may add up in the same noise. The clients refuse.
"""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from testbed.adversary.misbehaviour import MisbehaviourOptions, SelectionMisbehaviour
from testbed.adversary.victims import VictimOptions
from testbed.arrays import Ids
from testbed.batches import Batches
from testbed.memory import ArrayName
from testbed.selection.contract import Selection, SelectionRound, TrainingReports

# In the server's memory, (n,) int64: the last round in which each client has trained, 0: in none; in how many it has.
_LAST, _TIMES = ArrayName("reselect-early: last"), ArrayName("reselect-early: times")


class ReselectOptions(VictimOptions):
    """Options of `reselect-early`."""

    victim: int | None = Field(
        None, ge=0, description="The victim's number; none: an honest available client that rests"
    )


class ReselectEarly(SelectionMisbehaviour):
    """Selects the victim in every round in which it is available; an attack if its turn is not yet, or never again.

    If a round has a fixed number of participants, another participant or batch is left out.
    """

    name: ClassVar[str] = "reselect-early"
    applies_to: ClassVar[tuple[str, ...]] = ("min-separation", "balls-in-bins")
    Options: ClassVar[type[MisbehaviourOptions]] = ReselectOptions
    uses_reported_losses: bool = False
    batches: Batches | None
    maximum_participants: int
    parameters: Any

    async def select(self, round_: SelectionRound) -> Selection:
        """Return the honest selection plus the victim; a skipped round stays skipped."""
        chosen = await super().select(round_)
        victim = self._victim(chosen, round_) if self.attacking else None
        if victim is None:
            return chosen
        if victim in self._out_of_turn(np.array([victim]), round_):
            last = int(self._array(_LAST, round_)[victim])
            self.record_attack(ReselectEarly, f"asked client {victim} out of its turn: it has trained in round {last}")
        return replace(chosen, participants=self._with(chosen.participants, victim))

    def learn(self, round_: SelectionRound, reports: TrainingReports) -> None:
        """Store the clients that have trained."""
        self._array(_LAST, round_)[reports.clients] = round_.number
        self._array(_TIMES, round_)[reports.clients] += 1

    def _array(self, name: ArrayName, round_: SelectionRound) -> Ids:
        array: Ids = round_.memory.setdefault(name, np.zeros(round_.population, np.int64))
        return array

    def _out_of_turn(self, clients: Ids, round_: SelectionRound) -> Ids:
        """Return the clients that have trained and may not train in this round by the pattern."""
        pattern = self.parameters.participation_pattern(self.context.rounds)
        last, times = self._array(_LAST, round_)[clients], self._array(_TIMES, round_)[clients]
        gap, separation = round_.number - last, pattern.min_separation
        # Balls-in-bins fixes each client's bin, so only multiples of the cycle are its turn.
        forbidden = (gap < separation) | (pattern.fixed_cycle & (gap % separation > 0))
        if pattern.max_participations is not None:
            forbidden |= times >= pattern.max_participations
        resting: Ids = clients[(last > 0) & forbidden]
        return resting

    def _victim(self, chosen: Selection, round_: SelectionRound) -> int | None:
        """Return the client to add; None if it is not available or already selected."""
        there = np.zeros(0, np.int64) if chosen.available is None else chosen.available
        others = np.setdiff1d(np.setdiff1d(there, chosen.participants), list(self.dishonest))
        named = self.context.options_of(ReselectEarly).victim
        if named is not None:
            return named if named in others else None
        resting = self._out_of_turn(others, round_)
        return int(resting[np.argmax(self._array(_LAST, round_)[resting])]) if len(resting) else None

    def _with(self, participants: Ids, victim: int) -> Ids:
        """Return the participants plus the victim; with batches, its whole batch instead of another batch."""
        if self.batches is not None:
            others = self.batches.whole(participants)[:-1]
            return self.batches.members(np.append(others, self.batches.of[victim]))
        room = self.maximum_participants - 1
        return np.sort(np.append(participants[:room], victim))
