"""The wire in user space: arrival of packets, loss, and forwarding between two devices (sockets here)."""

import json
import math
import os
import socket
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fidelity.wan_cases import LONGEST_S, STATES, wan_cases
from benchmarks.fidelity.wire import DOWN, UP, FairLink, Line, Pipe, Wire, write_trace
from tests.thoroughness import examples

SIZES = st.lists(st.integers(54, 1514), min_size=1, max_size=40)


def pipe(mbit_s: float = 8.0, **line: float) -> Pipe:
    return Pipe(mbit_s, Line(**line), np.random.default_rng(1))


@given(SIZES, st.integers(0, 10_000))
@settings(max_examples=examples(100))
def test_packets_leave_a_link_one_after_the_other_at_its_rate(sizes: list[int], now_us: int) -> None:
    one, now = pipe(8.0, delay_s=0.05), now_us * 1e-6  # 8 Mbit/s: a microsecond a byte
    due = [one.arrival(now, size) for size in sizes]
    assert due == pytest.approx(now + 0.05 + 1e-6 * np.cumsum(sizes))
    assert one.arrival(now + 10, 100) == pytest.approx(now + 10 + 0.05 + 1e-4)  # it stands idle before


@given(SIZES, st.floats(0, 0.1))
@settings(max_examples=examples(100))
def test_jitter_delays_packets_and_keeps_their_order(sizes: list[int], jitter_s: float) -> None:
    plain, shaken = pipe(delay_s=0.01), pipe(delay_s=0.01, jitter_s=jitter_s)
    before = np.array([plain.arrival(0.0, size) for size in sizes])
    after = np.array([shaken.arrival(0.0, size) for size in sizes])
    assert (np.diff(after) >= 0).all()
    assert (after >= before).all()
    assert (after <= before.max() + jitter_s).all()


def test_a_queue_takes_what_it_holds_and_no_more() -> None:
    short = pipe(queue_s=0.0025)
    arrived = [short.arrival(0.0, 1000) is not None for _ in range(6)]  # a millisecond each
    assert arrived == [True, True, True, False, False, False]
    assert short.full == 3
    assert short.arrival(0.0035, 1000) == pytest.approx(0.0045)


@pytest.mark.parametrize(("loss", "burst"), [(0.01, 1.0), (0.1, 1.0), (0.05, 4.0)])
def test_so_many_packets_are_lost_and_so_many_in_a_row(loss: float, burst: float) -> None:
    one, count = pipe(math.inf, loss=loss, burst=burst), 200_000
    gone = np.array([one.arrival(0.0, 100) is None for _ in range(count)])
    assert gone.mean() == pytest.approx(loss, rel=0.1)
    runs = np.diff(np.flatnonzero(np.diff(np.concatenate(([0], gone, [0])))))[::2]
    expected = burst if burst > 1 else 1 / (1 - loss)
    assert runs.mean() == pytest.approx(expected, rel=0.1)
    assert one.lost == gone.sum()


@given(st.lists(st.integers(40, 1500), min_size=30, max_size=60), st.integers(2, 5))
@settings(max_examples=examples(100))
def test_a_shared_link_serves_all_that_wait_alike(sizes: list[int], clients: int) -> None:
    link = FairLink(10.0, clients, lambda now, client, packet: None)
    for size in sizes:
        for client in range(clients):
            link.put(client, bytes(size))
    served, order = np.zeros(clients), []
    while (found := link.next()) is not None:
        client, packet, seconds = found
        assert seconds == pytest.approx((len(packet) + 14) * 0.8e-6)
        served[client] += len(packet) + 14
        order.append((client, len(packet)))
        assert served.max() - served.min() <= 2 * 1514
    assert not link.busy
    for client in range(clients):
        assert [size for who, size in order if who == client] == sizes


def packet_to(client: int, number: int, size: int = 200) -> bytes:
    """An IPv4 packet as far as the wire looks at it; the number is behind the addresses."""
    return bytes(19) + bytes([10 + client]) + number.to_bytes(4, "big") + bytes(size - 24)


def _no_more() -> bool:
    return False


class Devices:
    """A wire between datagram sockets, which stand for its devices; a context manager."""

    def __init__(self, clients: int) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(1 + clients)]
        self.ends = [pair[0] for pair in pairs]
        self._inner = [pair[1] for pair in pairs]
        for end in self.ends:
            end.settimeout(20)
        for inner in self._inner:
            inner.setblocking(False)
        self.wire = Wire(self._inner[0].fileno(), [inner.fileno() for inner in self._inner[1:]])
        self._orders = os.pipe()

    def __enter__(self) -> "Devices":
        self._thread = threading.Thread(target=self.wire.run, args=(_no_more, self._orders[0]))
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        os.write(self._orders[1], b"x")
        self._thread.join()
        for descriptor in self._orders:
            os.close(descriptor)
        for end in (*self.ends, *self._inner):
            end.close()


@pytest.mark.parametrize("server_mbit_s", [math.inf, 200.0])
def test_a_wire_carries_packets_both_ways_in_order(server_mbit_s: float) -> None:
    devices = Devices(2)
    lines = {str(number): Line(100, 50, delay_s=0.002).as_json() for number in range(2)}
    devices.wire.obey({"lines": lines, "server": [server_mbit_s, server_mbit_s], "seed": 3})
    with devices:
        server, *clients = devices.ends
        for number in range(60):
            server.send(packet_to(number % 2, number))
            clients[number % 2].send(packet_to(0, number))
        for client in range(2):
            got = [int.from_bytes(clients[client].recv(2048)[20:24], "big") for _ in range(30)]
            assert got == list(range(client, 60, 2))
        back = [int.from_bytes(server.recv(2048)[20:24], "big") for _ in range(60)]
        assert [number for number in back if number % 2] == list(range(1, 60, 2))
        assert [number for number in back if number % 2 == 0] == list(range(0, 60, 2))
    for client in range(2):
        found = devices.wire.obey({"read": client})
        assert found["packets"] == [30, 30]
        assert found["bytes"] == [30 * 214] * 2
        assert found["lost"] == found["full"] == [0, 0]
    assert devices.wire.obey({"read": 0})["packets"] == [0, 0]


def test_orders_survive_their_encoding() -> None:
    line = Line(math.inf, 5, 0.01, 0.002, 0.1, 0.25, 3)
    assert Line(**json.loads(json.dumps(line.as_json()))) == line


def test_a_trace_says_what_the_headers_say(tmp_path: object) -> None:
    tcp = (7).to_bytes(4, "big") + (9).to_bytes(4, "big") + bytes([5 << 4, 16]) + (500).to_bytes(2, "big") + bytes(4)
    packet = bytes([0x45, 0]) + (20 + 20 + 33).to_bytes(2, "big") + bytes(16) + bytes(4) + tcp + bytes(33)
    path = f"{tmp_path}/trace.csv"
    write_trace(path, [(1.0, 1.5, 0, DOWN, packet[:60]), (2.0, math.nan, 1, UP, packet[:60])])
    with open(path) as file:
        header, *rows = file.read().splitlines()
    assert header == "sent_s,arrived_s,client,direction,seq,ack,length,flags,window"
    assert rows == ["1.000000,1.500000,0,down,7,9,33,16,500", "2.000000,nan,1,up,7,9,33,16,500"]


def test_a_seed_draws_the_same_cases_and_all_values_of_each_dimension() -> None:
    cases = wan_cases(150, 24, 1)
    assert cases == wan_cases(150, 24, 1)
    assert cases != wan_cases(150, 24, 2)
    assert len(set(cases)) == len({case.name for case in cases}) == 174
    assert [bool(case.loss) for case in cases] == [False] * 150 + [True] * 24
    assert max(case.least_s for case in cases) <= LONGEST_S
    seen = {(case.rtt_ms, case.mbit_s) for case in cases}
    assert len(seen) == 20
    assert {case.state for case in cases} == set(STATES)
    assert {case.clients for case in cases} == {1, 4, 8}
