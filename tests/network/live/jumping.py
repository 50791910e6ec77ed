"""An event loop on which time passes only by waiting."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

TURNS, TAKE_S = 1000, 1e-9  # asyncio lets timers go by the nanosecond: two could wake each other for ever


class _Jumping(selectors.SelectSelector):
    """Instead of waiting, lets the loop's time jump; a long row of turns in which nobody waits takes a little time."""

    loop: "JumpingLoop"
    turns = 0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if timeout is None and not ready:
            raise RuntimeError("everybody waits for ever")
        self.turns = 0 if timeout else self.turns + 1
        if timeout and not ready:
            self.loop.now_s += timeout
        elif self.turns >= TURNS:
            self.loop.now_s, self.turns = self.loop.now_s + TAKE_S, 0
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop on a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 0.0
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s


def run(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(work)


def clock() -> float:
    return asyncio.get_running_loop().time()
