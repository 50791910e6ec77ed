"""A machine that has more to do than links and devices allow time for says so: the work is made heavy."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.network import emulated
from tests.network.live.clients import LiveWorld

QUICK = {"latency": 0.0, "up": 1e8, "down": 1e8}


def slow(handler: Callable[..., Any], seconds: float, times: int) -> Callable[..., Any]:
    """The handler, but its first `times` calls keep a core busy for `seconds`."""
    left = [times]

    def working(self: Any, message: Any) -> Any:
        left[0] -= 1
        until = time.monotonic() + seconds * (left[0] >= 0)
        while time.monotonic() < until:
            pass
        return handler(self, message)

    return working


@pytest.fixture
def heavy(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, int], None]:
    """Make the clients' work heavy; it is charged nothing for it."""

    def heavy(seconds: float, times: int) -> None:
        monkeypatch.setattr(emulated.Answering, "on_question", slow(emulated.Answering.on_question, seconds, times))

    return heavy


def test_handlers_that_take_longer_than_their_devices_would(heavy: Callable[[float, int], None]) -> None:
    heavy(0.3, 3)
    ours = LiveWorld(emulated.World(3, **QUICK))
    ours.round(emulated.Question(seconds=0.1))
    assert ours.outcomes() == ["answered"] * 3
    assert ours.network.behind_s >= 0.75  # the third has waited for two others, and is due after 0.1 s
    ((party, told),) = ours.events("behind-schedule")
    assert party == "machine"
    assert told.endswith("were the machine's, and not those of links and devices; most at question")


def test_an_answer_that_was_cut_off_at_the_deadline_is_told_with_the_next(heavy: Callable[[float, int], None]) -> None:
    heavy(1.0, 1)
    ours = LiveWorld(emulated.World(1, **QUICK, deadline_s=0.5))
    ours.round(emulated.Question(), emulated.Question(), deadline_s=None)
    assert ours.outcomes()[0] == "late"
    if ours.outcomes(1) == ["late"]:  # the second question came while the first kept the handlers busy
        pytest.skip("too slow a machine")
    assert ours.network.behind_s >= 0.4


def test_links_that_no_socket_keeps_up_with() -> None:
    size = 60_000_000
    keys = {"latency": 0.0, "up": 1e15, "down": 1e15, "server_up": 1e15, "server_down": 1e15, "deadline_s": 600.0}
    ours = LiveWorld(emulated.World(2, **keys))
    ours.round(emulated.question_of_size(size, answer_size=size))
    computed = emulated.World(2, **keys)
    computed.round(emulated.question_of_size(size, answer_size=size))
    assert computed.now_s < 1e-5
    assert computed.network.behind_s == 0.0
    assert ours.outcomes() == ["answered"] * 2
    # The machine causes all delays: at most the buckets' depth and the bytes in sockets go unnoticed.
    assert ours.network.behind_s >= 0.2 * ours.network.now_s
    assert len(ours.events("behind-schedule")) == 1


def test_the_servers_own_work_counts_where_it_takes_longer_than_it_is_charged_for() -> None:
    async def script(world: Any) -> None:
        await world.network.begin_round(1)
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            pass
        await world.network.ask(world.everybody, emulated.Question())
        world.network.end_round()

    ours = LiveWorld(emulated.World(1, **QUICK))
    ours.run(script)
    assert ours.network.behind_s >= 0.35
    assert "the server's work" in ours.events("behind-schedule")[0][1]
