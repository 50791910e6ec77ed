"""Both sides of `benchmarks.fidelity --wan`: a case on the virtual clock, and the same over the wire.

A case of a connection that is there already asks the same thing twice, with the case's pause between; the second time
counts. In one of a new connection the server asks while the clients begin to connect, and everything counts: TCP's
handshake and the live network's own (the server's challenge, the client's answer), which take the round trips of a
resumed TLS 1.3 session, and the transport model is told of that.
"""

import asyncio
import math
import time
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.fidelity.cases import COMPUTE, ROLES, Leaving, Load, environment
from benchmarks.fidelity.measuring import FRAME_BYTES, Clients, Stage
from benchmarks.fidelity.wan_cases import STATES, WanCase
from benchmarks.fidelity.wire_star import WireStar
from testbed.emulation.links.factory import ClientLinks
from testbed.emulation.links.rates import Rates
from testbed.emulation.traces.bandwidth import BYTES_PER_MBIT
from testbed.emulation.transport.section import HANDSHAKES, Transport
from testbed.network.contract import Timing
from testbed.network.emulated import EmulatedNetwork
from testbed.network.live.server import LiveNetwork
from testbed.parties.host import LocalHosts

TIMING = Timing(600.0)
BEFORE_S = 0.15  # for the clients' processes to be ready to connect at the same moment
LATE_S, LATE_SHARE = 0.003, 0.02  # a wire that was later than both spoils a measurement, ...
ATTEMPTS = 3  # ... which is then made again, so often at most
CONNECTING_S = 60.0
UNLIMITED_MBIT_S = 1e6
HANDLING_RTT_MS = 20.0


def transport_of(case: WanCase) -> Transport:
    """Return the transport model of a case's connections."""
    given = {
        "preset": "tcp", "congestion_control": case.algorithm, "connection": "persistent", "handshake": "tls-resumed",
        "per_message_bytes": FRAME_BYTES,
    }  # fmt: skip
    return Transport.model_validate(given)


def links_of(case: WanCase, loss_key: int = 0) -> ClientLinks:
    """The wire as the model sees it."""
    rates = np.full(case.clients, case.mbit_s * BYTES_PER_MBIT)
    server = case.server_mbit_s * BYTES_PER_MBIT
    return ClientLinks(
        Rates.constant(rates), Rates.constant(rates), np.full(case.clients, case.rtt_ms / 2000), server, server,
        transport_of(case), loss=np.array(case.loss), loss_key=loss_key, buffer_s=np.array(case.queue_s),
    )  # fmt: skip


def predicted(case: WanCase, handling_s: float, loss_key: int = 0) -> float:
    """Seconds until the last answer, on the virtual clock; each client works for `handling_s`."""
    stage = replace(case.stage, seconds=(handling_s,) * case.clients)
    network = EmulatedNetwork(
        LocalHosts(case.clients, environment(case.clients), ROLES), links_of(case, loss_key), np.ones(case.clients),
        Leaving({}), TIMING, COMPUTE,
    )  # fmt: skip

    return asyncio.run(_in_state(network, case, stage.question))


async def _in_state(network: EmulatedNetwork | LiveNetwork, case: WanCase, question: Load) -> float:
    """Ask on a connection in the case's state; seconds until the last answer."""
    idle_s, everybody = STATES[case.state], np.arange(case.clients)
    await network.begin_round(1)
    await network.ask(everybody, question)
    network.end_round()
    if idle_s is not None:
        if idle_s:
            await network.pause(idle_s)
        await network.begin_round(2)
        await network.ask(everybody, question)
        network.end_round()
    return Stage.of(network.exchanges[0], 0.0).seconds


def measured(star: WireStar, clients: Clients, case: WanCase) -> "Measured":
    """The case over the wire, which is set for it; this process is in the server's namespace.

    Where the wire was late in between (another process had the machine), it is measured again.
    """
    lines = dict.fromkeys(range(star.clients), case.line)
    star.set(lines, case.server_mbit_s, case.server_mbit_s)
    star.congestion_control(case.algorithm)
    resent = star.retransmitted()
    for _ in range(ATTEMPTS):
        seconds = asyncio.run(_measured(star, clients, case))
        late_s = max(max(star.order({"read": number})["late"]) for number in range(case.clients))
        if late_s <= max(LATE_S, LATE_SHARE * seconds):
            break
    return Measured(seconds, late_s, star.retransmitted() - resent)


@dataclass(frozen=True)
class Measured:
    """One measurement.

    Attributes:
        seconds: until the last answer.
        late_s: the most that the wire handed over a packet later than it should have.
        retransmitted: TCP segments.
    """

    seconds: float
    late_s: float
    retransmitted: int


async def _measured(star: WireStar, clients: Clients, case: WanCase) -> float:
    # With `throttled=False` the network does nothing to the links; it is told them for its own records only.
    network = LiveNetwork(
        links_of(replace(case, loss=0.0, queue_s=math.inf)), np.ones(case.clients), Leaving({}), TIMING, COMPUTE,
        listen_host=star.address(), throttled=False,
    )  # fmt: skip
    address = await network.open()
    connect_s = time.monotonic() + BEFORE_S
    clients.join(address.host, address.port, address.token, case.clients, connect_s=connect_s)
    late_s = 0.0
    if STATES[case.state] is None:
        await asyncio.sleep(connect_s - time.monotonic())
        late_s = time.monotonic() - connect_s
    else:
        await network.wait_for_clients(case.clients, CONNECTING_S)
    seconds = late_s + await _in_state(network, case, case.stage.question)
    await network.close()
    await asyncio.to_thread(clients.hear, "done", case.clients)
    return seconds


def handling_s(star: WireStar, clients: Clients, count: int, state: str, asks: int = 7) -> float:
    """Return the seconds of the smallest stage with `count` clients beyond its round trips.

    At a distance all the same, or both ends would be at work at the same time, which they are not where it matters. The
    lower quartile of several, since other processes of this machine only add to it.
    """
    smallest = WanCase(HANDLING_RTT_MS, UNLIMITED_MBIT_S, 0, 0, "reno", state, count)
    opening = HANDSHAKES[transport_of(smallest).handshake].round_trips if STATES[state] is None else 0.0
    taken_s = sorted(measured(star, clients, smallest).seconds for _ in range(asks))
    return max(0.0, taken_s[asks // 4] - (1 + opening) * HANDLING_RTT_MS / 1000)
