"""The kernel's queues as links: `tc` settings that give a `Star` the rates of a case.

A client's downlink is a token bucket (tbf) on the bridge's side of its link, its uplink one on its own side. The
server's link is a tree (htb) with one class per client, each sure of an equal part and free to borrow what others
leave: max-min fair. It lies on the server's side for what the server sends, on the bridge's side for what it receives.

Rates count packets with their Ethernet headers, as interfaces and the model's transport column do. A bucket holds one
packet and what passes in half a millisecond, since timers are that late on a busy machine. Queues are longer than TCP's
buffers, so nothing is lost.
"""

import json
import math

from benchmarks.namespaces import INTERFACE, Star, run

MTU = 1500
ETHERNET_HEADER = 14  # bytes
LATENESS_S = 0.5e-3
_QUEUE_BYTES = 4_000_000


def set_mtu(star: Star, mtu: int) -> None:
    """The largest IP packet that the server and the clients send, in bytes."""
    for namespace in (star.server, *(star.client(number) for number in range(star.clients))):
        run("ip", "-n", namespace, "link", "set", INTERFACE, "mtu", str(mtu))


def throttle_client(star: Star, number: int, down_mbit_s: float, up_mbit_s: float, mtu: int = MTU) -> None:
    """Give a client's link these rates, from now on; packets that wait in its queues stay there."""
    for namespace, interface, mbit_s in (
        (star.bridge, star.port(number), down_mbit_s),
        (star.client(number), INTERFACE, up_mbit_s),
    ):
        limit = f"rate {_bits(mbit_s)} burst {mtu + ETHERNET_HEADER + _late(mbit_s)} limit {_QUEUE_BYTES}"
        run("tc", "-n", namespace, *f"qdisc replace dev {interface} root handle 1: tbf {limit}".split())


def throttle_server(star: Star, clients: int, down_mbit_s: float, up_mbit_s: float) -> None:
    """Limit the server's link, shared max-min fairly by the first `clients`; an infinite rate limits nothing."""
    run("tc", "-n", star.server, "-batch", "-", lines=_shared(star, clients, INTERFACE, up_mbit_s, "dst"))
    run("tc", "-n", star.bridge, "-batch", "-", lines=_shared(star, clients, star.server_port, down_mbit_s, "src"))


def release(star: Star) -> None:
    """Take all limits away."""
    set_mtu(star, MTU)
    for namespace, interface in _ends(star):
        limited = json.loads(run("tc", "-n", namespace, "-j", "qdisc", "show", "dev", interface))
        if any(queue["kind"] in ("tbf", "htb") for queue in limited):
            run("tc", "-n", namespace, "qdisc", "del", "dev", interface, "root")


def lost(star: Star) -> int:
    """Packets that found a queue full since the limits were set."""
    queues = [json.loads(run("tc", "-n", name, "-s", "-j", "qdisc", "show", "dev", end)) for name, end in _ends(star)]
    return sum(queue.get("drops", 0) for found in queues for queue in found)


def _ends(star: Star) -> list[tuple[str, str]]:
    ends = [(star.server, INTERFACE), (star.bridge, star.server_port)]
    for number in range(star.clients):
        ends += [(star.bridge, star.port(number)), (star.client(number), INTERFACE)]
    return ends


def _shared(star: Star, clients: int, interface: str, mbit_s: float, side: str) -> list[str]:
    if math.isinf(mbit_s):
        return []
    part, late = mbit_s / clients, _late(mbit_s)
    lines = [
        f"qdisc replace dev {interface} root handle 1: htb",
        f"class add dev {interface} parent 1: classid 1:1 htb rate {_bits(mbit_s)} burst {late} cburst {late}",
    ]
    for number in range(clients):
        name = f"1:{16 + number:x}"
        rates = f"rate {_bits(part)} ceil {_bits(mbit_s)} burst {late} cburst {late} quantum {MTU + ETHERNET_HEADER}"
        matched = f"match ip {side} {star.address(number)}/32"
        lines += [
            f"class add dev {interface} parent 1:1 classid {name} htb {rates}",
            f"filter add dev {interface} parent 1: protocol ip u32 {matched} flowid {name}",
        ]
    return lines


def _late(mbit_s: float) -> int:
    """Bytes that pass while a timer is late."""
    return math.ceil(LATENESS_S * mbit_s * 1e6 / 8)


def _bits(mbit_s: float) -> str:
    return f"{round(mbit_s * 1e6)}bit"
