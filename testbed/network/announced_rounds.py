"""The number of the last announced round that each client knows of."""

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids


class AnnouncedRounds:
    """For each client, the number of the last round that it has heard of or knows to have missed.

    Clients refuse a round if they have not heard of its predecessors. They count announcements for that check, and must
    leave out rounds that could not reach them. A device knows that it was out of reach, and learns how many rounds were
    announced meanwhile from a source other than the server, such as a public timetable. In this testbed the network has
    both facts, and attaches to each announcement the round number that the client knows of. The server is not involved.

    A client that accepts an announcement moves to the number of the announced round. A client that refuses it moves one
    round forward. A client that is out of reach moves one round forward too, but at most once per round of the run. A
    client that the announcement is not addressed to does not move.

    Args:
        population: number of clients n.
    """

    def __init__(self, population: int) -> None:
        self._population = population
        self._before_first: int | None = None
        self._numbers: Ids | None = None  # (n,), from the first announcement on
        self._missed: npt.NDArray[np.bool_] | None = None  # (n,), clients that missed one in this round of the run

    def begin_round(self, round_number: int) -> None:
        """Begin a round of the run; all clients know of the rounds before the first one (in a resumed run)."""
        if self._before_first is None:
            self._before_first = round_number - 1
        self._missed = None

    def known_to(self, clients: Ids, round_number: int) -> Ids | None:
        """Return the last announced round that each client knows of; None if it is the previous one for all.

        Args:
            clients: `(m,)` int64 client numbers.
            round_number: the current round.
        """
        numbers = self._all()[clients]
        return None if (numbers == round_number - 1).all() else numbers

    def record(self, number: int, recipients: Ids, reached: npt.NDArray[np.bool_], refused: Ids) -> None:
        """Record the announcement of a round.

        Args:
            number: number of the announced round.
            recipients: `(m,)` int64, the clients that the announcement was addressed to.
            reached: `(m,)` bool, recipients that got the message.
            refused: int64 numbers of the clients that refused it.
        """
        numbers = self._all()
        if self._missed is None:
            self._missed = np.zeros(self._population, np.bool_)
        accepted = np.setdiff1d(recipients[reached], refused)
        numbers[accepted] = np.maximum(numbers[accepted], number)
        # It counts the announcement, but does not believe its number: that may be the server's lie.
        numbers[refused] += 1
        away = recipients[~reached]
        # Once per round of the run: a device that was away counts the rounds of a timetable, not the announcements.
        away = away[~self._missed[away]]
        numbers[away] += 1
        self._missed[away] = True

    def to_checkpoint(self, round_number: int) -> Ids | None:
        """Return the `(n,)` numbers to store in a checkpoint after this round; None if its number implies them."""
        if self._numbers is None or (self._numbers == round_number).all():
            return None
        return self._numbers.copy()

    def restore(self, numbers: Ids) -> None:
        """Restore the numbers that `to_checkpoint` returned."""
        self._numbers = numbers.copy()

    def _all(self) -> Ids:
        if self._numbers is None:
            self._numbers = np.full(self._population, self._before_first or 0, np.int64)
        return self._numbers
