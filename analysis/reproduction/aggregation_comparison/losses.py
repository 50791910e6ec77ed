"""Availability in which a round loses participants in one stage: an exact number of them, or each by chance."""

from typing import Any

import numpy as np

from testbed.arrays import Ids
from testbed.emulation.availability import Availability, Presence
from testbed.emulation.availability.models import Mask
from testbed.randomness import Randomness

MOST_DRAWS = 1_000_000
"""Most draws of one round's losses until they meet the condition."""


class Losses(Availability):
    """Clients that drop out in one stage of each round, and helpers that are always there and never participate.

    The participants are the clients with the lowest numbers, and the helpers those with the highest. All losses that
    meet the options are equally likely, or as likely as independent dropouts make them.

    Args:
        section: the experiment's section `availability`.
        population: number of clients, helpers included.
        randomness: of the experiment.
        stage: stage in which clients drop out, such as ``secagg/masked-input``.
        number: number of participants that drop out; None: each drops out with probability `rate`.
        rate: see `number`.
        helpers: number of clients that only answer the questions of the stage's protocol.
        members: number of clients on a committee, those with the lowest numbers.
        most: largest number of losses with which a round can complete; None: any.
        most_members: the same for members of the committee.
        completes: whether to draw losses with which the round can complete, or losses that end it; None: any losses.
    """

    def __init__(
        self,
        section: Any,
        population: int,
        randomness: Randomness,
        *,
        stage: str,
        number: int | None = None,
        rate: float = 0.0,
        helpers: int = 0,
        members: int = 0,
        most: int | None = None,
        most_members: int | None = None,
        completes: bool | None = None,
    ) -> None:
        # Helpers are out of reach while participants are selected, and are asked later.
        self.comes_back = helpers > 0
        self._stage = stage
        self._protocol = stage.partition("/")[0]
        self._population, self._participants = population, population - helpers
        self._number, self._rate = number, rate
        self._members = members
        self._most = self._participants if most is None else most
        self._most_members = members if most_members is None else most_members
        self._completes = completes
        self._randomness = randomness

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        reachable = np.ones(len(clients), np.bool_)
        if stage.partition("/")[0] != self._protocol:
            reachable = clients < self._participants
        drops = np.zeros(len(clients), np.bool_)
        if stage == self._stage:
            drops = self.lost(round_number)[clients]
        return Presence.of(reachable, drops)

    def lost(self, round_number: int) -> Mask:
        """Return `(population,)` booleans: the clients that drop out in a round.

        Raises:
            ValueError: losses that meet the condition are too improbable to be drawn.
        """
        generator = self._randomness.generator("availability", round_number, "losses")
        lost = np.zeros(self._population, np.bool_)
        participants = lost[: self._participants]
        for _ in range(MOST_DRAWS):
            if self._number is None:
                participants[:] = generator.random(self._participants) < self._rate
            else:
                participants[:] = False
                participants[generator.choice(self._participants, self._number, replace=False)] = True
            of_members = int(participants[: self._members].sum())
            can_complete = int(participants.sum()) <= self._most and of_members <= self._most_members
            if self._completes is None or self._completes == can_complete:
                return lost
        raise ValueError(f"no losses that meet the options in {MOST_DRAWS} draws; allow more losses, or lower the rate")
