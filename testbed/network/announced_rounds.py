"""Which rounds each client has heard of."""

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids


class AnnouncedRounds:
    """For each client the number of the last round that it has heard of, or knows that it has missed.

    A client that counts announcements, to refuse a round whose predecessors it has not heard of, must not count those
    that could not reach it. A device knows that it was out of reach; how many rounds were announced meanwhile it has
    from a source other than the server, a public timetable for instance. Here the network knows both, and tells each
    client with an announcement up to which number it has heard. The server has no part in it.

    An announcement that a client accepts brings it to that round's number; one that it refuses counts as one round, as
    it would have by announcing the next number; one that could not reach it likewise, but once in a round of the run;
    one that was not sent to it counts for nothing.

    Args:
        population: number of clients n.
    """

    def __init__(self, population: int) -> None:
        self._population = population
        self._before_first: int | None = None
        self._numbers: Ids | None = None  # (n,), from the first announcement on
        self._missed: npt.NDArray[np.bool_] | None = None  # (n,), who has missed one in this round of the run

    def begin_round(self, round_number: int) -> None:
        """A round of the run begins; those before the first one (a resumed run) are over, and everybody knows."""
        if self._before_first is None:
            self._before_first = round_number - 1
        self._missed = None

    def known_to(self, clients: Ids, round_number: int) -> Ids | None:
        """`(m,)` up to which number `clients` have heard; None: up to the round before, as when all are honest."""
        heard = self._all()[clients]
        return None if (heard == round_number - 1).all() else heard

    def record(self, number: int, asked: Ids, reached: npt.NDArray[np.bool_], refused: Ids) -> None:
        """Round `number` was announced to `asked`, of which those in the mask `reached`, `(m,)`, got the message."""
        heard = self._all()
        if self._missed is None:
            self._missed = np.zeros(self._population, np.bool_)
        accepted = np.setdiff1d(asked[reached], refused)
        heard[accepted] = np.maximum(heard[accepted], number)
        heard[refused] += 1
        away = asked[~reached]
        away = away[~self._missed[away]]
        heard[away] += 1
        self._missed[away] = True

    def to_checkpoint(self, round_number: int) -> Ids | None:
        """What a checkpoint after this round must hold, `(n,)`; None where it follows from the round's number."""
        if self._numbers is None or (self._numbers == round_number).all():
            return None
        return self._numbers.copy()

    def restore(self, numbers: Ids) -> None:
        """Resume with what `to_checkpoint` gave."""
        self._numbers = numbers.copy()

    def _all(self) -> Ids:
        if self._numbers is None:
            self._numbers = np.full(self._population, self._before_first or 0, np.int64)
        return self._numbers
