"""Transfers over one shared link that are not known beforehand: each is added when it begins.

A max-min share at one moment depends on nothing that comes later. So whenever transfers are added, what the others have
carried until then is settled, and all go on from there as `transfer` says. To the rounding of floats this is what
`transfer` makes of all of them at once.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.links.rates import Rates
from testbed.network.fair_sharing.transfers import TransferResult, transfer

_CLIENT, _START, _LEFT, _SIZE, _STOP, _DELAY, _TAKEN = range(7)


@dataclass(frozen=True)
class EndedTransfer:
    """A transfer that is complete, or was cut off.

    Attributes:
        client: whose it is.
        end_s: when it ended.
        complete: whether all of it got through.
        share: of its bytes that got through, 0 to 1.
    """

    client: int
    end_s: float
    complete: bool
    share: float


class OpenTransfers:
    """The transfers of clients over one shared link, at most one of each client at a time.

    Args:
        rates: of all clients' own links.
        capacity_bytes_s: bytes per second of the shared link; may be infinite.
    """

    def __init__(self, rates: Rates, capacity_bytes_s: float) -> None:
        self._rates, self._capacity = rates, capacity_bytes_s
        self.restore(np.zeros((0, 7)))

    def add(
        self, now_s: float, clients: Ids, start_s: Floats, size_bytes: Ids, stop_s: Floats, delay_s: Floats
    ) -> None:
        """Let transfers begin that nobody knew of before `now_s`; all that have ended by then have been taken off.

        Args:
            now_s: seconds; not less than in the last call.
            clients: `(m,)` whose they are; none of them has one.
            start_s: `(m,)` seconds, at least `now_s`.
            size_bytes: `(m,)` bytes.
            stop_s: `(m,)` seconds at which each is cut off; may be infinite.
            delay_s: `(m,)` by how many seconds each client's link is behind (see `Rates.delayed`).
        """
        going = self._rows[:, _TAKEN] == 0
        begun = going & (self._rows[:, _START] < now_s)
        carried = self._carried(self._rows, now_s).delivered_bytes
        self._rows[begun, _LEFT] -= carried[begun]
        self._rows[begun, _START] = now_s
        none_taken = np.zeros(len(clients))
        rows = np.column_stack((clients, start_s, size_bytes, size_bytes, stop_s, delay_s, none_taken))
        rows = np.concatenate((self._rows[going], rows.astype(np.float64)))
        self.restore(rows[np.argsort(rows[:, _CLIENT], kind="stable")])

    @property
    def next_s(self) -> float:
        """When the next one ends, complete or cut off; infinite: none does."""
        return float(self._end_s.min(initial=math.inf))

    def take_ended(self, until_s: float) -> list[EndedTransfer]:
        """Take off those that have ended by `until_s`, in the order of the clients."""
        ended = np.flatnonzero(self._end_s <= until_s)
        taken = []
        for at in ended.tolist():
            size, left = self._rows[at, _SIZE], self._rows[at, _LEFT]
            complete = bool(np.isfinite(self._found.finish_s[at]))
            share = 1.0 if complete else float((size - left + self._found.delivered_bytes[at]) / size)
            taken.append(EndedTransfer(int(self._rows[at, _CLIENT]), float(self._end_s[at]), complete, share))
        self._rows[ended, _TAKEN] = 1  # a part of the others' past until that is settled
        self._end_s[ended] = np.inf
        return taken

    def to_checkpoint(self) -> Floats:
        """What `restore` needs: `(k, 7)`."""
        return self._rows.copy()

    def restore(self, rows: npt.NDArray[Any]) -> None:
        """Resume with what `to_checkpoint` gave."""
        self._rows: Floats = rows.copy()
        self._found = self._carried(rows, math.inf)
        end_s = np.where(np.isfinite(self._found.finish_s), self._found.finish_s, rows[:, _STOP])
        self._end_s = np.where(rows[:, _TAKEN] == 0, end_s, np.inf)

    def _carried(self, rows: Floats, until_s: float) -> TransferResult:
        links = self._rates.take(rows[:, _CLIENT].astype(np.int64)).delayed(rows[:, _DELAY])
        stop_s = np.minimum(rows[:, _STOP], until_s)
        return transfer(rows[:, _START], rows[:, _LEFT], links, self._capacity, stop_s)
