"""Token buckets that throttle a socket to the speed of its emulated link.

A bucket lets bytes pass at its link's rate, which may vary over time. It is kept as the time at which everything
reserved so far has passed (the virtual scheduling form of the bucket; ITU-T I.371): a piece of a message is written
or read when its last byte would have passed the link, so a transfer of b bytes lasts b / rate, as on the virtual clock,
and never less. A late wake-up is made up for, up to `DEPTH_S` of the rate; an idle bucket saves nothing.

The server's bucket is shared: pieces pass it in the order in which they are reserved. All transfers that wait for it
ask for equal pieces, in turn, so they get equal shares, and a transfer that its own link holds back asks less often:
max-min fairness (deficit round robin with one quantum; Shreedhar and Varghese, SIGCOMM 1995).

If the transport has windows, a message goes in flights (`windows`): no piece extends beyond the current flight, and the
capacity that a link wastes while its sender waits for an acknowledgement is not made up for.
"""

import asyncio
import math
from collections.abc import Callable
from types import TracebackType

import numpy as np

from testbed.emulation.links import ClientLinks
from testbed.emulation.links.rates import Rates
from testbed.network.live.windows import Pacing

SMALLEST_PIECE = 1448  # bytes: TCP's payload of one Ethernet frame
LARGEST_PIECE = 1 << 18
PIECE_S = 0.01  # a piece passes the link in this many seconds ...
PIECES_PER_S = 5000  # ... or in more, so that all transfers together need no more pieces than this
DEPTH_S = 0.05

SendingTime = Callable[[float, float], float]
"""When bytes have passed that start at a time: (seconds, bytes) -> seconds, infinite for never."""


def constant(rate_bytes_s: float) -> SendingTime:
    """Return the sending time of a link with one rate.

    Args:
        rate_bytes_s: bytes per second; 0: nothing ever passes; infinite: no delay.
    """
    if rate_bytes_s <= 0:
        return lambda begin_s, size: math.inf if size > 0 else begin_s
    return lambda begin_s, size: begin_s + size / rate_bytes_s


def varying(rates: Rates, client: int) -> SendingTime:
    """Return the sending time of one client's link.

    Args:
        rates: rates of all clients' links.
        client: number of the client.
    """
    if rates.is_constant:
        return constant(float(rates.take(np.array([client])).maximum()[0]))
    own = rates.take(np.array([client]))
    return lambda begin_s, size: float(own.time_to_send(np.array([begin_s]), np.array([size]))[0])


class TokenBucket:
    """One link.

    Args:
        sending_time: how long bytes take on it.
        clock: the present time in the seconds that `sending_time` is about.
    """

    def __init__(self, sending_time: SendingTime, clock: Callable[[], float]) -> None:
        self._sending_time = sending_time
        self._clock = clock
        self._free_s = 0.0
        self.transfers = 0

    @property
    def busy_until_s(self) -> float:
        """When everything has passed that transfers have reserved; minus infinity when there is no transfer."""
        return self._free_s if self.transfers else -math.inf

    def begin(self) -> None:
        """Begin a transfer; the first one finds the bucket empty."""
        if not self.transfers:
            self._free_s = self._clock()
        self.transfers += 1

    def end(self) -> None:
        """End a transfer."""
        self.transfers -= 1

    def reserve(self, size: float, not_before_s: float = -math.inf) -> float:
        """Reserve `size` more bytes, which become available now; return when they will have passed, in seconds.

        Calls are served in order.
        """
        # Up to `DEPTH_S` of the past may be used: a late wake-up is made up for, an idle link saves nothing more.
        self._free_s = self._sending_time(max(self._free_s, self._clock() - DEPTH_S, not_before_s), size)
        return self._free_s

    def passes_in(self, seconds: float) -> float:
        """Return the bytes that pass in about `seconds` from now (halved and doubled from one frame on)."""
        now_s, size = self._clock(), float(SMALLEST_PIECE)
        while size < LARGEST_PIECE and self._sending_time(now_s, 2 * size) <= now_s + seconds:
            size *= 2
        return size


class ThrottledTransfer:
    """One transfer on its way through its client's link and the server's; a context manager.

    Args:
        own: the client's bucket.
        shared: the server's.
        tokens_per_byte: above 1 where transport headers take their part of the link.
        clock: as the buckets'.
        ready_s: since when it could have begun; None: since it does.
        pacing: the flights that it goes in; None: all at once, with headers as `tokens_per_byte` says.

    Attributes:
        behind_s: how long both links stood idle although this transfer was not done.
    """

    def __init__(
        self,
        own: TokenBucket,
        shared: TokenBucket,
        tokens_per_byte: float,
        clock: Callable[[], float],
        ready_s: float | None = None,
        pacing: Pacing | None = None,
    ) -> None:
        self._own = own
        self._shared = shared
        self._tokens_per_byte = tokens_per_byte
        self._clock = clock
        self._ready_s = clock() if ready_s is None else ready_s
        self._pacing = pacing
        self._not_before_s = -math.inf
        self.behind_s = 0.0

    def __enter__(self) -> "ThrottledTransfer":
        self._look_back()
        self._ready_s = self._clock()
        self._own.begin()
        self._shared.begin()
        self._own_size = float(SMALLEST_PIECE)
        if self._pacing is not None:
            self._pacing.began_s = self._ready_s
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._look_back()
        self._own.end()
        self._shared.end()
        if self._pacing is not None:
            self._pacing.end(self._ready_s if kind is None else self._clock())

    async def next_piece(self, left: int) -> int:
        """Wait until the next piece of at most `left` bytes has passed, and return its size in bytes."""
        if self._pacing is not None:
            left = min(left, await self._in_flight(self._pacing))
        self._look_back()
        transfers = self._shared.transfers
        # Many transfers get larger pieces, so that the event loop keeps up.
        stretch = max(1.0, transfers / (PIECES_PER_S * PIECE_S))
        if self._own_size <= SMALLEST_PIECE:  # a link that was down may be up again
            self._own_size = self._own.passes_in(PIECE_S)
        quantum = self._shared.passes_in(PIECE_S * stretch / transfers)
        # Equal quanta for all transfers make the sharing max-min fair (deficit round robin).
        size = min(left, int(min(self._own_size * stretch, quantum, LARGEST_PIECE)))
        await self._pass(size * self._tokens_per_byte if self._pacing is None else self._pacing.take(size))
        return size

    async def _in_flight(self, pacing: Pacing) -> int:
        """Wait until the flight may begin that the next bytes go in; how many of them there are."""
        while not pacing.payload_left:
            flight = next(pacing.flights)
            self._ready_s = max(self._ready_s, pacing.began_s + flight.gap_s)
            await sleep_until(self._ready_s, self._clock)
            # The link's idle time while the sender waited for an acknowledgement is lost, not saved.
            self._not_before_s = max(self._ready_s, self._clock() - DEPTH_S)
            pacing.begin(flight, self._not_before_s)
            if not pacing.payload_left:
                self._look_back()
                await self._pass(pacing.take(0))
        return pacing.payload_left

    async def _pass(self, tokens: float) -> None:
        """Wait until this many bytes have passed both links."""
        through_s = max(bucket.reserve(tokens, self._not_before_s) for bucket in (self._own, self._shared))
        await sleep_until(through_s, self._clock)
        self._ready_s = through_s

    def _look_back(self) -> None:
        """Note how long this transfer could have gone on, and no link was at work."""
        # A later wake-up than `DEPTH_S` cannot be made up for: the link stood idle although bytes waited for it.
        idle_since_s = max(self._ready_s, self._own.busy_until_s, self._shared.busy_until_s)
        self.behind_s += max(0.0, self._clock() - DEPTH_S - idle_since_s)


class UnthrottledTransfer:
    """A transfer that nothing but the real network holds back; the same interface as `ThrottledTransfer`."""

    behind_s = 0.0

    def __enter__(self) -> "UnthrottledTransfer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def next_piece(self, left: int) -> int:
        """Return the size of the next piece, after other tasks have had their turn."""
        await asyncio.sleep(0)
        return min(left, LARGEST_PIECE)


Transfer = ThrottledTransfer | UnthrottledTransfer


async def sleep_until(time_s: float, clock: Callable[[], float]) -> None:
    """Wait until `clock` reads at least `time_s`.

    Args:
        time_s: seconds of `clock`; infinite: wait until cancelled.
        clock: returns the current time in seconds.
    """
    if time_s == math.inf:
        # Nothing ever passes a dead link: only the stage's end cancels the wait.
        await asyncio.get_running_loop().create_future()
    while (left_s := time_s - clock()) > 0:
        await asyncio.sleep(left_s)
    # Others get their turn even when nothing was waited for.
    await asyncio.sleep(0)


class ThrottledLinks:
    """Token buckets for both directions of each client's link and of the server's, and the clients' latencies.

    Args:
        links: the emulated links.
        clock: seconds since the run began.
    """

    def __init__(self, links: ClientLinks, clock: Callable[[], float]) -> None:
        self._links = links
        self._clock = clock
        self._server_up = TokenBucket(constant(links.server_up_bytes_s), clock)
        self._server_down = TokenBucket(constant(links.server_down_bytes_s), clock)
        self._clients: dict[int, tuple[SendingTime, TokenBucket, SendingTime, TokenBucket]] = {}

    def _of(self, client: int) -> tuple[SendingTime, TokenBucket, SendingTime, TokenBucket]:
        buckets = self._clients.get(client)
        if buckets is None:
            down, up = varying(self._links.down, client), varying(self._links.up, client)
            buckets = down, TokenBucket(down, self._clock), up, TokenBucket(up, self._clock)
            self._clients[client] = buckets
        return buckets

    def latency_s(self, client: int) -> float:
        """Return the one-way latency, in seconds, of a message from or to the client that is sent now."""
        return float(self._links.latency_at(self._clock(), np.array([client]))[0])

    def downwards(self, client: int, size: int, ready_s: float | None = None, pacing: Pacing | None = None) -> Transfer:
        """Return the transfer of `size` bytes to the client, which could have begun at `ready_s` (None: now)."""
        own, shared = self._of(client)[1], self._server_up
        return ThrottledTransfer(own, shared, self._tokens_per_byte(size), self._clock, ready_s, pacing)

    def upwards(self, client: int, size: int, pacing: Pacing | None = None) -> Transfer:
        """Return the transfer of `size` bytes from the client."""
        own, shared = self._of(client)[3], self._server_down
        return ThrottledTransfer(own, shared, self._tokens_per_byte(size), self._clock, pacing=pacing)

    def looked_up_s(self, client: int, ready_s: float, pki_up: int, pki_down: int) -> float:
        """Return when a client that is ready at `ready_s` has sent `pki_up` bytes to the PKI and got `pki_down`."""
        if pki_up + pki_down == 0:
            return ready_s
        down, _, up, _ = self._of(client)
        latency_s = ThrottledLinks.latency_s(self, client)
        return down(up(ready_s, pki_up) + latency_s, pki_down) + latency_s

    def _tokens_per_byte(self, size: int) -> float:
        headers, _ = self._links.transport.overhead(np.array([size], np.int64))
        # Headers are spread evenly over the message, as pieces do not match packets.
        return 1 + float(headers[0]) / size if size else 1.0


class RealLinks(ThrottledLinks):
    """The network's own links: no buckets and no latency. Only the PKI, which it does not reach, is emulated."""

    def latency_s(self, client: int) -> float:
        """Return 0: the real network has its own latency."""
        return 0.0

    def downwards(self, client: int, size: int, ready_s: float | None = None, pacing: Pacing | None = None) -> Transfer:
        """Return a transfer that is not throttled."""
        return UnthrottledTransfer()

    def upwards(self, client: int, size: int, pacing: Pacing | None = None) -> Transfer:
        """Return a transfer that is not throttled."""
        return UnthrottledTransfer()
