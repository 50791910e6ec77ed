"""A malicious server that asks a client again before its turn, where selection promises how far apart rounds are.

The noise of a mechanism that correlates it over rounds is planned for that distance (Choquette-Choo et al., arXiv
2306.08153): two participations that are closer may add up in the same noise. The clients refuse.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from testbed.adversary.misbehaviour import MisbehaviourOptions, SelectionMisbehaviour
from testbed.adversary.victims import VictimOptions
from testbed.arrays import Ids
from testbed.selection.contract import Selection, SelectionRound

_ASKED = "reselect-early: asked"  # in the server's memory: (n,) int64, the round for which each was selected last


class ReselectOptions(VictimOptions):
    """Whom to ask again."""

    victim: int | None = Field(
        None, ge=0, description="The victim's number; none: of the honest clients that are there the one asked last"
    )


class ReselectEarly(SelectionMisbehaviour):
    """Takes the victim in every round that it is there, whether it has rested or not.

    Another participant, or another batch, has to make place where a round has a fixed number of them.
    """

    name: ClassVar[str] = "reselect-early"
    applies_to: ClassVar[tuple[str, ...]] = ("min-separation", "balls-in-bins")
    Options: ClassVar[type[MisbehaviourOptions]] = ReselectOptions

    async def select(self, round_: SelectionRound) -> Selection:
        """As the honest server, and the victim; in a round that the honest one skips nobody is asked."""
        chosen = await super().select(round_)
        asked = round_.memory.setdefault(_ASKED, np.zeros(round_.population, np.int64))
        victim = self._victim(chosen, asked)
        if self.attacking and victim is not None:
            last = int(asked[victim])
            since = f"last asked in round {last}" if last else "never asked before"
            self.record_attack(ReselectEarly, f"asked client {victim} out of its turn: {since}")
            chosen = replace(chosen, participants=self._with(chosen.participants, victim))
        asked[chosen.participants] = round_.number
        return chosen

    def _victim(self, chosen: Selection, asked: Ids) -> int | None:
        """Whom to ask out of its turn; None: it is not there, or its turn it is."""
        named = self.context.options_of(ReselectEarly).victim
        there = np.zeros(0, np.int64) if chosen.available is None else chosen.available
        others = np.setdiff1d(np.setdiff1d(there, chosen.participants), list(self.dishonest))
        if named is not None:
            return named if named in others else None
        others = others[asked[others] > 0]
        return int(others[np.argmax(asked[others])]) if len(others) else None

    def _with(self, participants: Ids, victim: int) -> Ids:
        """The participants and the victim; with batches, its whole batch instead of another one."""
        if self.batches is not None:
            others = self.batches.whole(participants)[:-1]
            return self.batches.members(np.append(others, self.batches.of[victim]))
        room = self.maximum_participants - 1
        return np.sort(np.append(participants[:room], victim))
