"""Queues that hold little: slow start overflows them, what acknowledgements clock does not."""

import numpy as np
import pytest

from testbed.emulation.links import ClientLinks, Transport
from testbed.network.connections import DOWN, Connections
from testbed.network.fair_sharing.transfers import transfer
from tests.emulation.transport.packets import Flow, Link

RATE, LATENCY_S = 44e6 / 8, 0.05


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


@pytest.mark.parametrize("room_s", [0.005, 0.01])
def test_a_short_queue_costs_about_what_it_costs_packet_by_packet(room_s: float) -> None:
    segments, count = 6900, 10
    flow = FullQueue(segments, Link(1514 / RATE, 2 * LATENCY_S + (2 * 1514 + 66) / RATE))
    flow.room_s = room_s
    reno = Transport.model_validate({"preset": "tcp", "congestion_control": "reno"})
    rates, everybody = np.full(count, RATE), np.arange(count)
    links = ClientLinks(rates, rates, np.full(count, LATENCY_S), np.inf, np.inf, reno, buffer_s=np.array(room_s))
    size = np.full(count, segments * 1448)
    plan = Connections(links).plan(
        DOWN, everybody, 0.0, np.zeros(count), size, size + links.transport.overhead(size)[0], 1
    )
    assert plan is not None
    flights = plan.flights
    ended = transfer(np.zeros(count), flights.total_bytes, links.down, np.inf, np.inf, flights)
    assert ended.finish_s.mean() == pytest.approx(flow.run().finish_s, rel=0.25)
