"""The virtual clock against examples worked out by hand: links, latency, compute, server capacity, the PKI."""

import asyncio
from dataclasses import replace

import pytest

from testbed.emulation.compute.cost import meter
from testbed.emulation.links import BandwidthTraces, Rates
from testbed.messages import encode
from testbed.parties.pki import Entries, Lookup
from tests.network import emulated

MB = 1e6  # bytes per second


def test_one_client_downlink_latency_compute_uplink_latency() -> None:
    world = emulated.World(down=MB, up=MB / 2, latency=0.05, factors=3.0)
    (replies,) = world.round(emulated.question_of_size(4000, seconds=2.0, answer_size=1000))
    assert world.now_s == pytest.approx(0.004 + 0.05 + 2 * 3 + 0.002 + 0.05)
    (stage,) = world.network.exchanges
    assert stage.stage == "question"
    assert stage.as_participant
    assert stage.sent_s == 0
    assert stage.received_s.tolist() == [world.now_s]
    assert (stage.bytes_down.tolist(), stage.bytes_up.tolist()) == ([4000], [1000])
    assert stage.compute_s.tolist() == [6.0]
    assert list(replies) == [0]
    assert len(encode(replies[0])) == 1000
    assert world.stages == [("question", 0.0)]


def test_each_client_has_its_own_link_and_speed_and_the_stage_lasts_for_the_slowest() -> None:
    world = emulated.World(3, down=[MB, MB / 10, MB], up=[MB, MB, MB / 100], latency=[0, 0.1, 0.2], factors=[5, 1, 2])
    world.round(emulated.question_of_size(1000, seconds=1.0, answer_size=1000))
    expected = [0.001 + 5 + 0.001, 0.01 + 0.1 + 1 + 0.001 + 0.1, 0.001 + 0.2 + 2 + 0.1 + 0.2]
    assert world.network.exchanges[0].received_s == pytest.approx(expected)
    assert world.now_s == pytest.approx(5.002)


def test_the_servers_uplink_is_shared_by_the_downloads() -> None:
    world = emulated.World(4, server_up=2 * MB, latency=0)
    world.round(emulated.question_of_size(1000, answer_size=1000))
    assert world.now_s == pytest.approx(0.002 + 0.001)  # each gets half of its link's rate


def test_the_servers_downlink_is_shared_by_the_uploads_that_overlap() -> None:
    world = emulated.World(4, server_down=MB, latency=0, factors=[1, 1, 10, 20])
    world.round(emulated.question_of_size(1000, seconds=1.0, answer_size=500_000))
    # Two upload together for a second, then one after the other alone.
    assert world.network.exchanges[0].received_s == pytest.approx([2.001, 2.001, 10.501, 20.501])


def test_max_min_fairness_leaves_the_slow_link_its_own_rate() -> None:
    world = emulated.World(2, up=[MB / 10, MB], server_down=MB / 2, latency=0)
    world.round(emulated.question_of_size(1000, answer_size=10_000))
    # 0.1 MB/s for the slow one; the fast one gets the remaining 0.4 MB/s.
    assert world.network.exchanges[0].received_s == pytest.approx([0.101, 0.026])


def test_stages_follow_each_other_and_the_servers_work_lies_between_them() -> None:
    world = emulated.World(2)

    async def two_stages() -> None:
        await world.network.begin_round(1)
        meter("work", 3)
        await world.network.ask(world.everybody, emulated.question_of_size(1000, answer_size=1000))
        meter("work", 4)
        await world.network.ask(world.everybody, emulated.question_of_size(1000, answer_size=1000))
        meter("work", 5)
        world.network.end_round()

    asyncio.run(two_stages())
    stage_s = 0.102
    assert [stage.sent_s for stage in world.network.exchanges] == pytest.approx([3, 3 + stage_s + 4])
    assert world.now_s == pytest.approx(3 + 4 + 5 + 2 * stage_s)
    assert world.network.server_compute_s == pytest.approx(12)
    meter("work", 100)  # after the round: nobody's time
    assert world.now_s == pytest.approx(12 + 2 * stage_s)


def test_the_next_round_goes_on_where_the_clock_stands() -> None:
    world = emulated.World()
    world.round(emulated.question_of_size(1000, answer_size=1000))
    world.round(emulated.question_of_size(1000, answer_size=1000), number=2)
    assert world.network.exchanges[0].sent_s == pytest.approx(0.102)
    assert world.now_s == pytest.approx(0.204)
    assert world.network.server_compute_s == 0


def test_private_parts_go_to_one_client_each_and_are_counted() -> None:
    world = emulated.World(3, latency=0)
    private = {client: emulated.Secret(bytes(1000 * client)) for client in range(3)}
    world.round(emulated.question_of_size(1000, answer_size=100), private=private)
    sizes = [1000 + len(encode(private[client])) for client in range(3)]
    assert world.network.exchanges[0].bytes_down.tolist() == sizes
    assert world.network.exchanges[0].received_s == pytest.approx([size / MB + 0.0001 for size in sizes])


def test_a_lookup_at_the_pki_takes_a_round_trip_and_its_bytes() -> None:
    world = emulated.World(2, down=MB / 10, up=MB / 100, latency=0.03)
    world.round(emulated.question_of_size(100, looking_up=20, answer_size=100))
    asked, told = len(encode(Lookup(list(range(20))))), len(encode(Entries([bytes(64)] * 20)))
    stage = world.network.exchanges[0]
    assert (stage.pki_bytes_up.tolist(), stage.pki_bytes_down.tolist()) == ([asked] * 2, [told] * 2)
    assert told > 20 * 64
    lookup_s = asked / (MB / 100) + told / (MB / 10) + 2 * 0.03
    assert world.now_s == pytest.approx(0.001 + 0.03 + lookup_s + 0.01 + 0.03)
    assert stage.bytes_up.tolist() == [100, 100]  # the PKI's bytes are not the server's
    assert stage.compute_s.tolist() == [0, 0]


def test_the_server_knows_how_long_each_answer_took_from_the_start_of_its_stage() -> None:
    world = emulated.World(4, latency=[0, 0.1, 0.2, 0.3], deadline_s=10.0)
    first, second = world.round(
        emulated.question_of_size(1000, seconds=1.0, answer_size=1000, silent=(1,), refusing=(2,)),
        emulated.question_of_size(1000, seconds=2.0, answer_size=1000),
    )
    assert first.ids.tolist() == [0, 3]
    assert first.latency_s == pytest.approx([1.002, 1.602])
    assert second.ids.tolist() == [0, 1, 2, 3]
    assert second.latency_s == pytest.approx([2.002, 2.202, 2.402, 2.602])  # not from the start of the round


def test_answers_that_are_alike_have_their_own_times() -> None:
    (replies,) = emulated.World(3, latency=[0, 0.5, 1], factors=[1, 2, 3]).round(emulated.Greeting())
    assert replies.latency_s == pytest.approx(replies.latency_s[0] + [0, 2 + 1, 4 + 2])


def test_a_stage_has_the_latency_of_its_beginning() -> None:
    """From 0.5 s on everything is 0.2 s away: the first stage began before, the second begins after."""
    world = emulated.World(2, latency=0.1)
    trace = BandwidthTraces.of([0, 2], [0.0, 0.5], [0.1, 0.2], [10.0])
    world.network.links = replace(world.network.links, latency_trace=Rates.traced(trace, [0, 0]))
    world.round(*(emulated.question_of_size(1000, seconds=1.0, answer_size=1000) for _ in range(2)))
    first, second = world.network.exchanges
    assert first.received_s == pytest.approx([1.202] * 2)
    assert (second.received_s - second.sent_s) == pytest.approx([1.402] * 2)
