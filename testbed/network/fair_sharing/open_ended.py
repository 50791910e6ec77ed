"""Transfers over one shared link that are added as they begin, without knowledge of later ones.

A max-min share depends on nothing that happens later. When transfers are added, the bytes that the others have carried
so far are settled, and all continue from there as `transfer` computes it. Up to float rounding the result equals one
call of `transfer` with all transfers.
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
        client: the client that it belongs to.
        end_s: seconds at which it ended.
        complete: whether all bytes got through.
        share: share of its bytes that got through, 0 to 1.
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
        """Add transfers that begin at or after `now_s`; call `take_ended` for all that have ended by then first.

        Args:
            now_s: seconds; not less than in the last call.
            clients: `(m,)` clients of the transfers; none of them may have one in progress.
            start_s: `(m,)` seconds, at least `now_s`.
            size_bytes: `(m,)` bytes.
            stop_s: `(m,)` seconds at which each is cut off; may be infinite.
            delay_s: `(m,)` seconds by which each client's link is behind (see `Rates.delayed`).
        """
        going = self._rows[:, _TAKEN] == 0
        # Settle the past: the bytes carried so far are final, as shares do not depend on later transfers.
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
            complete = bool(np.isfinite(self._results.finish_s[at]))
            share = 1.0 if complete else float((size - left + self._results.delivered_bytes[at]) / size)
            # Settled bytes are `size - left`; the result covers the time since then.
            taken.append(EndedTransfer(int(self._rows[at, _CLIENT]), float(self._end_s[at]), complete, share))
        self._rows[ended, _TAKEN] = 1  # a part of the others' past until that is settled
        self._end_s[ended] = np.inf
        return taken

    def to_checkpoint(self) -> Floats:
        """Return the state for `restore`: `(k, 7)`."""
        return self._rows.copy()

    def restore(self, rows: npt.NDArray[Any]) -> None:
        """Restore the state that `to_checkpoint` returned."""
        self._rows: Floats = rows.copy()
        # If nothing is added, these are the ends; `add` computes them anew.
        self._results = self._carried(rows, math.inf)
        end_s = np.where(np.isfinite(self._results.finish_s), self._results.finish_s, rows[:, _STOP])
        self._end_s = np.where(rows[:, _TAKEN] == 0, end_s, np.inf)

    def _carried(self, rows: Floats, until_s: float) -> TransferResult:
        links = self._rates.take(rows[:, _CLIENT].astype(np.int64)).delayed(rows[:, _DELAY])
        stop_s = np.minimum(rows[:, _STOP], until_s)
        return transfer(rows[:, _START], rows[:, _LEFT], links, self._capacity, stop_s)
