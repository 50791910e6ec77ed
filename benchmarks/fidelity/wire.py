"""A wire in user space: packets between namespaces with a rate, a delay, jitter, a queue and loss, per client.

    server [tun] -- server's link, shared fairly -- client's link, delay, jitter, loss -- [tun] client 0, 1, ...

Every namespace has one TUN device; this process reads the kernels' packets, computes when each packet arrives, and
hands it over then. A link is arithmetic: a packet starts when the one before has left, and takes its size over the
rate; sizes count Ethernet headers, as interfaces do. The server's link serves its clients by self-clocked fair
queueing (Golestani 1994: max-min fair by bytes). Times are those of the events, not of this process, so a late wake-up
delays a packet and nothing behind it. Jitter never changes the order of packets. A lost packet has used the link.

A process of its own (`python -m benchmarks.fidelity.wire`), controlled by lines of JSON on standard input.
"""

import contextlib
import ctypes
import fcntl
import functools
import gc
import heapq
import json
import math
import os
import select
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.fidelity.namespaces import ETHERNET_HEADER, FIRST_CLIENT, INTERFACE, enter

DOWN, UP = 0, 1

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_PR_SET_TIMERSLACK = 29
_SPIN_S = 6e-5  # sleeping is late by up to this much
_BATCH = 24  # packets handed over before looking for new ones
_MTU_AND_MORE = 2048
_DESTINATION = 19  # where a packet has the last byte of its IPv4 destination
_HEADERS = 60  # bytes of a packet that a trace keeps


Action = Callable[[float, int, bytes], None]
"""The handling of a client's packet at a time: (seconds, client, packet)."""


@dataclass(frozen=True)
class Line:
    """A client's part of the wire.

    Attributes:
        down_mbit_s, up_mbit_s: rates of its link.
        delay_s: one way, in both directions.
        jitter_s: each packet is later by up to this much, uniformly.
        queue_s: packets that would wait longer before the link are dropped.
        loss: probability that a packet is lost, in either direction.
        burst: mean number of packets lost in a row (Gilbert-Elliott; 1: independently).
    """

    down_mbit_s: float = math.inf
    up_mbit_s: float = math.inf
    delay_s: float = 0.0
    jitter_s: float = 0.0
    queue_s: float = math.inf
    loss: float = 0.0
    burst: float = 1.0

    def as_json(self) -> dict[str, float]:
        """For a line of standard input."""
        return asdict(self)


class _Losses:
    """Which packets are lost: the Gilbert-Elliott chain, which loses all packets in its bad state."""

    def __init__(self, loss: float, burst: float, generator: np.random.Generator) -> None:
        self._random = generator.random
        if burst <= 1:
            self._enter, self._stay = loss, loss
        else:
            self._stay = 1 - 1 / burst
            self._enter = loss / (burst * (1 - loss))
        self._bad = False

    def next(self) -> bool:
        """Whether the next packet is lost."""
        self._bad = self._random() < (self._stay if self._bad else self._enter)
        return self._bad


class Pipe:
    """One direction of a client's link."""

    def __init__(self, mbit_s: float, line: Line, generator: np.random.Generator) -> None:
        self.byte_s = 8e-6 / mbit_s
        self.delay_s, self.jitter_s, self.queue_s = line.delay_s, line.jitter_s, line.queue_s
        self._random = generator.random
        self._losses = _Losses(line.loss, line.burst, generator) if line.loss else None
        self._free = self._last = 0.0
        self.packets = self.bytes = self.lost = self.full = 0
        self.late = 0.0

    def arrival(self, now: float, size: int) -> float | None:
        """When a packet that comes at `now` is at the other end; None: never."""
        start = self._free if self._free > now else now
        if start - now > self.queue_s:
            self.full += 1
            return None
        self._free = end = start + size * self.byte_s
        self.packets += 1
        self.bytes += size
        if self._losses is not None and self._losses.next():
            self.lost += 1
            return None
        due = end + self.delay_s
        if self.jitter_s:
            self._last = due = max(due + self.jitter_s * self._random(), self._last)
        return due


class FairLink:
    """The server's link in one direction: which packet is next, and how long it takes.

    Args:
        mbit_s: its rate; infinite: packets pass at once.
        clients: how many share it.
        onward: called with (time, client, packet) for a packet that has passed.
    """

    def __init__(self, mbit_s: float, clients: int, onward: Action) -> None:
        self.byte_s = 8e-6 / mbit_s
        self.unlimited = math.isinf(mbit_s)
        self.onward = onward
        self.busy = False
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._finish = [0.0] * clients
        self._virtual = 0.0
        self._count = 0

    def put(self, client: int, packet: bytes) -> None:
        """A packet comes."""
        finish = max(self._virtual, self._finish[client]) + len(packet) + ETHERNET_HEADER
        self._finish[client] = finish
        self._count += 1
        heapq.heappush(self._waiting, (finish, self._count, client, packet))

    def next(self) -> tuple[int, bytes, float] | None:
        """A client, its packet, and the seconds that it takes; the link is `busy` unless None waits."""
        self.busy = bool(self._waiting)
        if not self.busy:
            return None
        self._virtual, _, client, packet = heapq.heappop(self._waiting)
        return client, packet, (len(packet) + ETHERNET_HEADER) * self.byte_s


def open_tun(namespace: str) -> int:
    """Descriptor of a new TUN device in a namespace, where this thread then is."""
    enter(namespace)
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), _IFF_TUN | _IFF_NO_PI))
    return tun


class Wire:
    """The devices and the links between them. Events are (seconds, order, action, client, packet).

    Args:
        server: descriptor of the server's TUN device.
        clients: those of the clients.
    """

    def __init__(self, server: int, clients: list[int]) -> None:
        self._server, self._clients = server, clients
        self._client_of = {tun: number for number, tun in enumerate(clients)}
        self._generator = np.random.default_rng(0)
        self._events: list[tuple[float, int, Action, int, bytes]] = []
        self._count = 0
        self._trace: list[tuple[float, float, int, int, bytes]] | None = None
        self._share(math.inf, math.inf)
        self._pipes = [self._pair(Line()) for _ in clients]

    def _share(self, down_mbit_s: float, up_mbit_s: float) -> None:
        """Set the server's link, as the server sees it: down is towards the clients."""
        count = len(self._clients)
        self._from_server = FairLink(up_mbit_s, count, functools.partial(self._enter_client_link, DOWN))
        self._to_server = FairLink(down_mbit_s, count, self._reach_server)

    def _pair(self, line: Line) -> tuple[Pipe, Pipe]:
        return Pipe(line.down_mbit_s, line, self._generator), Pipe(line.up_mbit_s, line, self._generator)

    def obey(self, order: dict[str, object]) -> dict[str, object]:
        """Carry out one line of standard input; return the answer."""
        if "seed" in order:
            self._generator = np.random.default_rng(int(str(order["seed"])))
        if isinstance(server := order.get("server"), list):
            self._share(*server)
        if isinstance(lines := order.get("lines"), dict):
            for number, line in lines.items():
                self._pipes[int(number)] = self._pair(Line(**line))
        if "trace" in order:
            self._trace = [] if order["trace"] else None
        if "dump" in order and self._trace is not None:
            write_trace(str(order["dump"]), self._trace)
        if "read" in order:
            return self._statistics(int(str(order["read"])))
        return {"done": True}

    def _statistics(self, number: int) -> dict[str, object]:
        """Of a client's pipes since they were set or read; [down, up] each."""
        pair = self._pipes[number]
        names = ("packets", "bytes", "lost", "full", "late")
        found: dict[str, object] = {name: [getattr(pipe, name) for pipe in pair] for name in names}
        for pipe in pair:
            pipe.packets = pipe.bytes = pipe.lost = pipe.full = 0
            pipe.late = 0.0
        return found

    def run(self, orders: Callable[[], bool], orders_fd: int) -> None:
        """Carry packets until `orders`, called when its descriptor is readable, returns False."""
        events, clock, read = self._events, time.monotonic, os.read
        sources = [orders_fd, self._server, *self._clients]
        while True:
            now, left = clock(), _BATCH
            while left and events and events[0][0] <= now:
                due, _, action, client, packet = heapq.heappop(events)
                action(due, client, packet)
                left -= 1
                now = clock()
            pause = max(0.0, events[0][0] - now - _SPIN_S) if events else None
            for source in select.select(sources, (), (), pause)[0]:
                if source == orders_fd:
                    if not orders():
                        return
                    continue
                with contextlib.suppress(BlockingIOError):
                    for _ in range(_BATCH):
                        self._sent(source, clock(), read(source, _MTU_AND_MORE))

    def _at(self, due: float, action: Action, client: int, packet: bytes) -> None:
        self._count += 1
        heapq.heappush(self._events, (due, self._count, action, client, packet))

    def _sent(self, source: int, now: float, packet: bytes) -> None:
        """A kernel has sent a packet."""
        if source != self._server:
            self._enter_client_link(UP, now, self._client_of[source], packet)
        elif 0 <= (client := packet[_DESTINATION] - FIRST_CLIENT) < len(self._clients):
            self._enter_shared_link(self._from_server, now, client, packet)

    def _enter_client_link(self, direction: int, now: float, client: int, packet: bytes) -> None:
        due = self._pipes[client][direction].arrival(now, len(packet) + ETHERNET_HEADER)
        if self._trace is not None:
            self._trace.append((now, math.nan if due is None else due, client, direction, packet[:_HEADERS]))
        if due is not None:
            self._at(due, self._reach_client if direction == DOWN else self._reach_site, client, packet)

    def _enter_shared_link(self, link: FairLink, now: float, client: int, packet: bytes) -> None:
        if link.unlimited:
            link.onward(now, client, packet)
            return
        link.put(client, packet)
        if not link.busy:
            self._serve(link, now)

    def _serve(self, link: FairLink, now: float) -> None:
        found = link.next()
        if found is not None:
            client, packet, seconds = found
            self._at(now + seconds, functools.partial(self._leave_shared_link, link), client, packet)

    def _leave_shared_link(self, link: FairLink, now: float, client: int, packet: bytes) -> None:
        link.onward(now, client, packet)
        self._serve(link, now)

    def _reach_site(self, due: float, client: int, packet: bytes) -> None:
        """A packet from a client is where the server's link begins."""
        self._enter_shared_link(self._to_server, due, client, packet)

    def _reach_client(self, due: float, client: int, packet: bytes) -> None:
        self._hand_over(self._clients[client], self._pipes[client][DOWN], due, packet)

    def _reach_server(self, due: float, client: int, packet: bytes) -> None:
        self._hand_over(self._server, self._pipes[client][UP], due, packet)

    @staticmethod
    def _hand_over(device: int, pipe: Pipe, due: float, packet: bytes) -> None:
        pipe.late = max(pipe.late, time.monotonic() - due)
        with contextlib.suppress(OSError):  # the interface is not up yet, or no more
            os.write(device, packet)


def write_trace(path: str, trace: list[tuple[float, float, int, int, bytes]]) -> None:
    """Write TCP packets as CSV: seconds of sending and of arrival (nan: lost), place, and the fields of the headers."""
    with open(path, "w") as file:
        file.write("sent_s,arrived_s,client,direction,seq,ack,length,flags,window\n")
        for sent, arrived, client, direction, packet in trace:
            header = 4 * (packet[0] & 15)
            total = int.from_bytes(packet[2:4], "big")
            seq, ack = struct.unpack_from("!II", packet, header + 4)
            offset, flags, window = packet[header + 12] >> 4, packet[header + 13], packet[header + 14 : header + 16]
            length = total - header - 4 * offset
            word = "down" if direction == DOWN else "up"
            file.write(
                f"{sent:.6f},{arrived:.6f},{client},{word},{seq},{ack},{length},{flags},{int.from_bytes(window)}\n"
            )


def main() -> None:
    """Carry packets for the process that has started this one."""
    names = json.loads(sys.stdin.readline())
    wire = Wire(open_tun(names["server"]), [open_tun(name) for name in names["clients"]])
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    gc.freeze()
    gc.disable()
    print(json.dumps({"ready": True}), flush=True)

    def orders() -> bool:
        line = sys.stdin.readline()
        if line:
            print(json.dumps(wire.obey(json.loads(line))), flush=True)
        return bool(line)

    wire.run(orders, sys.stdin.fileno())


if __name__ == "__main__":
    main()
