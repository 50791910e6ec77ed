"""What a live stage waits for: the rule of the virtual clock (`EmulatedNetwork._end_of`), applied as things happen.

A stage ends with the answer that reaches its quorum; else when everybody has been heard of, by an answer, a refusal,
or (where disconnects are visible) by going away; else at its deadline. Silence is never heard.
"""

import asyncio
from collections.abc import Callable

import numpy as np

from testbed.emulation.availability import Presence
from testbed.network.live.exchange import Exchange
from testbed.network.recorder import ANSWERED, DROPPED, LATE, OFFLINE, REFUSED, SILENT
from testbed.network.stage import Stage

_PENDING = -1


class StageProgress:
    """Who has been heard of in one stage.

    Args:
        stage: its arrays are filled in as things happen.
        presence: who is there.
        quorum: so many answers are enough; None: all.
        disconnects_visible: see `Timing`.
        clock: the run's.

    Attributes:
        exchanges: of the clients that are asked.
        over: done when the stage has ended; its result is when.
    """

    def __init__(
        self,
        stage: Stage,
        presence: Presence,
        quorum: int | None,
        disconnects_visible: bool,
        clock: Callable[[], float],
    ) -> None:
        self._stage = stage
        self._quorum = quorum
        self._visible = disconnects_visible
        self._clock = clock
        self.over: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self.exchanges = [
            Exchange(client, position, bool(presence.drops[position]))
            for position, client in enumerate(stage.recipients.tolist())
            if presence.reachable[position]
        ]
        stage.outcome[:] = np.where(presence.reachable, np.where(presence.drops, DROPPED, _PENDING), OFFLINE)
        self._pending = int((stage.outcome == _PENDING).sum())
        self._answers = 0
        self._unheard = 0 if disconnects_visible else len(stage.recipients) - self._pending
        self.check()

    def pending(self, exchange: Exchange) -> bool:
        """Whether the client's fate is still open."""
        return bool(self._stage.outcome[exchange.position] == _PENDING)

    def settle(self, exchange: Exchange, outcome: int) -> None:
        """The client's fate is now known: ANSWERED or REFUSED (it arrives now), SILENT, DROPPED or OFFLINE."""
        if self.over.done() or not self.pending(exchange):
            return
        self._stage.outcome[exchange.position] = outcome
        self._pending -= 1
        if outcome in (ANSWERED, REFUSED):
            self._stage.arrival_s[exchange.position] = self._clock()
            self._answers += outcome == ANSWERED
        elif outcome == SILENT or not self._visible:
            self._unheard += 1
        self.check()

    def leaves(self, exchange: Exchange) -> None:
        """The client goes away; it has dropped out if its fate was still open, and may be missed no more if not."""
        if self.pending(exchange):
            self.settle(exchange, DROPPED)
        elif self._visible and self._stage.outcome[exchange.position] == SILENT:
            self._unheard -= 1
            self.check()

    def check(self) -> None:
        """End the stage if nothing more is waited for."""
        enough = self._quorum is not None and 0 < self._quorum <= self._answers
        if enough or not (self._pending or self._unheard):
            self.end()

    def end(self) -> None:
        """The stage ends now, or ended before."""
        if not self.over.done():
            self.over.set_result(self._clock())

    def fail(self, error: Exception) -> None:
        """The stage cannot go on: whoever waits for its end gets `error`."""
        if not self.over.done():
            self.over.set_exception(error)

    def close(self) -> None:
        """After the end: who is still open is late, or was never connected."""
        for exchange in self.exchanges:
            if self.pending(exchange):
                self._stage.outcome[exchange.position] = LATE if exchange.connected else OFFLINE
