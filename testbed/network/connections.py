"""Connections to the server, and the times at which messages leave: the delays of a link's transport.

A client opens its connection when the server first has a message for it, keeps it for as long as
`links.transport.connection` says, and loses it when it goes offline or drops out. Both ends remember the state of the
path for the direction in which they send. A network calls in three steps: `open` (handshakes and their duration),
`plan` (the flights of messages), and, once the outcome of the messages is known, `record_sent` and `close`.

A handler's look-ups at the PKI use another connection, which is open already, and fit into its first window.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.links import ClientLinks
from testbed.emulation.links.rates import Rates
from testbed.emulation.transport.flights import Flights
from testbed.emulation.transport.section import HANDSHAKES, Transport
from testbed.emulation.transport.senders import Path, Senders
from testbed.emulation.transport.windows import Sending
from testbed.network.client_groups import ClientGroups
from testbed.network.fair_sharing.transfers import distinct

DOWN, UP = 0, 1
FIRST_TIME_OUT_S = 1.0  # of the two packets that open a connection, before a round trip is known (RFC 6298)
MOST_DOUBLINGS = 6  # of a packet's time-out: on a very lossy link, it grows no further
LEAST_S = 1e-12  # a segment on an unlimited link


@dataclass(frozen=True, eq=False)
class Opening:
    """The cost of connecting m clients: seconds, and bytes on their links, `(m,)` each; 0 for connected clients."""

    delay_s: Floats
    bytes_down: Ids
    bytes_up: Ids

    def spread(self, at: Ids, count: int) -> "Opening":
        """Return the same costs in arrays of `count` clients, in which these clients have the positions `at`."""
        delay_s, *sizes = np.zeros(count), np.zeros(count, np.int64), np.zeros(count, np.int64)
        for column, values in zip((delay_s, *sizes), (self.delay_s, self.bytes_down, self.bytes_up), strict=True):
            column[at] = values
        return Opening(delay_s, *sizes)

    def carried(self, elapsed_s: Floats) -> tuple[Ids, Ids]:
        """Return the `(m,)` bytes down and up that are through; a handshake's bytes are spread evenly over it.

        Args:
            elapsed_s: `(m,)` seconds since the stage began; negative: the handshake has not begun.
        """
        connected = self.delay_s <= elapsed_s
        began = ~connected & (elapsed_s > 0)
        share = np.divide(elapsed_s, self.delay_s, out=connected.astype(np.float64), where=began)
        down, up = (np.floor(of * share).astype(np.int64) for of in (self.bytes_down, self.bytes_up))
        return down, up


@dataclass(frozen=True, eq=False)
class SendSchedule:
    """The schedule by which m messages leave.

    Attributes:
        flights: the flights of the messages.
        which: `(k,)` positions of the clients that have something to send.
        senders: the senders' state afterwards, except for the time at which they last sent.
        queue_s: `(k,)` seconds from sending the last segment until it is through the link.
        dropped_bytes: `(m,)` bytes that are sent but find the queue in front of the link full; not part of the flights.
    """

    flights: Flights
    which: Ids
    senders: Senders
    queue_s: Floats
    dropped_bytes: Floats

    def resent(self, wire_bytes: Ids) -> Ids:
        """Return the `(m,)` bytes that are sent again, given the messages' `wire_bytes` including headers."""
        return np.rint(self.flights.total_bytes + self.dropped_bytes - wire_bytes).astype(np.int64)


def stage_word(round_number: int, stage_number: int) -> int:
    """Return a number that identifies the openings of a stage; with `| 1 + way`, its messages.

    Args:
        round_number: the round.
        stage_number: number of the stage within the round.
    """
    return (round_number << 20 | stage_number) << 2


class Connections:
    """The connections of one run.

    Args:
        links: links of the clients.
    """

    def __init__(self, links: ClientLinks) -> None:
        self.links, self.transport = links, links.transport
        self._lossy = bool(links.loss.any()) or links.loss_trace is not None or bool(np.isfinite(links.buffer_s).any())
        # Time at which each client is connected, infinite without a connection. It may lie in the future: a stage may
        # end during a handshake.
        self._open_s = np.full(len(links.latency_s) if self.transport.has_windows else 0, np.inf)
        self._rest: dict[int, tuple[int, int]] = {}  # of handshakes that a stage's end has cut: bytes down, bytes up
        self._senders = (_KnownSenders(self.transport), _KnownSenders(self.transport))

    def begin_round(self) -> None:
        """Begin a round: close connections that last for one round."""
        if self.transport.connection != "persistent":
            self._close_all()

    def _close_all(self) -> None:
        self._open_s[:] = np.inf
        self._rest.clear()
        self._senders = (_KnownSenders(self.transport), _KnownSenders(self.transport))

    def close(self, clients: Ids) -> None:
        """Close the connections of these `(m,)` clients, in ascending order."""
        if len(self._open_s) and len(clients):
            self._open_s[clients] = np.inf
            for client in self._rest.keys() & set(clients.tolist()) if self._rest else ():
                del self._rest[client]
            for senders in self._senders:
                senders.forget(clients)

    def begin_stage(self, clients: Ids) -> None:
        """Begin a stage with messages for these `(m,)` clients, ascending; close connections that last one stage."""
        if self.transport.connection == "per-stage":
            self.close(clients)

    def differ(self, largest: int) -> bool:
        """Return whether clients with equal links can fare differently with messages of up to `largest` bytes.

        They do if losses are drawn for each client, or if windows may hold back messages, as then each client's sender
        has its own estimate of the path.
        """
        return self._lossy or self._held_back(np.array([largest])) is not None

    def state(self, clients: Ids, now_s: float) -> tuple[npt.NDArray[np.bool_] | None, npt.NDArray[np.bool_]]:
        """Return which of the `(m,)` clients are connected, and which are in a handshake or had one cut off.

        Returns:
            Two `(m,)` bool arrays; None instead of the first one if connections play no role.
        """
        if not len(self._open_s):
            return None, np.zeros(len(clients), np.bool_)
        open_s = self._open_s if len(clients) == len(self._open_s) else self._open_s[clients]
        connected = open_s <= now_s
        about = ~connected & (open_s < np.inf)
        if self._rest:
            about |= np.isin(clients, list(self._rest))
        return connected, about

    def same_for_all(self, kinds: ClientGroups) -> None:
        """Copy the state of the example of each group to all clients of the group."""
        if kinds.which is None or not len(self._open_s):
            return
        self._open_s[kinds.clients] = kinds.spread(self._open_s[kinds.examples])
        for kind in np.flatnonzero(kinds.count > 1).tolist() if self._rest else ():
            rest = self._rest.get(int(kinds.examples[kind]))
            if rest is not None:
                self._rest.update(dict.fromkeys(kinds.clients[kinds.which == kind].tolist(), rest))

    def open(self, clients: Ids, now_s: float, word: int) -> Opening | None:
        """Connect the `(m,)` clients that are not connected; handshakes in progress continue.

        Args:
            clients: `(m,)` int64, ascending client numbers.
            now_s: seconds at which the stage begins.
            word: number that identifies this opening; losses are drawn from it.

        Returns:
            The cost of connecting; None if there is none.
        """
        if not self.transport.has_windows:
            return None
        self.begin_stage(clients)
        open_s = self._open_s[clients]
        opens, connects = open_s == np.inf, open_s > now_s
        cost = HANDSHAKES[self.transport.handshake]
        if not cost.round_trips:
            self._open_s[clients[opens]] = now_s
        if not connects.any() or not cost.round_trips:
            return None
        latency_s = self.links.latency_at(now_s, clients)
        delay_s = cost.round_trips * 2 * latency_s
        for rates, size in ((self.links.down, cost.bytes_down), (self.links.up, cost.bytes_up)):
            most = rates.take(clients).maximum()
            delay_s += np.divide(size, most, out=np.zeros(len(most)), where=most > 0)
        if self._lossy:
            packets = max(1, round(2 * cost.round_trips) - 1)  # the last acknowledgement is not waited for
            delivery_rate = 1 - self.links.loss_at(now_s, clients)[:, None]
            lost = self._generator(word).geometric(delivery_rate, (len(clients), packets)) - 1
            round_trip_s = 2 * latency_s
            # RFC 6298, 2.2: after one sample R, the smoothed round trip is R, and four times its variation 2 R.
            time_out_s = round_trip_s + np.maximum(2 * round_trip_s, self.transport.minimum_timeout_s)
            time_outs_s = np.repeat(time_out_s[:, None], packets, axis=1)
            time_outs_s[:, :2] = FIRST_TIME_OUT_S
            # k losses in a row wait for 1 + 2 + ... + 2^(k-1) time-outs (RFC 6298, 5.5).
            delay_s += (time_outs_s * (2.0 ** np.minimum(lost, MOST_DOUBLINGS) - 1)).sum(axis=1)
        self._open_s[clients] = np.where(opens, now_s + delay_s, open_s)
        delay_s = np.where(opens, delay_s, np.where(connects, open_s - now_s, 0.0))
        rest = np.array([self._rest.get(client, (0, 0)) for client in clients.tolist()]) if self._rest else None
        down, up = (0, 0) if rest is None else rest.T
        return Opening(delay_s, np.where(opens, cost.bytes_down, down), np.where(opens, cost.bytes_up, up))

    def record_handshakes(self, clients: Ids, opening: Opening, elapsed_s: float) -> None:
        """Record how much of each client's handshake was done when the stage ended; the next stage continues it.

        Args:
            clients: `(m,)` int64 client numbers.
            opening: the cost of connecting, as `open` returned it.
            elapsed_s: duration of the stage, seconds.
        """
        counted = opening.carried(np.full(len(clients), elapsed_s))
        rest = np.stack((opening.bytes_down, opening.bytes_up)) - counted
        for client in self._rest.keys() & set(clients.tolist()) if self._rest else ():
            del self._rest[client]
        cut = rest.any(axis=0)
        for client, (down, up) in zip(clients[cut].tolist(), rest.T[cut].tolist(), strict=True):
            self._rest[client] = (down, up)

    def plan(
        self, way: int, clients: Ids, now_s: float, start_s: Floats, size: Ids, wire_bytes: Ids, word: int
    ) -> SendSchedule | None:
        """Return the schedule of messages to (`DOWN`) or from (`UP`) clients; None if nothing holds them back.

        Args:
            way: `DOWN` or `UP`.
            clients: `(m,)` int64, ascending client numbers.
            now_s: seconds at which the stage began; time-dependent latencies and losses are looked up there.
            start_s: `(m,)` seconds; infinite: never.
            size: `(m,)` bytes of the messages.
            wire_bytes: `(m,)` bytes including headers.
            word: number that identifies these messages; losses are drawn from it.
        """
        segments = self._held_back(size)
        if segments is None:
            return None
        at = np.flatnonzero(segments > 0)
        begin_s = np.where(np.isfinite(start_s[at]), start_s[at], 0.0)
        senders, path = self._begun(way, clients[at], now_s, begin_s, wire_bytes[at] / segments[at])
        which = back = np.arange(len(at))
        if not self._lossy:
            which, back = _alike(np.stack((*senders.pattern(), *path.columns(), segments[at], wire_bytes[at])))
        first = at[which]
        sending = self._sending(senders.take(which), segments[first], path.take(which), word)
        owner, volume, gap_s = sending.run()
        pattern = np.zeros(len(clients), np.int64)  # the first one has no flights: messages of nothing
        pattern[at] = back + 1
        offsets = np.concatenate(([0, 0], np.cumsum(np.bincount(owner, minlength=len(which)))))
        segment_bytes = wire_bytes[first] / segments[first]
        flights = Flights(pattern, offsets, volume * segment_bytes[owner], gap_s)
        dropped = np.zeros(len(clients))
        dropped[at] = (sending.dropped * segment_bytes)[back]
        return SendSchedule(flights, at, sending.senders.take(back), sending.queue_s[back], dropped)

    def sending(
        self, way: int, client: int, now_s: float, start_s: float, size: int, wire_bytes: int, word: int
    ) -> Sending | None:
        """Return the sender of one message, which computes flights as they go; None if nothing holds the message back.

        Losses are drawn for this client. The arguments are those of `plan`.
        """
        segments = self._held_back(np.array([size]))
        if segments is None:
            return None
        clients, full_bytes = np.array([client]), wire_bytes / segments
        senders, path = self._begun(way, clients, now_s, np.array([start_s]), full_bytes)
        return self._sending(senders, segments, path, word, drawn_for=client + 1)

    def record_sent(self, way: int, clients: Ids, plan: SendSchedule, through_s: Floats, end_s: float) -> None:
        """Record that the planned messages have left.

        Args:
            way: as for `plan`.
            clients: as for `plan`.
            plan: the schedule that `plan` returned.
            through_s: `(m,)` seconds at which the last byte was through; NaN if no byte was sent.
            end_s: seconds at which all transfers stopped.
        """
        through_s = np.minimum(through_s[plan.which], end_s)  # NaN stays
        # The state of senders whose message was cut off before its first byte stays as it was.
        went = ~np.isnan(through_s)
        senders = plan.senders.take(np.flatnonzero(went))
        senders.last_sent_s = (through_s - plan.queue_s)[went]
        self._senders[way].put(clients[plan.which[went]], senders)

    def record_stopped(self, way: int, client: int, sending: Sending, through_s: float) -> None:
        """Record that a message sent on its own (`sending`) is through, or goes no further."""
        sending.senders.last_sent_s = through_s - sending.queue_s
        self._senders[way].put(np.array([client]), sending.senders)

    def to_checkpoint(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state that a resumed run needs; empty if every round begins with new connections."""
        if not len(self._open_s) or self.transport.connection != "persistent":
            return {}
        down, up = self._senders
        connected = np.flatnonzero(np.isfinite(self._open_s))
        return {
            "connected": connected, "connected_s": self._open_s[connected],
            "handshakes": np.array([(client, *rest) for client, rest in self._rest.items()], np.int64).reshape(-1, 3),
            "senders_down": down.ids, "senders_down_state": np.stack(down.senders.columns()),
            "senders_up": up.ids, "senders_up_state": np.stack(up.senders.columns()),
        }  # fmt: skip

    def restore(self, saved: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore the state that `to_checkpoint` returned."""
        self._close_all()
        if not saved:
            return
        self._open_s[saved["connected"]] = saved["connected_s"]
        handshakes = saved.get("handshakes", np.zeros((0, 3), np.int64))  # older checkpoints have none
        self._rest = {client: (down, up) for client, down, up in handshakes.tolist()}
        for senders, name in zip(self._senders, ("senders_down", "senders_up"), strict=True):
            senders.ids, senders.senders = saved[name], Senders(*saved[f"{name}_state"].copy())

    def _never_held_back(self) -> int:
        """Return the size in packets up to which a message fits every window and leaves the window unchanged."""
        if self._lossy:
            return 0
        # A window that is at most half used does not grow (RFC 7661, as in Linux); BBR learns its rate from any flight.
        return 1 if self.transport.congestion_control == "bbr" else self.transport.initial_window_segments // 2

    def _held_back(self, size: Ids) -> Ids | None:
        """Return the number of segments of each message, or None if windows hold back none of them."""
        if not self.transport.has_windows:
            return None
        segments = self.transport.packets(size)
        return None if segments.max(initial=0) <= self._never_held_back() else segments

    def _begun(
        self, way: int, clients: Ids, now_s: float, start_s: Floats, packet_bytes: Floats
    ) -> tuple[Senders, Path]:
        """Return the senders' state and the paths at the time at which the messages begin."""
        senders, path = self._senders[way].of(clients), self._path(way, clients, now_s, start_s, packet_bytes)
        senders.begin(self.transport, path.round_trip_s, start_s)
        return senders, path

    def _sending(self, senders: Senders, segments: Ids, path: Path, word: int, drawn_for: int = 0) -> Sending:
        lost = self._generator(word, drawn_for) if self._lossy else None
        return Sending(senders, segments, path, self.transport, self.links.loss_burst_packets, lost)

    def _path(self, way: int, clients: Ids, now_s: float, time_s: Floats, packet_bytes: Floats) -> Path:
        """Return the properties of these clients' links at `time_s`, `(m,)`, for full packets of `packet_bytes`."""
        ways = (self.links.down, self.links.up)
        there, back = (_rate(rates.take(clients), time_s) for rates in (ways[way], ways[1 - way]))
        shared = self.links.server_up_bytes_s if way == DOWN else self.links.server_down_bytes_s
        segment_s = np.maximum(packet_bytes / np.minimum(there, shared), LEAST_S)
        together = min(2, self.transport.segments_per_acknowledgement)
        answer_s = together * segment_s + self.transport.acknowledgement_bytes / back
        return Path(
            segment_s,
            2 * self.links.latency_at(now_s, clients) + answer_s,
            self.links.loss_at(now_s, clients),
            self.links.buffer_s[clients],
        )

    def _generator(self, word: int, drawn_for: int = 0) -> np.random.Generator:
        # A generator per stage, or per message of a live run: a resumed run draws the same losses.
        key, counter = np.array([self.links.loss_key, word], np.uint64), np.array([0, 0, 0, drawn_for], np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))


class _KnownSenders:
    """The state of one direction's senders, for clients that have sent more than a few packets."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.ids = np.zeros(0, np.int64)
        self.senders = Senders.new(transport, 0)

    def of(self, clients: Ids) -> Senders:
        """Return a copy of the senders' state, with a new state for clients without one."""
        senders = Senders.new(self._transport, len(clients))
        at, present = self._at(clients)
        senders.put(np.flatnonzero(present), self.senders.take(at[present]))
        return senders

    def put(self, clients: Ids, senders: Senders) -> None:
        """Replace or add."""
        together = np.union1d(self.ids, clients)
        if len(together) > len(self.ids):
            senders_of_all = Senders.new(self._transport, len(together))
            senders_of_all.put(np.searchsorted(together, self.ids), self.senders)
            self.ids, self.senders = together, senders_of_all
        self.senders.put(np.searchsorted(self.ids, clients), senders)

    def forget(self, clients: Ids) -> None:
        """Drop the state of these clients' senders."""
        if len(self.ids):
            stay = np.flatnonzero(~np.isin(self.ids, clients))
            self.ids, self.senders = self.ids[stay], self.senders.take(stay)

    def _at(self, clients: Ids) -> tuple[Ids, npt.NDArray[np.bool_]]:
        at = np.searchsorted(self.ids, clients)
        present = np.zeros(len(clients), np.bool_)
        inside = at < len(self.ids)
        present[inside] = self.ids[at[inside]] == clients[inside]
        return at, present


def _rate(rates: Rates, time_s: Floats) -> Floats:
    """Return bytes per second at that time; while a link is down, the highest rate that it ever has."""
    now = rates.at(time_s)
    return np.maximum(np.where(now > 0, now, rates.maximum()), 1e-9)


def _alike(columns: Floats) -> tuple[Ids, Ids]:
    """Return one column of each distinct value, ordered by value, and the `(m,)` index of each column among them.

    Args:
        columns: `(k, m)`.
    """
    order = np.lexsort(columns[::-1])
    at, _, which = distinct(columns[:, order])
    back = np.empty(len(order), np.int64)
    back[order] = which
    return order[at], back
