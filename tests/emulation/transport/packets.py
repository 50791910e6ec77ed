"""One message, packet by packet: a slow and complete reference for the flights of `Sending`.

A sender with Reno's window, a link that sends one packet after the other, half of the remaining round trip to the
receiver, and the same time back for the acknowledgement.
"""

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

TICK_S = 0.004


@dataclass(frozen=True)
class Link:
    """A segment takes `segment_s` to pass; two and their acknowledgement `round_trip_s`, nothing in front of them."""

    segment_s: float
    round_trip_s: float


def nothing() -> bool:
    """Loses nothing."""
    return False


class Flow:
    """One message of `segments`.

    Args:
        segments: above 0.
        link: empty when it begins.
        window, threshold: in segments, when it begins.
        limit: most segments under way.
        lost: whether the next packet is lost.
        least_time_out_s: beyond the round trip.

    Attributes:
        finish_s: when the last of the segments is through the link, after `run`.
        sent: how many packets went.
        window: the window, afterwards.
    """

    def __init__(
        self,
        segments: int,
        link: Link,
        *,
        window: float = 10.0,
        threshold: float = math.inf,
        limit: float = math.inf,
        lost: Callable[[], bool] = nothing,
        least_time_out_s: float = 0.2,
    ) -> None:
        self.segments, self.link, self.lost = segments, link, lost
        self.window, self.threshold, self.limit = window, threshold, limit
        self.least_time_out_s = least_time_out_s
        self.propagation_s = (link.round_trip_s - 2 * link.segment_s) / 2
        self.now_s = self.finish_s = self.free_s = 0.0
        self.sent = self.next = self.on_the_way = 0
        self.again: deque[int] = deque()  # segments found to be lost
        self.under_way: dict[int, tuple[int, float]] = {}  # packet: segment, when it was sent
        self.arrived: set[int] = set()
        self.known: set[int] = set()  # of which the sender knows that they arrived
        self.unanswered: list[int] = []  # packets that wait for a second one
        self.smoothed_s = link.round_trip_s
        self.shrunk_at = 0  # the first packet sent after the window shrank
        self.recovering_to = self.known_to = 0  # segments: sent when it shrank; known to have arrived without a gap
        self.counted = 0.0  # segments towards the next one of the window
        self.probed, self.doublings, self.alarm = False, 0, 0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()

    def run(self) -> "Flow":
        """Until all have arrived."""
        self.fill_window()
        while len(self.arrived) < self.segments:
            self.now_s, _, event = heapq.heappop(self.events)
            event()
        return self

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        """Something happens `seconds` from now."""
        heapq.heappush(self.events, (self.now_s + seconds, next(self.order), event))

    # -- sender ----------------------------------------------------------------------------------------------

    def fill_window(self) -> None:
        """Send the packets that the window allows: lost ones first, then new ones."""
        while len(self.under_way) < min(math.floor(self.window), self.limit) and self.send_one():
            pass
        self.set_alarm()

    def send_one(self) -> bool:
        """Put one packet into the link's queue, if there is something to send."""
        while self.again and self.again[0] in self.known:
            self.again.popleft()
        if self.again:
            self.send(self.again.popleft())
        elif self.next < self.segments:
            self.send(self.next)
            self.next += 1
        else:
            return False
        return True

    def send(self, segment: int) -> None:
        """Into the queue."""
        packet, self.sent = self.sent, self.sent + 1
        self.under_way[packet] = segment, self.now_s
        self.free_s = max(self.free_s, self.now_s) + self.link.segment_s
        self.on_the_way += 1
        through_s, lost = self.free_s, self.lost()
        arrive_s = through_s + self.propagation_s - self.now_s
        self.later(arrive_s, lambda: self.vanish() if lost else self.arrive(packet, segment, through_s))

    def acknowledge(self, packets: list[int]) -> None:
        """Packets are known to have arrived."""
        before, grown = len(self.under_way), 0
        for packet in packets:
            if packet not in self.under_way:
                continue
            segment, sent_s = self.under_way.pop(packet)
            self.known.add(segment)
            while self.known_to in self.known:
                self.known_to += 1
            self.smoothed_s += (self.now_s - sent_s - self.smoothed_s) / 8
            grown += packet >= self.shrunk_at
        self.probed, self.doublings = False, 0
        missing = [packet for packet in self.under_way if packet < max(packets)]  # the link keeps the order
        if missing:
            if any(packet >= self.shrunk_at for packet in missing):
                self.shrink()
            self.give_up(missing)
            self.send_one()  # at once: fast retransmission
        else:
            self.grow(grown, before)
        self.fill_window()

    def grow(self, acknowledged: int, under_way: int) -> None:
        """Grow a used window: in slow start by the acknowledged segments, beyond the threshold by one per window."""
        slow = 0.0
        if self.window < self.threshold and self.window < 2 * under_way:
            slow = min(acknowledged, self.threshold - self.window)
            self.window += slow
        if self.window >= self.threshold and under_way >= math.floor(self.window):
            self.counted += acknowledged - slow
            if self.counted >= self.window:
                self.counted -= self.window
                self.window += 1

    def shrink(self) -> None:
        """Shrink the window once for all packets that were lost of those sent before."""
        self.threshold = self.window = max(self.window / 2, 2.0)
        self.shrunk_at, self.recovering_to, self.counted = self.sent, self.next, 0.0

    def give_up(self, packets: list[int]) -> None:
        """Take these packets as no longer under way, and send their contents again."""
        for packet in packets:
            segment, _ = self.under_way.pop(packet)
            if segment not in self.known:
                self.again.append(segment)

    def set_alarm(self) -> None:
        """A probe after two round trips of silence, unless losses are known; then time-outs, each twice as long."""
        self.alarm += 1
        if not self.under_way:
            return
        this = self.alarm
        beyond_s = max(self.least_time_out_s, 2 * self.link.round_trip_s)  # RFC 6298: after a first measurement
        time_out_s = (self.smoothed_s + beyond_s + TICK_S) * 2**self.doublings
        alone_s = self.least_time_out_s if len(self.under_way) == 1 else 0.0
        probes = not self.probed and self.known_to >= self.recovering_to
        wait_s = min(2 * self.smoothed_s + alone_s, time_out_s) if probes else time_out_s
        self.later(wait_s, lambda: (self.probe if probes else self.time_out)() if this == self.alarm else None)

    def probe(self) -> None:
        """The next segment, or the last one again."""
        self.probed = True
        if not self.send_one():
            self.send(list(self.under_way.values())[-1][0])
        self.set_alarm()

    def time_out(self) -> None:
        """All that is under way is lost; slow start."""
        self.shrink()
        self.window, self.doublings = 1.0, self.doublings + 1
        self.give_up(list(self.under_way))
        self.fill_window()

    # -- receiver --------------------------------------------------------------------------------------------

    def vanish(self) -> None:
        """A packet is lost; the one before has nothing behind it now."""
        self.on_the_way -= 1
        self.answer()

    def arrive(self, packet: int, segment: int, through_s: float) -> None:
        """A packet is there."""
        self.on_the_way -= 1
        self.arrived.add(segment)
        self.finish_s = through_s
        self.unanswered.append(packet)
        self.answer()

    def answer(self) -> None:
        """Acknowledge every second packet, and at once a packet that is the last or beside a gap."""
        gap = max(self.arrived, default=-1) >= len(self.arrived)
        if self.unanswered and (len(self.unanswered) == 2 or not self.on_the_way or gap):
            packets, self.unanswered = self.unanswered, []
            self.later(self.propagation_s, lambda: self.acknowledge(packets))
