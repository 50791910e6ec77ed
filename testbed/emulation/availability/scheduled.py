"""Availability by a schedule: what happened in a recorded run, or what somebody wrote down, happens again."""

from collections.abc import Sequence

import numpy as np

from testbed.arrays import Ids
from testbed.emulation.availability.presence import Presence
from testbed.emulation.traces.schedule import DROPPED, PARTICIPANT, Schedule

_THROUGHOUT = -1.0  # before the first stage


class ScheduledAvailability:
    """Replays a schedule: same client, same round, same stage, same fate. Rounds beyond it: nobody is away.

    Another protocol may not have the stage. Then a client that took part in the recorded round meets the same fate
    in the first stage after selection; one that did not (it was lost while it stood for selection) is away for the
    round.

    Args:
        schedule: what happens; its rows of participants say who took part.
        population: number of clients n.
        stages_after_selection: the replaying run's stages from training on, in order.
        selection_stages: its stages before, in order; may be left out, then a fate in a stage that is not among
            `stages_after_selection` befalls a client only if it is asked in a stage of just that name.

    Raises:
        TraceError: the schedule has a client that the population has not.
    """

    comes_back = False

    def __init__(
        self,
        schedule: Schedule,
        population: int,
        stages_after_selection: Sequence[str],
        selection_stages: Sequence[str] = (),
    ) -> None:
        schedule.check_population(population)
        after = len(selection_stages)
        self._order = {stage: float(at) for at, stage in enumerate((*selection_stages, *stages_after_selection))}
        self._order[""] = _THROUGHOUT
        self._before_training = after - 0.5
        # Rows are sorted, and a client's participation comes right before its fate.
        befalls = np.flatnonzero(schedule.fate != PARTICIPANT)
        previous = np.maximum(befalls - 1, 0)
        took_part = (
            (schedule.fate[previous] == PARTICIPANT)
            & (schedule.round[previous] == schedule.round[befalls])
            & (schedule.client[previous] == schedule.client[befalls])
        )
        self._round, self._client = schedule.round[befalls], schedule.client[befalls]
        self._drops = schedule.fate[befalls] == DROPPED
        self._stage, self._codes = schedule.stage[befalls], {name: at for at, name in enumerate(schedule.stages)}
        known = np.array([stage in self._order for stage in schedule.stages])[self._stage]
        places = np.array([self._order.get(stage, np.nan) for stage in schedule.stages])[self._stage]
        self._place = np.where(known, places, np.where(took_part, float(after), _THROUGHOUT))

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        """See `Availability.presence`; the time plays no part."""
        here = self._order.get(stage, self._before_training)
        start, end = np.searchsorted(self._round, (round_number, round_number + 1))
        part = slice(start, end)
        place = self._place[part]
        hit = (place == here) | (self._stage[part] == self._codes.get(stage, -1))
        away = ~hit & (place < here) | hit & ~self._drops[part]
        lost = hit & self._drops[part]
        reachable, drops = np.ones(len(clients), np.bool_), np.zeros(len(clients), np.bool_)
        row = np.searchsorted(self._client[part], clients)
        has = np.zeros(len(clients), np.bool_)
        inside = row < len(place)
        has[inside] = self._client[part][row[inside]] == clients[inside]
        reachable[has] = ~away[row[has]]
        drops[has] = lost[row[has]]
        return Presence.of(reachable, drops)
