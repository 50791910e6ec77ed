"""The end of a stage on a live network, and the outcomes of clients that are late, leave, or drop out."""

import asyncio
from typing import Any

import numpy as np
import pytest

from testbed.network.exchanges import OUTCOMES
from tests.network import emulated
from tests.network.live.clients import LiveWorld

QUICK: dict[str, Any] = {"latency": 0.001}
LONG_S = 100.0  # a deadline that no test waits for
HALF_MB = 500_000


def test_a_client_that_is_late_is_cut_off_and_connects_again_for_the_next_stage() -> None:
    world = LiveWorld(emulated.World(2, factors=[1, 10_000], deadline_s=0.5, **QUICK))
    first, second = world.round(emulated.Question(seconds=0.001, answer_size=5000), emulated.Question())
    assert world.outcomes() == ["answered", "late"]
    assert first.missing.late.tolist() == [1]
    stage = world.exchanges()
    assert np.isnan(stage.received_s).tolist() == [False, True]
    assert stage.bytes_up.tolist() == [5000, 0]
    assert world.stages[1][1] >= 0.5
    assert second.ids.tolist() == [0, 1]


def test_a_late_upload_is_stopped_where_it_stands() -> None:
    world = LiveWorld(emulated.World(2, up=[1e8, 1e5], deadline_s=0.5, **QUICK))
    world.round(emulated.Question(answer_size=HALF_MB))
    assert world.outcomes() == ["answered", "late"]
    assert 0 < world.exchanges().bytes_up[1] <= 0.6 * 1e5  # half a second of its link, and a piece


def test_a_quorum_ends_the_stage_and_the_others_are_late() -> None:
    world = LiveWorld(emulated.World(5, factors=[1, 1, 1e6, 1, 1e6], deadline_s=LONG_S, **QUICK))
    first, second = world.round(emulated.Question(seconds=0.001), emulated.Question(), quorum=3)
    assert first.ids.tolist() == [0, 1, 3]
    assert first.missing.late.tolist() == [2, 4]
    assert len(second) >= 3
    assert world.network.now_s < LONG_S


def test_a_quorum_counts_no_refusals() -> None:
    world = LiveWorld(emulated.World(4, factors=[1, 50, 50, 1e6], deadline_s=LONG_S, **QUICK))
    (replies,) = world.round(emulated.Question(seconds=0.001, refusing=(0,)), quorum=2)
    assert replies.ids.tolist() == [1, 2]
    assert world.outcomes() == ["refused", "answered", "answered", "late"]


def test_silence_lasts_until_the_deadline_unless_a_quorum_is_reached() -> None:
    question = emulated.Question(silent=(1,))
    world = LiveWorld(emulated.World(3, deadline_s=0.4, **QUICK))
    world.round(question)
    assert world.outcomes() == ["answered", "silent", "answered"]
    assert world.network.now_s >= 0.4
    world = LiveWorld(emulated.World(3, deadline_s=LONG_S, **QUICK))
    world.round(question, quorum=2)
    assert world.outcomes() == ["answered", "silent", "answered"]
    assert world.network.now_s < LONG_S


def test_without_recipients_a_stage_ends_at_once() -> None:
    away = emulated.Everybody(offline={1: {0, 1}})
    keys = {"availability": away, "deadline_s": LONG_S, **QUICK}
    world = LiveWorld(emulated.World(2, disconnects_visible=True, **keys))
    (replies,) = world.round(emulated.Question())
    assert replies.missing.offline.tolist() == [0, 1]
    assert world.exchanges().bytes_down.tolist() == [0, 0]
    assert world.network.now_s < LONG_S


@pytest.mark.parametrize("visible", [True, False])
def test_a_client_that_drops_out_has_the_question_and_is_missed_at_once_or_by_timeout(visible: bool) -> None:
    gone = emulated.Everybody(drops={"greeting": {1}})
    keys = {"deadline_s": LONG_S if visible else 0.4, "disconnects_visible": visible, "factors": 0.001, **QUICK}
    world = LiveWorld(emulated.World(3, availability=gone, **keys))

    async def script(world: Any) -> Any:
        first = await world.ask(emulated.Greeting(), emulated.Question())
        stages = world.network.exchanges
        later = await world.ask(emulated.Question(), number=2)
        return first, stages, later

    (first, second), stages, (later,) = world.run(script)
    assert first.missing.dropped.tolist() == [1]
    assert second.missing.offline.tolist() == [1]
    assert later.ids.tolist() == [0, 1, 2]
    assert (stages[0].bytes_up[1], stages[0].compute_s[1]) == (0, 0)
    if not visible:
        assert stages[0].bytes_down.tolist() == [1, 1, 1]
        assert stages[1].sent_s >= 0.4


@pytest.mark.parametrize("visible", [True, False])
def test_a_client_that_leaves_while_it_uploads_has_sent_a_part(visible: bool) -> None:
    leaving = emulated.Everybody(leaves={1: 0.5}, comes_back=True)
    keys = {"deadline_s": LONG_S if visible else 1.0, "disconnects_visible": visible, **QUICK}
    world = LiveWorld(emulated.World(2, up=[1e8, 2e5], availability=leaving, **keys))
    (replies,) = world.round(emulated.Question(answer_size=HALF_MB))
    assert replies.missing.dropped.tolist() == [1]
    sent = world.exchanges().bytes_up
    assert sent[0] == HALF_MB
    assert 0 < sent[1] <= 0.5 * 2e5
    assert 0.5 <= world.network.now_s < LONG_S
    if not visible:
        assert world.network.now_s >= 1.0


def test_a_client_that_leaves_while_it_downloads_has_got_a_part_and_answers_nothing() -> None:
    leaving = emulated.Everybody(leaves={0: 0.5})
    keys = {"deadline_s": LONG_S, "disconnects_visible": True, "latency": 0.1}
    world = LiveWorld(emulated.World(2, down=[2e5, 1e8], availability=leaving, **keys))
    world.round(emulated.question_of_size(HALF_MB))
    stage = world.exchanges()
    assert world.outcomes() == ["dropped", "answered"]
    assert stage.bytes_down[1] == HALF_MB
    assert 0 < stage.bytes_down[0] <= 0.4 * 2e5  # bytes in transit when it leaves do not reach it
    assert (stage.bytes_up[0], stage.compute_s[0]) == (0, 0)


def test_a_client_that_has_answered_may_leave() -> None:
    leaving = emulated.Everybody(leaves={0: 0.3})
    world = LiveWorld(emulated.World(2, latency=[0.001, 0.2], deadline_s=LONG_S, availability=leaving))
    world.round(emulated.Question())
    assert world.outcomes() == ["answered", "answered"]
    assert world.network.now_s >= 0.4  # four latencies of 0.1 s: two of the slow one's each way


def test_a_transfer_is_never_faster_than_its_links() -> None:
    question = emulated.question_of_size(50_000, seconds=0.1, answer_size=100_000)
    keys = {"latency": 0.05, "down": 5e5, "up": 1e6, "deadline_s": LONG_S}
    world = LiveWorld(emulated.World(2, **keys))
    world.round(question)
    reference = emulated.World(2, **keys)
    reference.round(question)
    assert world.network.now_s >= reference.now_s
    assert (world.exchanges().received_s >= reference.network.exchanges[0].received_s).all()


def test_a_servers_link_is_shared_and_never_faster_than_it_is() -> None:
    question = emulated.question_of_size(50_000, answer_size=100_000)
    keys = {"latency": 0.0, "down": 1e9, "up": 1e9, "server_up": 1e6, "server_down": 5e5, "deadline_s": LONG_S}
    world = LiveWorld(emulated.World(4, **keys))
    world.round(question)
    pieces_s = 2 * 0.01  # the first to have its question may be some pieces before the last
    assert world.network.now_s >= 4 * 50_000 / 1e6 - pieces_s + 4 * 100_000 / 5e5
    assert world.network.now_s < LONG_S


def test_a_look_up_at_the_pki_takes_its_time() -> None:
    question, keys = emulated.Question(looking_up=1000), {"latency": 0.05, "down": 5e5, "deadline_s": LONG_S}
    world = LiveWorld(emulated.World(1, **keys))
    world.round(question)
    reference = emulated.World(1, **keys)
    reference.round(question)
    assert world.exchanges().pki_bytes_down[0] > 64_000
    assert world.network.now_s >= reference.now_s > 0.3


def test_modelled_work_of_the_server_is_waited_for() -> None:
    async def script(world: Any) -> None:
        await world.network.begin_round(1)
        replies = await world.network.ask(world.everybody, emulated.Question(vector=tuple(range(100))))
        await replies.total()  # 0.001 s an element
        await world.network.ask(world.everybody, emulated.Question())
        world.network.end_round()

    world = LiveWorld(emulated.World(3, deadline_s=LONG_S, **QUICK))
    world.run(script)
    assert world.network.server_compute_s == pytest.approx(0.3)
    first, second = world.network.exchanges
    assert second.sent_s >= first.received_s.max() + 0.3


def test_the_clock_goes_on_where_it_was_set_and_stands_between_rounds() -> None:
    async def script(world: Any) -> tuple[float, float]:
        world.network.now_s = 1000.0
        await world.ask(emulated.Question())
        ended_s = world.network.now_s
        await asyncio.to_thread(lambda: sum(range(200_000)))  # e.g. an evaluation
        await world.ask(emulated.Question(), number=2)
        return ended_s, world.exchanges().sent_s

    ended_s, began_s = LiveWorld(emulated.World(1, deadline_s=LONG_S, **QUICK)).run(script)
    assert 1000 < ended_s < 1000 + LONG_S
    assert ended_s <= began_s < ended_s + 0.1


def test_clients_of_a_dead_host_are_gone_until_it_is_back() -> None:
    world = LiveWorld(
        emulated.World(4, hosts=2, factors=[1, 1e6, 1, 1e6], deadline_s=LONG_S, disconnects_visible=True, **QUICK)
    )

    handling = asyncio.Event()

    async def script(world: Any) -> Any:
        world.on_delivery(1, handling.set)
        asking = asyncio.ensure_future(world.ask(emulated.Question(seconds=0.001), emulated.Question()))
        await handling.wait()
        await asyncio.to_thread(world.groups[1].close)
        first, second = await asking
        world.connect(host=1)
        await world.network.wait_for_clients(4, LONG_S)
        (third,) = await world.ask(emulated.Question(), number=2)
        return first, second, third

    first, second, third = world.run(script)
    assert first.ids.tolist() == [0, 2]
    assert first.missing.dropped.tolist() == [1, 3]
    assert second.missing.offline.tolist() == [1, 3]
    assert third.ids.tolist() == [0, 1, 2, 3]


def test_clients_that_never_connect_are_offline() -> None:
    world = LiveWorld(emulated.World(3, deadline_s=0.4, **QUICK), absent=(2,))
    (replies,) = world.round(emulated.Question())
    assert replies.missing.offline.tolist() == [2]
    assert world.network.now_s >= 0.4
    assert [OUTCOMES[code] for code in world.exchanges().outcome] == ["answered", "answered", "offline"]
