"""Messages in flights through token buckets, against the fluid model; live stages against the virtual clock."""

import asyncio
import contextlib
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.emulation.links import ClientLinks, Rates
from testbed.emulation.transport.flights import Flights
from testbed.emulation.transport.section import HANDSHAKES, NO_TRANSPORT, TCP, TLS, Transport
from testbed.network.connections import DOWN, Connections, stage_word
from testbed.network.fair_sharing.transfers import transfer
from testbed.network.live.links import (
    DEPTH_S,
    PIECE_S,
    SMALLEST_PIECE,
    ThrottledTransfer,
    TokenBucket,
    constant,
    sleep_until,
)
from testbed.network.live.windows import Flight, Pacing, StageSenders
from tests.network import emulated
from tests.network.live.clients import LiveWorld
from tests.network.live.jumping import clock, run
from tests.network.live.test_answers import same_exchanges
from tests.thoroughness import examples

GAPS = st.one_of(st.just(0.0), st.floats(0, 0.5))
CARRYING = st.builds(
    lambda payload, share, gap_s: Flight(payload, payload * share, gap_s),
    st.integers(1, 300_000),
    st.floats(1, 2),
    GAPS,
)
LOST = st.builds(Flight, st.just(0), st.floats(60, 3000), GAPS)
MESSAGES = st.builds(lambda flights, last: [*flights, last], st.lists(st.one_of(CARRYING, LOST), max_size=4), CARRYING)


async def send(
    own: TokenBucket, shared: TokenBucket, flights: list[Flight], start_s: float = 0.0, stalls_s: tuple[float, ...] = ()
) -> tuple[list[tuple[float, int]], float, float]:
    """Send a message on a machine that is away for `stalls_s` after its first pieces.

    Returns its pieces as (time, bytes), what `Pacing.end` was told, and `behind_s`.
    """
    await sleep_until(start_s, clock)
    ended: list[float] = []
    pieces, left, stalls = [], sum(flight.payload for flight in flights), list(stalls_s)
    passage = ThrottledTransfer(own, shared, 1.0, clock, None, Pacing(iter(flights), ended.append))
    with passage:
        while left:
            piece = await passage.next_piece(left)
            left -= piece
            pieces.append((clock(), piece))
            if stalls:
                await asyncio.sleep(stalls.pop(0))
    (end_s,) = ended
    return pieces, end_s, passage.behind_s


def link(rate: float = math.inf) -> TokenBucket:
    return TokenBucket(constant(rate), clock)


def in_fluid(messages: list[list[Flight]], start: list[float], rate: list[float], capacity: float) -> Any:
    """When they are through in the fluid model."""
    flights = Flights.of([[(flight.wire_bytes, flight.gap_s) for flight in message] for message in messages])
    return transfer(start, flights.total_bytes, Rates.constant(rate), capacity, flights=flights).finish_s


@given(MESSAGES, st.floats(1e5, 1e8))
@settings(max_examples=examples(60))
def test_a_lone_message_is_through_when_the_fluid_model_says(message: list[Flight], rate: float) -> None:
    pieces, end_s, behind_s = run(send(link(rate), link(), message))
    (expected,) = in_fluid([message], [0.0], [rate], math.inf)
    assert pieces[-1][0] == pytest.approx(expected, rel=1e-9)
    assert end_s == pytest.approx(expected, rel=1e-9)
    assert sum(size for _, size in pieces) == sum(flight.payload for flight in message)
    assert behind_s == 0


@given(st.lists(st.tuples(MESSAGES, st.floats(0, 1), st.floats(2e5, 1e7)), min_size=2, max_size=4), st.floats(5e5, 2e7))
@settings(max_examples=examples(40))
def test_messages_share_the_servers_link_as_in_the_fluid_model(
    given: list[tuple[list[Flight], float, float]], capacity: float
) -> None:
    messages, start, rate = (list(column) for column in zip(*given, strict=True))

    async def work() -> Any:
        shared = link(capacity)
        each = (send(link(own), shared, message, begin) for message, begin, own in given)
        return await asyncio.gather(*each)

    finish = np.array([end_s for _, end_s, _ in run(work())])
    expected = in_fluid(messages, start, rate, capacity)
    alone = np.array([in_fluid([m], [s], [min(r, capacity)], math.inf)[0] for m, s, r in given])
    assert (finish >= alone * (1 - 1e-9)).all()
    # In each flight, a piece of everybody and one of its own; pieces are measured without retransmissions.
    pieces = 4 * len(given) * np.array([len(message) for message in messages])
    slack_s = pieces * max(SMALLEST_PIECE, PIECE_S * capacity) / capacity + 2 * DEPTH_S
    assert (np.abs(finish - expected) <= slack_s + 0.05 * (expected - start)).all(), (finish, expected)


def test_no_piece_goes_beyond_the_flight_that_is_under_way() -> None:
    message = [Flight(10_000, 11_000, 0.0), Flight(20_000, 22_000, 0.1), Flight(5_000, 5_500, 0.1)]
    pieces, _, _ = run(send(link(1e6), link(), message))
    gates = ((0.0, 0.1, 10_000), (0.1, 0.2, 30_000), (0.2, 0.3, 35_000))
    for begin_s, end_s, most in gates:
        assert sum(size for when, size in pieces if when < end_s) == most
        within = [when for when, _ in pieces if begin_s <= when < end_s]
        assert min(within) > begin_s
    assert pieces[-1][0] == pytest.approx(0.2055)


def test_a_flight_longer_than_the_gap_is_followed_at_once() -> None:
    message = [Flight(100_000, 100_000, 0.0), Flight(100_000, 100_000, 0.06)]
    assert run(send(link(1e6), link(), message))[1] == pytest.approx(0.2)


def test_a_flight_that_is_lost_takes_its_time_and_carries_nothing() -> None:
    message = [Flight(0, 1000, 0.0), Flight(0, 1000, 0.3), Flight(900, 1000, 0.6)]
    pieces, end_s, _ = run(send(link(1e4), link(), message))
    assert [size for _, size in pieces] == [900]
    assert end_s == pytest.approx(0.3 + 0.6 + 0.1)


def test_a_link_that_rests_in_a_gap_saves_nothing() -> None:
    message = [Flight(1000, 1000, 0.0), Flight(30_000, 30_000, 0.04)]
    assert run(send(link(1e6), link(), message))[1] == pytest.approx(0.07)


@pytest.mark.parametrize(("stall_s", "late_s", "behind_s"), [(0.09, 0.0, 0.0), (0.13, 0.0, 0.0), (0.4, 0.25, 0.25)])
def test_a_late_wake_up_delays_a_flight_by_the_time_beyond_the_depth(
    stall_s: float, late_s: float, behind_s: float
) -> None:
    message = [Flight(1000, 1000, 0.0), Flight(50_000, 50_000, 0.1), Flight(1000, 1000, 0.2)]
    _, end_s, behind = run(send(link(1e6), link(), message, stalls_s=(stall_s,)))
    assert end_s == pytest.approx(0.1 + late_s + 0.2 + 0.001, abs=0.002)
    assert behind == pytest.approx(behind_s, abs=0.002)


def test_a_client_that_is_cut_off_has_stopped_then() -> None:
    ended: list[float] = []

    async def work() -> None:
        flights = iter([Flight(1000, 1000, 0.0), Flight(1000, 1000, 5.0)])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                with ThrottledTransfer(link(1e6), link(), 1.0, clock, None, Pacing(flights, ended.append)) as passage:
                    assert await passage.next_piece(2000) == 1000
                    await passage.next_piece(1000)

    run(work())
    assert ended == pytest.approx([2.0])


# -- the plan of a stage's messages ----------------------------------------------------------------------------


def connections(count: int = 2, transport: Transport = TCP, **keys: Any) -> Connections:
    each = np.full(count, 2.5e6), np.full(count, 2.5e6), np.full(count, 0.03)
    return Connections(ClientLinks(*each, 1e9, 1e9, transport, loss_key=7, **keys))


def senders(known: Connections | None, stage: int = 0, count: int = 2) -> StageSenders:
    return StageSenders(known, (1, stage), 10.0, np.arange(count), np.arange(count))


@given(st.integers(1, 3_000_000), st.sampled_from(["reno", "cubic", "bbr"]))
@settings(max_examples=examples(40))
def test_without_loss_a_message_goes_as_planned_on_the_virtual_clock(size: int, control: str) -> None:
    transport = TCP.model_copy(update={"congestion_control": control})
    pacing = senders(connections(transport=transport)).question(1, size, 10.0)
    whole = np.array([size + int(transport.overhead([size])[0][0])])
    word, one = stage_word(1, 0) | 1, np.array([1])
    plan = connections(transport=transport).plan(DOWN, one, 10.0, np.array([10.0]), np.array([size]), whole, word)
    assert (pacing is None) == (plan is None)
    if pacing is None or plan is None:
        return
    flights = list(pacing.flights)
    start = plan.flights.first[0]
    assert [flight.wire_bytes for flight in flights] == pytest.approx(plan.flights.size_bytes[start:].tolist())
    assert [flight.gap_s for flight in flights] == plan.flights.gap_s[start:].tolist()
    assert sum(flight.payload for flight in flights) == size
    carried = np.cumsum([flight.payload for flight in flights]) / size
    wire = np.cumsum([flight.wire_bytes for flight in flights]) / whole[0]
    np.testing.assert_allclose(carried, wire, atol=1 / size)


@given(st.integers(1, 400_000), st.floats(0.001, 0.5))
@settings(max_examples=examples(40))
def test_lost_bytes_are_sent_again_and_carry_no_payload(size: int, loss: float) -> None:
    made = senders(connections(loss=np.full(2, loss)))
    pacing = made.answer(0, size, 10.0)
    assert pacing is not None
    flights = list(pacing.flights)
    assert sum(flight.payload for flight in flights) == size
    assert flights[-1].payload > 0
    whole = size + int(TCP.overhead([size])[0][0])
    assert sum(flight.wire_bytes for flight in flights) == pytest.approx(whole + made.resent_up[0])
    assert made.resent_up[1] == made.resent_down.sum() == 0


def test_losses_are_drawn_by_client_direction_and_stage() -> None:
    def gaps(stage: int, client: int, down: bool) -> tuple[Flight, ...]:
        made = senders(connections(loss=np.full(2, 0.1)), stage)
        pacing = (made.question if down else made.answer)(client, 300_000, 10.0)
        assert pacing is not None
        return tuple(pacing.flights)

    which = [(stage, client, down) for stage in (0, 1) for client in (0, 1) for down in (True, False)]
    assert len({gaps(*one) for one in which}) == len(which)
    assert gaps(*which[0]) == gaps(*which[0])


def test_a_sender_remembers_the_bytes_sent() -> None:
    def first(known: Connections, stage: int, start_s: float) -> float:
        pacing = senders(known, stage).question(0, 300_000, start_s)
        assert pacing is not None
        flights = list(pacing.flights)
        pacing.end(start_s + 0.3)
        return flights[0].wire_bytes

    known = connections()
    new = first(known, 0, 10.0)
    assert first(known, 1, 10.35) > 2 * new
    assert first(known, 2, 100.0) == new  # idle for long
    first(known, 3, 100.35)
    known.close(np.array([0]))
    assert first(known, 4, 100.7) == new


def test_a_client_that_is_connected_need_not_connect() -> None:
    known = connections(3)
    opening = senders(known, 0, 2)
    assert opening.connected_s(1) == pytest.approx(10 + 3 * 0.03, abs=1e-3)
    assert opening.opening is not None
    assert opening.opening.bytes_up.tolist() == [HANDSHAKES["tcp"].bytes_up] * 2
    later = StageSenders(known, (1, 1), 20.0, np.arange(3), np.array([0, 2]))
    assert [later.connected_s(client) for client in range(3)] == [20.0, 20.0, pytest.approx(20 + 3 * 0.03, abs=1e-3)]


def test_nothing_is_held_back_where_there_are_no_windows() -> None:
    for known in (None, connections(transport=NO_TRANSPORT)):
        made = senders(known)
        assert made.opening is None
        assert made.connected_s(0) == 10.0
        assert made.question(0, 10**6, 10.0) is made.answer(0, 10**6, 10.0) is None


# -- live stages -----------------------------------------------------------------------------------------------

LINKS: dict[str, Any] = {"down": 2.5e6, "up": 2.5e6, "latency": 0.03}  # bytes per second: 20 Mbit/s
ROUND = (
    emulated.question_of_size(60_000, answer_size=300_000),
    emulated.question_of_size(200_000, answer_size=60_000),
)


def rounds(world: Any, *numbers: int) -> list[Any]:
    """Exchanges of rounds on the virtual clock, or live."""
    found = []

    async def script(of: Any) -> None:
        for number in numbers:
            await of.network.begin_round(number)
            for question in ROUND:
                await of.network.ask(of.everybody, question)
            of.network.end_round()
            found.extend(of.network.exchanges)

    if isinstance(world, LiveWorld):
        world.run(script)
    else:
        asyncio.run(script(world))
    return found


def took_s(stage: Any) -> Any:
    return stage.received_s - stage.sent_s


@pytest.mark.parametrize("connection", ["persistent", "per-round", "per-stage"])
def test_live_stages_have_the_bytes_of_the_virtual_clock_and_are_no_faster(connection: str) -> None:
    def world(transport: Transport) -> Any:
        return emulated.World(3, transport=transport, **LINKS)

    transport = TLS.model_copy(update={"connection": connection})
    expected = rounds(world(transport), 1, 2)
    found = rounds(LiveWorld(world(transport)), 1, 2)
    without = rounds(world(NO_TRANSPORT), 1, 2)
    for live, virtual in zip(found, expected, strict=True):
        for column in ("outcome", "bytes_down", "bytes_up", "transport_down", "transport_up"):
            assert getattr(live, column).tolist() == getattr(virtual, column).tolist()
        assert (took_s(live) >= took_s(virtual) - 1e-6).all()
    assert len(found) == 4
    assert (took_s(expected[0]) > 1.5 * took_s(without[0])).all()  # so windows are waited for


def test_a_client_that_drops_out_connects_again() -> None:
    def world() -> Any:
        gone = emulated.Everybody(drops={"question": {1}})
        transport = TCP.model_copy(update={"connection": "persistent"})
        return emulated.World(
            2, transport=transport, availability=gone, disconnects_visible=True, **LINKS | {"latency": 0.001}
        )

    expected, found = rounds(world(), 1, 2), rounds(LiveWorld(world()), 1, 2)
    assert [stage.transport_up.tolist() for stage in found[1:]] == [
        stage.transport_up.tolist() for stage in expected[1:]
    ]
    first, again = found[0].transport_up, found[2].transport_up
    assert first[0] - again[0] == HANDSHAKES["tcp"].bytes_up  # it has kept its connection
    assert again[1] == first[0]


def test_retransmissions_are_counted() -> None:
    def world() -> Any:
        made = emulated.World(1, transport=TCP, **LINKS | {"latency": 0.005})
        links = replace(made.network.links, loss=np.array([0.2]), loss_key=3)
        made.network.links, made.network.connections = links, Connections(links)
        return made

    ours = LiveWorld(world())
    ours.round(emulated.question_of_size(30_000))
    first = ours.exchanges()
    made = StageSenders(Connections(ours.network.links), (1, 0), 0.0, np.arange(1), np.arange(1))
    pacing = made.question(0, int(first.bytes_down[0]), 0.1)
    assert pacing is not None
    list(pacing.flights)
    headers, _ = TCP.overhead(first.bytes_down)
    _, acknowledgements = TCP.overhead(first.bytes_up)
    again = round(made.resent_down[0])
    assert again > 0
    assert first.transport_down[0] == headers[0] + again + acknowledgements[0] + HANDSHAKES["tcp"].bytes_down


def test_on_the_networks_own_links_nothing_is_held_back() -> None:
    keys = LINKS | {"latency": 100.0}
    without = emulated.World(2, transport=TLS.model_copy(update={"handshake": "none"}), deadline_s=1e9, **keys)
    reference = emulated.World(2, transport=TLS, deadline_s=1e9, **keys)
    without.round(*ROUND)
    ours = LiveWorld(reference, throttled=False)
    ours.round(*ROUND)
    same_exchanges(ours, without)
    assert ours.network.now_s < 100.0
