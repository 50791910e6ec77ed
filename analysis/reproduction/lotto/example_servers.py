"""Malicious servers of `example_run`: with and without Lotto, the strongest choice of participants."""

from typing import ClassVar

import numpy as np

from testbed.adversary.misbehaviour import SelectionMisbehaviour
from testbed.adversary.selection.candidates import ReserveMostSelected
from testbed.arrays import Ids
from testbed.selection.contract import SelectionRound
from testbed.selection.random_selection import RandomSelection


class KeepDishonestAndVictim(ReserveMostSelected):
    """Keeps all dishonest candidates, and the honest candidate that took part most often so far.

    The server of Corollary 2: it maximises the dishonest participants of a round and the rounds of a victim.
    """

    name: ClassVar[str] = "keep-dishonest-and-victim"

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """Return its own candidates, the victim, and random honest candidates for the remaining places."""
        honest = self.others(candidates)
        if not self.attacking or not len(honest):
            return super().choose(candidates, round_)
        rng, s = round_.rng("residual removal"), self.parameters.participants
        ours = rng.permutation(self.ours(candidates))[: s - 1]
        victim = self.target(honest, round_)
        rest = rng.choice(honest[honest != victim], s - 1 - len(ours), replace=False)
        self.record_attack(KeepDishonestAndVictim, f"{len(ours)} of {s} participants are dishonest; victim {victim}")
        return np.sort(np.concatenate([ours, [victim], rest]))


class OneVictim(SelectionMisbehaviour, RandomSelection):
    """Chooses the same honest client in every round, and its own clients for all other places that they can fill."""

    name: ClassVar[str] = "one-victim"
    applies_to: ClassVar[tuple[str, ...]] = ("random",)

    def choose(self, present: Ids, round_: SelectionRound) -> Ids:
        """Return the victim, its own clients, and random honest clients for the remaining places."""
        if not self.attacking:
            return super().choose(present, round_)
        rng, s = round_.rng("participants"), self.parameters.participants
        is_own = np.isin(present, list(self.dishonest))
        ours = rng.permutation(present[is_own])[: s - 1]
        victim, others = present[~is_own][:1], present[~is_own][1:]
        rest = rng.choice(others, s - len(ours) - len(victim), replace=False)
        self.record_attack(OneVictim, f"{len(ours)} of {s} participants are dishonest; victim {int(victim[0])}")
        return np.sort(np.concatenate([ours, victim, rest]))
