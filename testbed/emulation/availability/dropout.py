"""Clients that leave in the middle of a round: a layer over any availability model."""

from collections.abc import Sequence

import numpy as np

from testbed.arrays import Ids
from testbed.emulation.availability.presence import Availability, Mask, Presence
from testbed.emulation.availability.section import DropOut
from testbed.emulation.links import cycled
from testbed.randomness import Randomness


class DroppingAvailability:
    """A model whose clients also drop out of stages, by rate and by hazard; one that has stays away for the round.

    Everything is drawn for everybody, so that no client's fate depends on who is asked.

    Args:
        model: who is there besides.
        section: who leaves where.
        population: number of clients n.
        stages_after_selection: in order; a random drop-out chooses among them, and a hazard that is one number
            applies to each.
        randomness: the experiment's.
    """

    def __init__(
        self,
        model: Availability,
        section: DropOut,
        population: int,
        stages_after_selection: Sequence[str],
        randomness: Randomness,
    ) -> None:
        self.comes_back = model.comes_back
        self._model = model
        self._stages = list(stages_after_selection)
        self._rate = cycled(section.rate, population)
        self._at = section.stage
        hazard = section.hazard
        self._hazard = dict(hazard) if isinstance(hazard, dict) else dict.fromkeys(self._stages, hazard)
        self._population = population
        self._randomness = randomness
        self._round: int | None = None

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        """See `Availability.presence`."""
        there = self._model.presence(round_number, stage, now_s, clients)
        if self._round != round_number:
            self._round = round_number
            self._leaving: dict[str, Mask] = {}
            self._draw_leaving_by_rate()
        drops = there.reachable & (there.drops | self._leaving_in(stage)[clients])
        return Presence(there.reachable, drops, there.leaves_s)

    def _draw_leaving_by_rate(self) -> None:
        generator = self._generator("dropout")
        leaves = generator.random(self._population) < self._rate
        where = generator.integers(0, max(1, len(self._stages)), self._population)
        self._by_rate_in = np.where(leaves, where, -1)

    def _generator(self, purpose: str) -> np.random.Generator:
        assert self._round is not None
        return self._randomness.generator("availability", self._round, purpose)

    def _leaving_in(self, stage: str) -> Mask:
        """`(n,)` bool: who leaves in this stage if it is asked there."""
        if stage not in self._leaving:
            if self._at != "random":
                leaving = (self._by_rate_in >= 0) & (stage == self._at)
            elif stage in self._stages:
                leaving = self._by_rate_in == self._stages.index(stage)
            else:
                leaving = np.zeros(self._population, np.bool_)
            if self._hazard.get(stage):
                leaving |= self._generator(f"hazard {stage}").random(self._population) < self._hazard[stage]
            self._leaving[stage] = leaving
        return self._leaving[stage]
