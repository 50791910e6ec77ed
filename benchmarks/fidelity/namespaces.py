"""Network namespaces joined by a bridge: several "machines" on this one, with the kernel's own TCP between them.

    server --veth-- bridge --veth-- client 0
                      |  `---veth-- client 1 ...

Everything lives in namespaces of its own, named after this process's number; interfaces of the machine itself are
never touched. A namespace takes its interfaces and queues along when it is removed. Needs root, and iproute2.

The kernel's queues as links, that `tc` gives the rates of a case: a client's downlink is a token bucket (tbf) on the
bridge's side of its link, its uplink one on its own side. The server's link is a tree (htb) with one class per client,
each sure of an equal part and free to borrow unused capacity: max-min fair. It lies on the server's side for data that
the server sends, on the bridge's side for data that it receives.

Rates count packets with their Ethernet headers, as interfaces and the model's transport column do. A bucket holds one
packet and the bytes of half a millisecond, since timers are that late on a busy machine. Queues are longer than TCP's
buffers, so nothing is lost.
"""

import ctypes
import fcntl
import json
import math
import os
import re
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

PREFIX = "fidelity"
FIRST_CLIENT = 10  # last byte of the address of client 0
INTERFACE = "eth0"  # the one interface of the server, and of every client
BUFFER_BYTES = 128 * 1024  # most that TCP buffers at either end, in front of a slow link

_NETWORK_NAMESPACE = 0x40000000  # CLONE_NEWNET
_SIOCETHTOOL = 0x8946
_OFFLOADS = (0x1F, 0x24, 0x2C)  # ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO of linux/ethtool.h


class Unavailable(Exception):
    """This machine, or this user, cannot make namespaces with limited links; the message says how to mend that."""


@dataclass(frozen=True)
class Counters:
    """Traffic of an interface: bytes with Ethernet headers (14 to a packet), and packets."""

    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int

    @property
    def total_bytes(self) -> int:
        """Both directions."""
        return self.sent_bytes + self.received_bytes

    def since(self, before: "Counters") -> "Counters":
        """Return the traffic since `before` was read."""
        return Counters(*(getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__))


class Namespaces:
    """A server and clients, each in a namespace of its own; a context manager. How they are joined is the subclass's.

    Args:
        clients: how many, 1 to 200.
    """

    def __init__(self, clients: int) -> None:
        self._name = f"{PREFIX}-{os.getpid()}"
        self.clients = clients
        self.server = f"{self._name}-server"

    def client(self, number: int) -> str:
        """Name of a client's namespace."""
        return f"{self._name}-client{number}"

    @staticmethod
    def address(number: int | None = None) -> str:
        """IPv4 address of a client, or of the server."""
        return f"10.77.0.{1 if number is None else FIRST_CLIENT + number}"

    @property
    def ends(self) -> list[tuple[str, str]]:
        """The namespaces of the server and of the clients, each with its address."""
        return [(self.server, self.address())] + [(self.client(n), self.address(n)) for n in range(self.clients)]

    def __enter__(self) -> Self:
        remove_leftovers()
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._remove()

    def _remove(self) -> None:
        _remove([name for name in _existing() if name.startswith(f"{self._name}-")])

    def _build(self) -> None:
        """Make the namespaces, and join them."""
        raise NotImplementedError

    def _add(self, names: Sequence[str]) -> None:
        run("ip", "-batch", "-", lines=[f"netns add {name}" for name in names])
        for name in names:
            inside(name, _without_ipv6)

    def retransmitted(self) -> int:
        """TCP segments that were sent again so far, by all machines together."""
        return sum(_tcp_counter(name, "RetransSegs") for name, _ in self.ends)


class Star(Namespaces):
    """Joined by a bridge in one namespace more, through links that the kernel limits."""

    server_port = "server"
    """The bridge's interface towards the server."""

    def __init__(self, clients: int) -> None:
        super().__init__(clients)
        self.bridge = f"{self._name}-bridge"

    @staticmethod
    def port(number: int) -> str:
        """The bridge's interface towards a client."""
        return f"client{number}"

    def _build(self) -> None:
        ports = [self.server_port, *(self.port(number) for number in range(self.clients))]
        ends = [(name, port, address) for (name, address), port in zip(self.ends, ports, strict=True)]
        self._add([self.bridge, *(name for name, _, _ in ends)])
        links = [f"link add {INTERFACE} netns {name} type veth peer name {port}" for name, port, _ in ends]
        run("ip", "-n", self.bridge, "-batch", "-", lines=["link add bridge type bridge mcast_snooping 0", *links])
        up = [f"link set {port} master bridge gso_max_segs 1 up" for port in ports]
        run("ip", "-n", self.bridge, "-batch", "-", lines=[*up, "link set bridge up"])
        inside(self.bridge, lambda: _without_offloads(ports))
        cards = {name: self._bring_up(name, address) for name, _, address in ends}
        for name, _, own in ends:  # neighbours are known: no ARP among the packets that are counted
            others = [(address, cards[other]) for other, _, address in ends if address != own]
            known = [f"neigh add {address} lladdr {card} dev {INTERFACE} nud permanent" for address, card in others]
            run("ip", "-n", name, "-batch", "-", lines=known)

    @staticmethod
    def _bring_up(name: str, address: str) -> str:
        """Configure an end; returns its hardware address."""
        commands = [
            f"addr add {address}/24 dev {INTERFACE}",
            f"link set {INTERFACE} gso_max_segs 1 multicast off up",  # TCP hands over single packets
            "link set lo up",
        ]
        run("ip", "-n", name, "-batch", "-", lines=commands)
        inside(name, lambda: _without_offloads([INTERFACE]))
        inside(name, _with_tcp_settings)
        return str(json.loads(run("ip", "-n", name, "-j", "link", "show", INTERFACE))[0]["address"])

    def counters(self) -> Counters:
        """Return the traffic of the server's interface since it was made."""
        statistics = json.loads(run("ip", "-n", self.server, "-s", "-j", "link", "show", INTERFACE))[0]["stats64"]
        sent, received = statistics["tx"], statistics["rx"]
        return Counters(sent["bytes"], received["bytes"], sent["packets"], received["packets"])


def run(*command: str, lines: Sequence[str] = ()) -> str:
    """Return the output of `command`; `lines` are its standard input. Raises `Unavailable` when it fails."""
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"`{' '.join(command)}` failed: {' '.join(done.stderr.split()) or done.returncode}")
    return done.stdout


def enter(name: str) -> None:
    """Move this thread, and the threads and processes that it starts later, into a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{name}", "rb") as namespace:
        if libc.setns(namespace.fileno(), _NETWORK_NAMESPACE):
            raise Unavailable(f"cannot enter namespace {name}: {os.strerror(ctypes.get_errno())}")


def remove_leftovers() -> None:
    """Remove the namespaces of earlier runs that were killed: those of this prefix without a live process."""
    gone = []
    for name in _existing():
        process = re.fullmatch(rf"{PREFIX}-(\d+)-\w+", name)
        if process and not Path("/proc", process[1]).exists():
            gone.append(name)
    _remove(gone)


def check_available() -> None:
    """Raises `Unavailable`, with the one line to show, when limited links cannot be made here."""
    if os.geteuid() != 0:
        raise Unavailable("network namespaces need root: run this as root, on a machine where you may")
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"{' and '.join(missing)} not found: install Debian's package iproute2")
    trial = f"{PREFIX}-{os.getpid()}-trial"
    try:
        run("ip", "netns", "add", trial)
        run("ip", "-n", trial, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
        run("tc", "-n", trial, "-batch", "-", lines=[
            "qdisc add dev v0 root tbf rate 1mbit burst 2kb limit 10kb",
            "qdisc add dev v1 root handle 1: htb",
            "class add dev v1 parent 1: classid 1:1 htb rate 1mbit",
            "filter add dev v1 parent 1: protocol ip u32 match ip dst 10.0.0.1/32 flowid 1:1",
        ])  # fmt: skip
    except Unavailable as error:
        why = f"the kernel or Debian's package iproute2 lacks namespaces, veth, tbf, htb or u32: {error}"
        raise Unavailable(why) from None
    finally:
        _remove([name for name in _existing() if name == trial])


def _existing() -> list[str]:
    return [line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.strip()]


def _remove(names: Sequence[str]) -> None:
    if names:
        run("ip", "-force", "-batch", "-", lines=[f"netns del {name}" for name in names])


def inside(name: str, action: Callable[[], None]) -> None:
    """Run `action` in a namespace, in a thread of its own, since a namespace belongs to a thread."""

    def act() -> None:
        try:
            enter(name)
            action()
        except (OSError, Unavailable) as error:
            failed.append(error)

    failed: list[Exception] = []
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    if failed:
        raise Unavailable(f"cannot set up namespace {name}: {failed[0]}")


def _without_offloads(interfaces: Sequence[str]) -> None:
    """No packets that only the kernel sees: a veth otherwise passes 64 KiB at a time under one header."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for interface in interfaces:
            for offload in _OFFLOADS:
                value = ctypes.create_string_buffer(struct.pack("II", offload, 0))
                fcntl.ioctl(control, _SIOCETHTOOL, struct.pack("16sP", interface.encode(), ctypes.addressof(value)))


def _without_ipv6() -> None:
    """No neighbour discovery among the packets that are counted."""
    for which in ("all", "default"):
        setting = Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6")
        if setting.exists():
            setting.write_text("1")


def _with_tcp_settings() -> None:
    """TCP that is the same on every machine. Reno, since every kernel lets a namespace choose it: without loss,
    the algorithms do not differ."""
    ipv4 = Path("/proc/sys/net/ipv4")
    (ipv4 / "tcp_congestion_control").write_text("reno")
    (ipv4 / "tcp_rmem").write_text(f"4096 {BUFFER_BYTES} {BUFFER_BYTES}")
    (ipv4 / "tcp_wmem").write_text(f"4096 16384 {BUFFER_BYTES}")


def _tcp_counter(name: str, key: str) -> int:
    rows = run("ip", "netns", "exec", name, "cat", "/proc/net/snmp").splitlines()
    keys, values = (line.split() for line in rows if line.startswith("Tcp:"))
    return int(values[keys.index(key)])


# -- links ----------------------------------------------------------------------------------------------------------

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
