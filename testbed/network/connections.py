"""Who is connected to the server, and how messages leave: what a link's transport adds in time (`emulation.transport`).

A client opens its connection when the server first has something for it, keeps it as `links.transport.connection` says,
and loses it when it goes offline or drops out. Both ends remember what they have learned about the path, each for what
it sends. A network asks in three steps: `open` (who has to connect first, and how long that takes), `plan` (the flights
of messages), and, when it is known what became of them, `sent` and `close`.

The look-ups of a handler at the PKI go over another connection, which is open, and fit its first window.
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
MOST_DOUBLINGS = 6
LEAST_S = 1e-12  # a segment on an unlimited link


@dataclass(frozen=True, eq=False)
class Opening:
    """What it takes m clients to be connected, `(m,)` each: seconds, and bytes on their links; 0 for who is."""

    delay_s: Floats
    bytes_down: Ids
    bytes_up: Ids

    def spread(self, at: Ids, count: int) -> "Opening":
        """The same among `count` clients, of whom these are the ones `at`."""
        delay_s, *sizes = np.zeros(count), np.zeros(count, np.int64), np.zeros(count, np.int64)
        for column, given in zip((delay_s, *sizes), (self.delay_s, self.bytes_down, self.bytes_up), strict=True):
            column[at] = given
        return Opening(delay_s, *sizes)

    def carried(self, elapsed_s: Floats) -> tuple[Ids, Ids]:
        """`(m,)` bytes down and up after so many seconds; those of a handshake are spread evenly over it.

        Negative: it has not begun.
        """
        connected = self.delay_s <= elapsed_s
        began = ~connected & (elapsed_s > 0)
        share = np.divide(elapsed_s, self.delay_s, out=connected.astype(np.float64), where=began)
        down, up = (np.floor(of * share).astype(np.int64) for of in (self.bytes_down, self.bytes_up))
        return down, up


@dataclass(frozen=True, eq=False)
class SendSchedule:
    """How m messages are going to leave.

    Attributes:
        flights: theirs.
        which: `(k,)` positions of those that have something to send.
        senders: what these know afterwards, but for when they last sent something.
        queue_s: `(k,)` seconds from sending the last segment until it is through the link.
        dropped_bytes: `(m,)` that go, and find the queue in front of the link full: not in the flights.
    """

    flights: Flights
    which: Ids
    senders: Senders
    queue_s: Floats
    dropped_bytes: Floats

    def resent(self, wire_bytes: Ids) -> Ids:
        """`(m,)` bytes that go again of messages which have `wire_bytes`, with headers."""
        return np.rint(self.flights.total_bytes + self.dropped_bytes - wire_bytes).astype(np.int64)


def stage_word(round_number: int, stage_number: int) -> int:
    """What tells the openings of a stage from those of others; with `| 1 + way`, its messages."""
    return (round_number << 20 | stage_number) << 2


class Connections:
    """The connections of one run.

    Args:
        links: the clients'.
    """

    def __init__(self, links: ClientLinks) -> None:
        self.links, self.transport = links, links.transport
        self._lossy = bool(links.loss.any()) or links.loss_trace is not None or bool(np.isfinite(links.buffer_s).any())
        # From when on each client is connected, infinite for who is not: a stage may end while somebody connects.
        self._open_s = np.full(len(links.latency_s) if self.transport.has_windows else 0, np.inf)
        self._rest: dict[int, tuple[int, int]] = {}  # of handshakes that a stage's end has cut: bytes down, bytes up
        self._known = (_KnownSenders(self.transport), _KnownSenders(self.transport))

    def begin_round(self) -> None:
        """A round begins: connections that last for one are gone."""
        if self.transport.connection != "persistent":
            self._close_all()

    def _close_all(self) -> None:
        self._open_s[:] = np.inf
        self._rest.clear()
        self._known = (_KnownSenders(self.transport), _KnownSenders(self.transport))

    def close(self, clients: Ids) -> None:
        """These clients, `(m,)` ascending, have no connection any more."""
        if len(self._open_s) and len(clients):
            self._open_s[clients] = np.inf
            for client in self._rest.keys() & set(clients.tolist()) if self._rest else ():
                del self._rest[client]
            for known in self._known:
                known.forget(clients)

    def begin_stage(self, clients: Ids) -> None:
        """A stage begins, and has something for these `(m,)` clients, ascending: some connections last no longer."""
        if self.transport.connection == "per-stage":
            self.close(clients)

    def differ(self, largest: int) -> bool:
        """Whether it matters which client it is that sends or gets messages of up to so many bytes.

        Losses are drawn for each, and whoever has sent what a window held back knows something of his path.
        """
        return self._lossy or self._held_back(np.array([largest])) is not None

    def state(self, clients: Ids, now_s: float) -> tuple[npt.NDArray[np.bool_] | None, npt.NDArray[np.bool_]]:
        """`(m,)` who of the clients is connected, None: all alike; and `(m,)` who is about it, or was when cut off."""
        if not len(self._open_s):
            return None, np.zeros(len(clients), np.bool_)
        open_s = self._open_s if len(clients) == len(self._open_s) else self._open_s[clients]
        connected = open_s <= now_s
        about = ~connected & (open_s < np.inf)
        if self._rest:
            about |= np.isin(clients, list(self._rest))
        return connected, about

    def same_for_all(self, kinds: ClientGroups) -> None:
        """What is known of an example of each kind now holds for all of it."""
        if kinds.which is None or not len(self._open_s):
            return
        self._open_s[kinds.clients] = kinds.spread(self._open_s[kinds.examples])
        for kind in np.flatnonzero(kinds.count > 1).tolist() if self._rest else ():
            rest = self._rest.get(int(kinds.examples[kind]))
            if rest is not None:
                self._rest.update(dict.fromkeys(kinds.clients[kinds.which == kind].tolist(), rest))

    def open(self, clients: Ids, now_s: float, word: int) -> Opening | None:
        """Connect those of `(m,)` clients, ascending, that are not; who is about it goes on.

        Args:
            clients: their numbers.
            now_s: when.
            word: tells this opening from others, for what is lost.

        Returns:
            What that takes; None: nothing.
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
            kept = 1 - self.links.loss_at(now_s, clients)[:, None]
            lost = self._generator(word).geometric(kept, (len(clients), packets)) - 1
            round_trip_s = 2 * latency_s
            time_out_s = round_trip_s + np.maximum(2 * round_trip_s, self.transport.minimum_timeout_s)
            time_outs_s = np.repeat(time_out_s[:, None], packets, axis=1)
            time_outs_s[:, :2] = FIRST_TIME_OUT_S
            delay_s += (time_outs_s * (2.0 ** np.minimum(lost, MOST_DOUBLINGS) - 1)).sum(axis=1)
        self._open_s[clients] = np.where(opens, now_s + delay_s, open_s)
        delay_s = np.where(opens, delay_s, np.where(connects, open_s - now_s, 0.0))
        rest = np.array([self._rest.get(client, (0, 0)) for client in clients.tolist()]) if self._rest else None
        down, up = (0, 0) if rest is None else rest.T
        return Opening(delay_s, np.where(opens, cost.bytes_down, down), np.where(opens, cost.bytes_up, up))

    def opened(self, clients: Ids, opening: Opening, elapsed_s: float) -> None:
        """So far the `opening` of `(m,)` clients has come when their stage ends; the rest is the next one's."""
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
        """The flights of messages to (`DOWN`) or from (`UP`) clients; None if nothing holds them back.

        Args:
            way: `DOWN` or `UP`.
            clients: `(m,)` ascending.
            now_s: when the stage began, at which latencies and losses that change are looked up.
            start_s: `(m,)` seconds; infinite: never.
            size: `(m,)` bytes of the messages.
            wire_bytes: `(m,)` bytes with headers.
            word: tells these messages from others, for what is lost.
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
        owner, sent, gap_s = sending.run()
        pattern = np.zeros(len(clients), np.int64)  # the first one has no flights: messages of nothing
        pattern[at] = back + 1
        offsets = np.concatenate(([0, 0], np.cumsum(np.bincount(owner, minlength=len(which)))))
        segment_bytes = wire_bytes[first] / segments[first]
        flights = Flights(pattern, offsets, sent * segment_bytes[owner], gap_s)
        dropped = np.zeros(len(clients))
        dropped[at] = (sending.dropped * segment_bytes)[back]
        return SendSchedule(flights, at, sending.senders.take(back), sending.queue_s[back], dropped)

    def sending(
        self, way: int, client: int, now_s: float, start_s: float, size: int, wire_bytes: int, word: int
    ) -> Sending | None:
        """One message by itself, whose flights are found out as they go; None if nothing holds it back.

        What it loses is drawn for this client. The arguments are those of `plan`.
        """
        segments = self._held_back(np.array([size]))
        if segments is None:
            return None
        clients, full_bytes = np.array([client]), wire_bytes / segments
        senders, path = self._begun(way, clients, now_s, np.array([start_s]), full_bytes)
        return self._sending(senders, segments, path, word, drawn_for=client + 1)

    def sent(self, way: int, clients: Ids, plan: SendSchedule, through_s: Floats, end_s: float) -> None:
        """Messages as planned have left.

        Args:
            way, clients: as they were planned.
            plan: theirs.
            through_s: `(m,)` when the last byte was through; NaN where none ever went.
            end_s: when everything stopped.
        """
        through_s = np.minimum(through_s[plan.which], end_s)  # NaN stays
        went = ~np.isnan(through_s)
        senders = plan.senders.take(np.flatnonzero(went))
        senders.last_sent_s = (through_s - plan.queue_s)[went]
        self._known[way].put(clients[plan.which[went]], senders)

    def stopped(self, way: int, client: int, sending: Sending, through_s: float) -> None:
        """A message that was sent by itself is through, or goes no further."""
        sending.senders.last_sent_s = through_s - sending.queue_s
        self._known[way].put(np.array([client]), sending.senders)

    def to_checkpoint(self) -> dict[str, npt.NDArray[Any]]:
        """What a run that is resumed must know; empty if every round begins with new connections."""
        if not len(self._open_s) or self.transport.connection != "persistent":
            return {}
        down, up = self._known
        connected = np.flatnonzero(np.isfinite(self._open_s))
        return {
            "connected": connected, "connected_s": self._open_s[connected],
            "handshakes": np.array([(client, *rest) for client, rest in self._rest.items()], np.int64).reshape(-1, 3),
            "senders_down": down.ids, "senders_down_state": np.stack(down.senders.columns()),
            "senders_up": up.ids, "senders_up_state": np.stack(up.senders.columns()),
        }  # fmt: skip

    def restore(self, saved: Mapping[str, npt.NDArray[Any]]) -> None:
        """Resume with what `to_checkpoint` gave."""
        self._close_all()
        if not saved:
            return
        self._open_s[saved["connected"]] = saved["connected_s"]
        handshakes = saved.get("handshakes", np.zeros((0, 3), np.int64))  # older checkpoints have none
        self._rest = {client: (down, up) for client, down, up in handshakes.tolist()}
        for known, name in zip(self._known, ("senders_down", "senders_up"), strict=True):
            known.ids, known.senders = saved[name], Senders(*saved[f"{name}_state"].copy())

    def _never_held_back(self) -> int:
        """Packets of a message that any window holds, and that leave the window as it is."""
        if self._lossy:
            return 0
        return 1 if self.transport.congestion_control == "bbr" else self.transport.initial_window_segments // 2

    def _held_back(self, size: Ids) -> Ids | None:
        """Segments of messages, if windows may hold any of them back."""
        if not self.transport.has_windows:
            return None
        segments = self.transport.packets(size)
        return None if segments.max(initial=0) <= self._never_held_back() else segments

    def _begun(
        self, way: int, clients: Ids, now_s: float, start_s: Floats, packet_bytes: Floats
    ) -> tuple[Senders, Path]:
        """What senders know, and their paths, when messages begin."""
        senders, path = self._known[way].of(clients), self._path(way, clients, now_s, start_s, packet_bytes)
        senders.begin(self.transport, path.round_trip_s, start_s)
        return senders, path

    def _sending(self, senders: Senders, segments: Ids, path: Path, word: int, drawn_for: int = 0) -> Sending:
        lost = self._generator(word, drawn_for) if self._lossy else None
        return Sending(senders, segments, path, self.transport, self.links.loss_burst_packets, lost)

    def _path(self, way: int, clients: Ids, now_s: float, time_s: Floats, packet_bytes: Floats) -> Path:
        """What these clients' links are like at `(m,)` `time_s`, for full packets of so many bytes."""
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
        key, counter = np.array([self.links.loss_key, word], np.uint64), np.array([0, 0, 0, drawn_for], np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))


class _KnownSenders:
    """What the senders of one direction know, of those that have sent something larger than a few packets."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.ids = np.zeros(0, np.int64)
        self.senders = Senders.new(transport, 0)

    def of(self, clients: Ids) -> Senders:
        """A copy, new ones included."""
        found = Senders.new(self._transport, len(clients))
        at, known = self._at(clients)
        found.put(np.flatnonzero(known), self.senders.take(at[known]))
        return found

    def put(self, clients: Ids, senders: Senders) -> None:
        """Replace or add."""
        together = np.union1d(self.ids, clients)
        if len(together) > len(self.ids):
            senders_of_all = Senders.new(self._transport, len(together))
            senders_of_all.put(np.searchsorted(together, self.ids), self.senders)
            self.ids, self.senders = together, senders_of_all
        self.senders.put(np.searchsorted(self.ids, clients), senders)

    def forget(self, clients: Ids) -> None:
        """Drop what is known of these."""
        if len(self.ids):
            stay = np.flatnonzero(~np.isin(self.ids, clients))
            self.ids, self.senders = self.ids[stay], self.senders.take(stay)

    def _at(self, clients: Ids) -> tuple[Ids, npt.NDArray[np.bool_]]:
        at = np.searchsorted(self.ids, clients)
        known = np.zeros(len(clients), np.bool_)
        inside = at < len(self.ids)
        known[inside] = self.ids[at[inside]] == clients[inside]
        return at, known


def _rate(rates: Rates, time_s: Floats) -> Floats:
    """Bytes per second at that time, or the most there ever is while a link is down."""
    now = rates.at(time_s)
    return np.maximum(np.where(now > 0, now, rates.maximum()), 1e-9)


def _alike(columns: Floats) -> tuple[Ids, Ids]:
    """Of `(k, m)` columns: one of each kind, in the order of their values, and `(m,)` which of these each is."""
    order = np.lexsort(columns[::-1])
    at, _, which = distinct(columns[:, order])
    back = np.empty(len(order), np.int64)
    back[order] = which
    return order[at], back
