"""Short queues: slow start overflows them, and a sender clocked by acknowledgements does not."""

from typing import Any

import numpy as np
import pytest

from testbed.arrays import Floats, Ids
from testbed.emulation.links import ClientLinks, Transport
from testbed.network.connections import DOWN, Connections, SendSchedule
from testbed.network.fair_sharing.transfers import transfer
from tests.emulation.transport.packets import Flow, Link

RATE, LATENCY_S, COUNT, SEGMENT = 44e6 / 8, 0.05, 10, 1448


class FullQueue(Flow):
    """Packets that find more than `room_s` before them are lost."""

    room_s = 0.0

    def send(self, segment: int) -> None:
        """See `Flow.send`."""
        before_s = self.free_s
        full = before_s - self.now_s > self.room_s
        self.lost = lambda: full
        super().send(segment)
        if full:
            self.free_s = before_s


def planned(segments: int, room_s: float, rate: float = RATE, **keys: Any) -> tuple[SendSchedule, Floats, Ids]:
    """How ten messages alike leave in front of such a queue, when each is through, and its bytes on the wire."""
    transport = Transport.model_validate({"preset": "tcp"} | keys)
    rates, everybody = np.full(COUNT, rate), np.arange(COUNT)
    latency_s, room = np.full(COUNT, LATENCY_S), np.array(room_s)
    links = ClientLinks(rates, rates, latency_s, np.inf, np.inf, transport, buffer_s=room)
    size = np.full(COUNT, segments * SEGMENT)
    wire_bytes = size + transport.overhead(size)[0]
    plan = Connections(links).plan(DOWN, everybody, 0.0, np.zeros(COUNT), size, wire_bytes, 1)
    assert plan is not None
    total = plan.flights.total_bytes
    return plan, transfer(np.zeros(COUNT), total, links.down, np.inf, np.inf, plan.flights).finish_s, wire_bytes


@pytest.mark.parametrize("mbit_s", [10, 44])
@pytest.mark.parametrize("segments", [700, 6900])
@pytest.mark.parametrize("room_s", [0.005, 0.01, 0.02, 0.1, 0.2])
def test_a_short_queue_costs_what_it_costs_packet_by_packet(room_s: float, segments: int, mbit_s: float) -> None:
    rate = mbit_s * 1e6 / 8
    flow = FullQueue(segments, Link(1514 / rate, 2 * LATENCY_S + (2 * 1514 + 66) / rate), limit=3e6 / SEGMENT)
    flow.room_s = room_s
    finish_s = planned(segments, room_s, rate, congestion_control="reno")[1]
    assert finish_s.mean() == pytest.approx(flow.run().finish_s, rel=0.09)


@pytest.mark.parametrize(
    ("algorithm", "room_s", "measured_s"),
    [("bbr", 0.01, 1.49), ("bbr", 0.05, 1.43), ("cubic", 0.01, 2.98), ("cubic", 0.05, 1.44), ("reno", 0.02, 2.49)],
)
def test_five_megabytes_take_as_long_as_on_linux(algorithm: str, room_s: float, measured_s: float) -> None:
    """Linux 6.18 over the wire of `benchmarks.fidelity`, less the handshake and the last latency and answer."""
    finish_s = planned(5_000_000 // SEGMENT, room_s, congestion_control=algorithm)[1]
    assert finish_s.mean() == pytest.approx(measured_s, rel=0.15)


@pytest.mark.parametrize("algorithm", ["reno", "cubic", "bbr"])
def test_bytes_dropped_in_front_of_a_link_are_counted_and_take_none_of_its_time(algorithm: str) -> None:
    plan, _, wire_bytes = planned(3453, 0.01, congestion_control=algorithm)
    assert plan.flights.total_bytes == pytest.approx(wire_bytes)
    assert (plan.resent(wire_bytes) == np.rint(plan.dropped_bytes)).all()
    assert (plan.dropped_bytes > 20 * SEGMENT).all()
    plan, _, wire_bytes = planned(3453, 10.0, congestion_control=algorithm)
    assert not plan.resent(wire_bytes).any()
