"""The links of a live run: emulated by token buckets, or the real network's own."""

from collections.abc import Callable

import numpy as np

from testbed.emulation.links import ClientLinks
from testbed.network.live.throttle import (
    SendingTime,
    ThrottledTransfer,
    TokenBucket,
    UnthrottledTransfer,
    constant,
    varying,
)


class ThrottledLinks:
    """Token buckets for every client's two directions and the server's, and the clients' latencies.

    Args:
        links: what they are to be like.
        clock: seconds since the run began.
    """

    def __init__(self, links: ClientLinks, clock: Callable[[], float]) -> None:
        self._links = links
        self._clock = clock
        self._server_up = TokenBucket(constant(links.server_up_bytes_s), clock)
        self._server_down = TokenBucket(constant(links.server_down_bytes_s), clock)
        self._clients: dict[int, tuple[SendingTime, TokenBucket, SendingTime, TokenBucket]] = {}

    def _of(self, client: int) -> tuple[SendingTime, TokenBucket, SendingTime, TokenBucket]:
        known = self._clients.get(client)
        if known is None:
            down, up = varying(self._links.down, client), varying(self._links.up, client)
            known = down, TokenBucket(down, self._clock), up, TokenBucket(up, self._clock)
            self._clients[client] = known
        return known

    def latency_s(self, client: int) -> float:
        """Seconds that every message from or to the client is on its way, one way."""
        return float(self._links.latency_s[client])

    def downwards(
        self, client: int, size: int, ready_s: float | None = None
    ) -> ThrottledTransfer | UnthrottledTransfer:
        """The way of a message of `size` bytes to the client, which could have begun at `ready_s` (None: now)."""
        return ThrottledTransfer(
            self._of(client)[1], self._server_up, self._tokens_per_byte(size), self._clock, ready_s
        )

    def upwards(self, client: int, size: int) -> ThrottledTransfer | UnthrottledTransfer:
        """The way of a message of `size` bytes from the client."""
        return ThrottledTransfer(self._of(client)[3], self._server_down, self._tokens_per_byte(size), self._clock)

    def looked_up_s(self, client: int, ready_s: float, pki_up: int, pki_down: int) -> float:
        """When a client that was ready at `ready_s` has asked the PKI `pki_up` bytes and got `pki_down`."""
        if pki_up + pki_down == 0:
            return ready_s
        down, _, up, _ = self._of(client)
        latency_s = float(self._links.latency_s[client])
        return down(up(ready_s, pki_up) + latency_s, pki_down) + latency_s

    def _tokens_per_byte(self, size: int) -> float:
        headers, _ = self._links.transport.overhead(np.array([size], np.int64))
        return 1 + float(headers[0]) / size if size else 1.0


class RealLinks(ThrottledLinks):
    """The network's own links: no buckets and no latency. Only the PKI, which it does not reach, is emulated."""

    def latency_s(self, client: int) -> float:
        """The real network has its own."""
        return 0.0

    def downwards(
        self, client: int, size: int, ready_s: float | None = None
    ) -> ThrottledTransfer | UnthrottledTransfer:
        """Nothing is held back."""
        return UnthrottledTransfer()

    def upwards(self, client: int, size: int) -> ThrottledTransfer | UnthrottledTransfer:
        """Nothing is held back."""
        return UnthrottledTransfer()
