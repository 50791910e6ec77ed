"""The wire is measured itself: nominal against achieved rates, round trips and losses, with UDP between its ends."""

import math
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.fidelity.namespaces import ETHERNET_HEADER, MTU, enter
from benchmarks.fidelity.wan_cases import LOSSES, RATES_MBIT_S, RTTS_MS
from benchmarks.fidelity.wire import Line
from benchmarks.fidelity.wire_star import WireStar

_PORT = 5001
_HEADERS = 28  # IPv4 and UDP
_FLOOD_S = 0.6  # a rate is measured over so long, ...
_LEAST, _MOST = 60, 4000  # ... by this number of packets
_PINGS, _PING_EVERY_S = 11, 0.004
_LOSS_PACKETS, _LOSS_DELAY_S = 40_000, 0.005
_SILENCE_S = 0.5
_BUFFER = 8_000_000
_PAYLOAD = MTU - _HEADERS
_WIRE_BITS = 8 * (MTU + ETHERNET_HEADER)


@dataclass(frozen=True)
class Checked:
    """One setting of the wire; `measured` is in its unit."""

    what: str
    nominal: float
    measured: float

    @property
    def error(self) -> float:
        """Relative."""
        return self.measured / self.nominal - 1

    def row(self) -> dict[str, object]:
        """For the table."""
        return {"wire": self.what, "nominal": self.nominal, "measured": round(self.measured, 4),
                "error %": round(100 * self.error, 2)}  # fmt: skip


def checked(star: WireStar) -> list[Checked]:
    """Rates and losses downwards, to client 0, and round trips; this thread is in the server's namespace."""
    rates = [Checked(f"rate, Mbit/s: {rate:g}", rate, _rate(star, rate)) for rate in RATES_MBIT_S]
    delays = [Checked(f"round trip, ms: {rtt:g}", rtt, _round_trip_ms(star, rtt)) for rtt in RTTS_MS]
    losses = [Checked(f"loss, %: {100 * loss:g}", 100 * loss, 100 * _loss(star, loss)) for loss in LOSSES]
    return [*rates, *delays, *losses]


def worst(found: Sequence[Checked], what: str) -> float:
    """The largest error of one kind."""
    return max(abs(one.error) for one in found if one.what.startswith(what))


def _rate(star: WireStar, mbit_s: float) -> float:
    star.set({0: Line(mbit_s, mbit_s)}, math.inf, math.inf)
    count = min(max(_LEAST, round(mbit_s * 1e6 * _FLOOD_S / _WIRE_BITS)), _MOST)
    times = _received(star, count, _PAYLOAD)
    return (len(times) - 1) * _WIRE_BITS / (times[-1] - times[0]) / 1e6


def _loss(star: WireStar, loss: float) -> float:
    star.set({0: Line(math.inf, math.inf, _LOSS_DELAY_S, loss=loss)}, math.inf, math.inf)
    return 1 - len(_received(star, _LOSS_PACKETS, 8, every=50)) / _LOSS_PACKETS


def _round_trip_ms(star: WireStar, rtt_ms: float) -> float:
    star.set({0: Line(1000, 1000, rtt_ms / 2000)}, math.inf, math.inf)

    def echo(end: socket.socket) -> None:
        for _ in range(_PINGS):
            packet, sender = end.recvfrom(MTU)
            end.sendto(packet, sender)

    taken = []
    with _AtClient(star, echo), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.settimeout(2)
        for number in range(_PINGS):
            began = time.monotonic()
            own.sendto(struct.pack("!I", number), (star.address(0), _PORT))
            own.recv(MTU)
            taken.append(time.monotonic() - began)
            time.sleep(_PING_EVERY_S)
    return 1e3 * min(taken)  # as `ping` has it: longer times are those of this process waking up


def _received(star: WireStar, count: int, size: int, every: int = 0) -> list[float]:
    """Return arrival times of packets sent to client 0 as fast as possible, with a pause after each `every` packets."""
    times: list[float] = []

    def sink(end: socket.socket) -> None:
        end.settimeout(_SILENCE_S)
        try:
            while len(times) < count:
                end.recv(MTU)
                times.append(time.monotonic())
        except TimeoutError:
            pass

    with _AtClient(star, sink), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        for number in range(count):
            own.sendto(bytes(size), (star.address(0), _PORT))
            if every and number % every == 0:
                time.sleep(1e-3)
    return times


class _AtClient:
    """A thread that does something with a socket at client 0; a context manager that ends with it."""

    def __init__(self, star: WireStar, action: Callable[[socket.socket], None]) -> None:
        self._star, self._action = star, action
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._act)

    def _act(self) -> None:
        enter(self._star.client(0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            end.setsockopt(socket.SOL_SOCKET, 33, _BUFFER)  # SO_RCVBUFFORCE
            end.bind((self._star.address(0), _PORT))
            self._ready.set()
            self._action(end)

    def __enter__(self) -> None:
        self._thread.start()
        self._ready.wait()

    def __exit__(self, *exception: object) -> None:
        self._thread.join()
