"""Connections on the virtual clock: handshakes, their cost, and the state at both ends."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.emulation.links import ClientLinks
from testbed.emulation.transport.section import HANDSHAKES, PRESETS, TCP, Transport
from testbed.network.connections import DOWN, UP, Connections, Opening
from tests.network import emulated
from tests.network.emulated import MB, question_of_size
from tests.thoroughness import examples

LATENCY_S = 0.05
ROUND_TRIP_S = 2 * LATENCY_S


def transport(**keys: Any) -> Transport:
    return Transport.model_validate({"preset": "tcp", "congestion_control": "reno"} | keys)


def world(clients: int = 1, *, fast: float = 1e12, **keys: Any) -> emulated.World:
    return emulated.World(clients, down=fast, up=fast, latency=LATENCY_S, **({"transport": transport()} | keys))


def stage_seconds(one: emulated.World) -> list[float]:
    return [float(stage.received_s[0] - stage.sent_s) for stage in one.network.exchanges]


def small() -> emulated.Question:
    return question_of_size(100)


def test_the_first_message_of_a_round_waits_for_the_connection() -> None:
    one = world()
    one.round(small(), small())
    assert stage_seconds(one) == pytest.approx([2.5 * ROUND_TRIP_S, ROUND_TRIP_S], abs=1e-6)
    one.round(small(), number=2)
    assert stage_seconds(one) == pytest.approx([2.5 * ROUND_TRIP_S], abs=1e-6)


@pytest.mark.parametrize(
    ("policy", "waits"),
    [("persistent", [1, 0, 0, 0]), ("per-round", [1, 0, 1, 0]), ("per-stage", [1, 1, 1, 1])],
)
def test_policies(policy: str, waits: list[int]) -> None:
    one, seconds = world(transport=transport(connection=policy)), []
    for number in (1, 2):
        one.round(small(), small(), number=number)
        seconds += stage_seconds(one)
    assert seconds == pytest.approx([ROUND_TRIP_S * (1 + 1.5 * wait) for wait in waits], abs=1e-6)


@pytest.mark.filterwarnings("error")
def test_a_handshake_that_has_not_begun_has_carried_no_bytes() -> None:
    """A client that leaves before a stage begins has been connected for a negative time."""
    delay_s = np.array([0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0, np.inf])
    elapsed_s = np.array([-1.0, 0.0, 1.0, -1.0, 0.0, 1.0, 2.0, 1.0])
    down, up = Opening(delay_s, np.full(8, 101), np.full(8, 10)).carried(elapsed_s)
    assert down.tolist() == [0, 101, 101, 0, 0, 50, 101, 0]
    assert up.tolist() == [0, 10, 10, 0, 0, 5, 10, 0]


@pytest.mark.parametrize("handshake", sorted(HANDSHAKES))
def test_handshakes_cost_round_trips_and_bytes(handshake: str) -> None:
    one = world(transport=transport(handshake=handshake))
    one.round(small(), small())
    cost, (first, second) = HANDSHAKES[handshake], one.network.exchanges
    assert stage_seconds(one)[0] == pytest.approx((1 + cost.round_trips) * ROUND_TRIP_S, abs=1e-6)
    assert first.transport_down[0] - second.transport_down[0] == cost.bytes_down
    assert first.transport_up[0] - second.transport_up[0] == cost.bytes_up


def test_a_client_that_goes_away_connects_again() -> None:
    keys = {"transport": transport(connection="persistent")}
    one = world(2, availability=emulated.Everybody(offline={2: {1}}, comes_back=True), **keys)
    for number in (1, 2, 3):
        one.round(small(), number=number, deadline_s=1.0)
    (stage,) = one.network.exchanges
    assert stage.received_s - stage.sent_s == pytest.approx([ROUND_TRIP_S, 2.5 * ROUND_TRIP_S], abs=1e-6)


@pytest.mark.parametrize("policy", ["persistent", "per-round"])
def test_a_client_that_is_still_connecting_when_a_stage_ends_is_so_in_the_next(policy: str) -> None:
    one = world(transport=transport(connection=policy), deadline_s=1.2 * ROUND_TRIP_S)
    one.round(small(), small(), small())
    stages = one.network.exchanges  # connected in the second one, after 1.5 round trips; its answer comes after 2.5
    assert [bool(np.isnan(stage.received_s[0])) for stage in stages] == [True, True, False]
    assert stage_seconds(one)[2] == pytest.approx(ROUND_TRIP_S, abs=1e-6)
    cost = HANDSHAKES["tcp"]
    assert stages[0].transport_down[0] == pytest.approx(cost.bytes_down * 1.2 / 1.5, abs=1)  # when the stage ended
    assert stages[0].transport_up[0] == pytest.approx(cost.bytes_up * 1.2 / 1.5, abs=1)
    rest = stages[1].transport_down[0] - TCP.packet_bytes  # of the question; its answer is too late for the stage
    assert rest == cost.bytes_down - stages[0].transport_down[0]
    assert stages[2].transport_up[0] < 200


@pytest.mark.parametrize("leaves_at", [0.1, 0.5, 1.0, 1.5, 2.0])
def test_a_client_that_leaves_while_connecting_has_sent_a_part_of_the_handshake(leaves_at: float) -> None:
    leaves = emulated.Everybody(leaves={0: leaves_at * ROUND_TRIP_S})
    one = world(transport=transport(handshake="tls"), availability=leaves)
    one.round(small())
    (stage,), cost = one.network.exchanges, HANDSHAKES["tls"]
    share = min(leaves_at / cost.round_trips, 1.0)
    assert stage.transport_up[0] == pytest.approx(cost.bytes_up * share, abs=1)
    assert stage.transport_down[0] == pytest.approx(cost.bytes_down * share, abs=1)


def test_a_resumed_run_goes_on_connecting() -> None:
    part, resumed = (Connections(world(2, transport=transport(connection="persistent")).network.links) for _ in "12")
    begun = part.open(np.array([0]), 0.0, 0)
    assert begun is not None
    part.record_handshakes(np.array([0]), begun, ROUND_TRIP_S)
    resumed.restore(part.to_checkpoint())
    for one in (part, resumed):
        opening = one.open(np.array([0, 1]), ROUND_TRIP_S, 4)
        assert opening is not None
        assert opening.delay_s == pytest.approx([0.5 * ROUND_TRIP_S, 1.5 * ROUND_TRIP_S])
        size = HANDSHAKES["tcp"].bytes_down
        assert opening.bytes_down.tolist() == [size - int(size / 1.5), size]


def test_a_message_beyond_the_window_takes_more_round_trips() -> None:
    """Fifty segments on an endless link: flights of 10, 20 and 20."""
    one = world()
    one.round(small(), question_of_size(50 * 1448))
    assert stage_seconds(one)[1] == pytest.approx(3 * ROUND_TRIP_S, abs=1e-4)


def test_windows_are_remembered_and_shrink_when_idle() -> None:
    one, big = world(), question_of_size(20 * 1448)

    one.round(big, big)
    assert stage_seconds(one) == pytest.approx([3.5 * ROUND_TRIP_S, ROUND_TRIP_S], abs=1e-4)
    keys = {"transport": transport(connection="persistent")}
    one = world(**keys)
    one.round(big)
    one.network.now_s += 0.2
    one.round(big, number=2)
    awake = stage_seconds(one)
    one.network.now_s += 60.0
    one.round(big, number=3)
    assert awake == pytest.approx([ROUND_TRIP_S], abs=1e-4)
    assert stage_seconds(one) == pytest.approx([2 * ROUND_TRIP_S], abs=1e-4)
    always = world(transport=transport(connection="persistent", slow_start_after_idle=False))
    always.round(big)
    always.network.now_s += 60.0
    always.round(big, number=2)
    assert stage_seconds(always) == pytest.approx([ROUND_TRIP_S], abs=1e-4)


def test_a_checkpoint_has_all_that_the_clock_needs() -> None:
    keys, big = {"transport": transport(connection="persistent")}, question_of_size(40 * 1448)
    whole, part, resumed = (world(3, **keys) for _ in range(3))
    for one in (whole, part):
        one.round(big, big)
    resumed.network.now_s = part.network.now_s
    resumed.network.restore(dict(part.network.to_checkpoint(1)))
    for one in (whole, resumed):
        one.round(big, small(), number=2)
    for mine, other in zip(whole.network.exchanges, resumed.network.exchanges, strict=True):
        assert mine.received_s.tobytes() == other.received_s.tobytes()
    afresh = world(3, **keys)
    afresh.network.now_s = part.network.now_s
    afresh.round(big, number=2)
    assert afresh.network.exchanges[0].received_s[0] > whole.network.exchanges[0].received_s[0]


def lossy(clients: int, loss: float, key: int = 1) -> emulated.World:
    one = world(clients, fast=MB)
    links = one.network.links
    one.network.links = ClientLinks(
        links.down, links.up, links.latency_s, 1e12, 1e12, transport(), loss=np.full(clients, loss), loss_key=key
    )
    one.network.connections = Connections(one.network.links)
    return one


def test_losses_cost_time_and_bytes_and_are_reproducible() -> None:
    big = question_of_size(200 * 1448)
    none, some, again, other = lossy(20, 0.0), lossy(20, 0.05), lossy(20, 0.05), lossy(20, 0.05, key=2)
    for one in (none, some, again, other):
        one.round(big)
    (clean,), (stage,) = none.network.exchanges, some.network.exchanges
    assert (stage.received_s > clean.received_s).all()
    resent = stage.transport_down - clean.transport_down
    assert 0.02 < resent.mean() / (200 * 1514) < 0.1
    assert (stage.bytes_down == clean.bytes_down).all()
    assert stage.received_s.tobytes() == again.network.exchanges[0].received_s.tobytes()
    assert stage.received_s.tobytes() != other.network.exchanges[0].received_s.tobytes()


def test_an_early_end_does_not_change_other_clients() -> None:
    """A quorum ends the stage: clients in time have the same times as without it."""
    big = question_of_size(100 * 1448)
    speeds = MB * np.array([1.0, 2.0, 4.0, 0.1])
    every = emulated.World(4, down=speeds, transport=transport())
    some = emulated.World(4, down=speeds, transport=transport())
    every.round(big)
    some.round(big, quorum=3)
    all_of_them, cut = every.network.exchanges[0], some.network.exchanges[0]
    assert cut.received_s[:3].tobytes() == all_of_them.received_s[:3].tobytes()
    assert np.isnan(cut.received_s[3])
    assert 0 < cut.bytes_down[3] < all_of_them.bytes_down[3]


@settings(max_examples=examples(30))
@given(
    sizes=st.lists(st.integers(1, 300_000), min_size=1, max_size=6),
    control=st.sampled_from(["reno", "cubic", "bbr"]),
    seed=st.integers(0, 9),
)
def test_a_plan_carries_every_byte_independent_of_other_clients(sizes: list[int], control: str, seed: int) -> None:
    count = len(sizes)
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.1, 10, count) * MB
    links = ClientLinks(rates, rates, rng.uniform(0, 0.2, count), 1e12, 1e12, transport(congestion_control=control))
    size, start_s, everybody = np.array(sizes), np.zeros(count), np.arange(count)
    wire = size + links.transport.overhead(size)[0]
    together = Connections(links).plan(DOWN, everybody, 0.0, start_s, size, wire, 1)
    for client in range(count):
        own = np.array([client])
        alone = Connections(links).plan(DOWN, own, 0.0, start_s[own], size[own], wire[own], 1)
        if together is None or alone is None:
            continue
        one, other = together.flights.take(own), alone.flights
        assert one.total_bytes == pytest.approx(wire[own])
        first, count_ = int(one.first[0]), int(one.count[0])
        assert other.size_bytes.tolist() == one.size_bytes[first : first + count_].tolist()
        assert other.gap_s.tolist() == one.gap_s[first : first + count_].tolist()


def test_without_congestion_control_there_is_nothing_to_connect() -> None:
    for preset in ("none", "tcp"):
        kept = PRESETS[preset].model_copy(update={"congestion_control": "none"})
        links = ClientLinks(np.ones(2), np.ones(2), np.ones(2), 1.0, 1.0, kept)
        connections, everybody = Connections(links), np.arange(2)
        assert connections.open(everybody, 0.0, 0) is None
        assert connections.plan(UP, everybody, 0.0, np.zeros(2), everybody + 10**6, everybody + 10**6, 0) is None
        assert connections.to_checkpoint() == {}
    assert TCP.has_windows


def test_a_client_that_is_too_late_to_begin_has_sent_nothing() -> None:
    """Its window is as before the stage, although its answer was worked out."""
    keys = {"transport": transport(connection="persistent"), "factors": [1.0, 100.0]}
    one = world(2, **keys)
    one.round(emulated.Question(seconds=1.0, answer_size=40 * 1448), quorum=1)
    assert one.outcomes() == ["answered", "late"]
    assert one.network.to_checkpoint(1)["connections: senders_up"].tolist() == [0]
