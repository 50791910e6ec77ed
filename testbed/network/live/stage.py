"""One live stage: each client's exchange, the end of the stage, and the answers.

A stage ends by the rule of the virtual clock (`EmulatedNetwork._end_of`), applied as things happen: with the answer
that reaches its quorum; else when all clients have answered, refused or (if disconnects are visible) gone away; else
at its deadline. A silent client is never noticed before the deadline. The answers take the form in which hosts on the
virtual clock return them.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.crashes import Crash
from testbed.emulation.availability import Presence
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, Refusal, RoundAborted
from testbed.messages import Message, RefusalNotice, Vector, decode, detach
from testbed.network.exchanges import ANSWERED, DROPPED, LATE, OFFLINE, REFUSED, SILENT
from testbed.network.hosts import ClientRefusal, HostAnswers
from testbed.network.live import wire
from testbed.network.live.admission import Connection
from testbed.network.live.links import Transfer
from testbed.network.live.wire import ANSWER_OVERHEAD, AnswerHeader, FramingError, QuestionHeader
from testbed.network.recorder import Stage
from testbed.network.sums import Sum, float_total, ring_total

LONGEST_LINE = 1 << 16


@dataclass(eq=False)
class Exchange:
    """The state of one client's exchange in one stage.

    Attributes:
        client: number of the client.
        position: position among the stage's recipients.
        losing: whether the client drops out as soon as it has the question.
        connected: whether it had a connection at some time of the stage.
        delivered: whether the question has been written completely.
        bytes_sent: bytes of the question that got through.
        received: bytes of the answer that got through.
        links_behind_s: seconds for which its links stood idle because the machine was overloaded.
        header: header of the answer, once it has arrived.
        body: the answer, once it is complete.
        crash: the crash that the client reported (`reports.ClientReports`), once validated.
    """

    client: int
    position: int
    losing: bool
    connected: bool = False
    delivered: bool = False
    bytes_sent: int = 0
    received: int = 0
    links_behind_s: float = 0.0
    header: AnswerHeader | None = None
    body: bytearray | None = field(default=None, repr=False)
    crash: Crash | None = None

    async def send_question(
        self, connection: Connection, header: QuestionHeader, name: bytes, parts: tuple[bytes, ...], passage: Transfer
    ) -> None:
        """Send header and stage name, then the `parts`, which are counted; raises `OSError` on a lost connection."""
        stream = connection.stream
        await wire.send_all(stream, header.pack() + name, more_follows=True)
        with self._carried(passage):
            for part in parts:
                view = memoryview(part)
                while len(view):
                    piece, rest = view[: await passage.next_piece(len(view))], len(view)
                    more_follows = part is not parts[-1] and len(piece) == rest
                    while len(piece):
                        written = await wire.send_some(stream, piece, more_follows=more_follows)
                        self.bytes_sent += written
                        piece, view = piece[written:], view[written:]
        self.delivered = True

    @property
    def reports_crash(self) -> bool:
        """The client has said, completely, that its code has crashed or that its host cannot go on."""
        return self.body is not None and self.header is not None and self.header.status in (wire.CRASHED, wire.FAILED)

    @property
    def may_have_refused(self) -> bool:
        """The client has the question, and has not said that it accepts it: its answer may have been a refusal."""
        return self.delivered and not self.losing and (self.header is None or self.header.status == wire.REFUSED)

    @contextlib.contextmanager
    def _carried(self, passage: Transfer) -> Iterator[None]:
        """Account a transfer, complete or cut off."""
        try:
            with passage:
                yield
        finally:
            self.links_behind_s += passage.behind_s

    @property
    def behind_s(self) -> float:
        """How much later the answer was complete than links and device would have had it."""
        return self.links_behind_s + (0.0 if self.header is None else self.header.behind_s)

    async def receive_header(
        self,
        connection: Connection,
        key: tuple[int, int],
        largest: int,
        bounded: Callable[[AnswerHeader], AnswerHeader],
    ) -> AnswerHeader:
        """Wait for the answer to begin.

        Args:
            connection: the client's.
            key: key of the question.
            largest: maximum size of an answer, bytes.
            bounded: limits the values in a header to possible ones; may raise `FramingError`.

        Returns:
            The header with limited values.

        Raises:
            FramingError: the data is no answer of this client at stage `key`, or has more than `largest` bytes.
            ConnectionError: the client has hung up.
        """
        data = await wire.receive_exactly(connection.stream, ANSWER_OVERHEAD)
        header = AnswerHeader.unpack(data, largest)
        if header.client != self.client:
            raise FramingError(f"answers as client {header.client}")
        if (header.round_number, header.number) != key:
            raise FramingError(f"answers stage {header.number} of round {header.round_number}, when asked {key}")
        if self.losing:
            raise FramingError("answers although it was to be lost")
        self.header = bounded(header)
        return self.header

    async def receive_answer(self, connection: Connection, size: int, passage: Transfer) -> None:
        """Receive the `size` bytes of the answer; raises `ConnectionError` when the client hangs up before."""
        body = bytearray()  # grows with the data: an announced size alone takes no memory
        with self._carried(passage):
            while self.received < size:
                piece = memoryview(bytearray(await passage.next_piece(size - self.received)))
                got = 0
                while got < len(piece):
                    count = await wire.receive_into(connection.stream, piece[got:])
                    got += count
                    self.received += count
                body += piece
        self.body = body

    async def receive_line(self, connection: Connection, size: int) -> None:
        """Receive the text of a client that has no answer: not a protocol message, and not counted."""
        if size > LONGEST_LINE:
            raise FramingError(f"a line of {size} bytes")
        self.body = await wire.receive_exactly(connection.stream, size)

    def hang_up(self, connection: Connection) -> None:
        """Cut the connection; undelivered bytes of the question did not get through."""
        if connection.alive and self.header is None:
            with contextlib.suppress(OSError):  # reset by the client: the bytes written are the best estimate
                self.bytes_sent = max(0, self.bytes_sent - wire.unacknowledged_bytes(connection.stream))
        connection.cut()


_PENDING = -1


class LiveStageProgress:
    """The outcomes of the clients in one stage.

    Args:
        stage: its arrays are filled in as things happen.
        presence: availability of the clients.
        quorum: number of answers that is enough; None: all.
        disconnects_visible: see `Timing`.
        clock: the run's clock.

    Attributes:
        exchanges: exchanges of the clients that are asked.
        over: done when the stage has ended; its result is the time of the end.
    """

    def __init__(
        self,
        stage: Stage,
        presence: Presence,
        quorum: int | None,
        disconnects_visible: bool,
        clock: Callable[[], float],
    ) -> None:
        self._stage = stage
        self._quorum = quorum
        self._visible = disconnects_visible
        self._clock = clock
        self.over: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self.exchanges = [
            Exchange(client, position, bool(presence.drops[position]))
            for position, client in enumerate(stage.recipients.tolist())
            if presence.reachable[position]
        ]
        stage.outcome[:] = np.where(presence.reachable, np.where(presence.drops, DROPPED, _PENDING), OFFLINE)
        self._pending = int((stage.outcome == _PENDING).sum())
        self._answers = 0
        self._unheard = 0 if disconnects_visible else len(stage.recipients) - self._pending
        self.check()

    def pending(self, exchange: Exchange) -> bool:
        """Return whether the client's outcome is still open."""
        return bool(self._stage.outcome[exchange.position] == _PENDING)

    def settle(self, exchange: Exchange, outcome: int) -> None:
        """Set the client's outcome: ANSWERED or REFUSED (it arrives now), SILENT, DROPPED or OFFLINE."""
        if self.over.done() or not self.pending(exchange):
            return
        self._stage.outcome[exchange.position] = outcome
        self._pending -= 1
        if outcome in (ANSWERED, REFUSED):
            self._stage.arrival_s[exchange.position] = self._clock()
            self._answers += outcome == ANSWERED
        elif outcome == SILENT or not self._visible:
            self._unheard += 1
        self.check()

    def leaves(self, exchange: Exchange) -> None:
        """Note that the client goes away; it drops out if its outcome is still open."""
        if self.pending(exchange):
            self.settle(exchange, DROPPED)
        elif self._visible and self._stage.outcome[exchange.position] == SILENT:
            self._unheard -= 1
            self.check()

    def check(self) -> None:
        """End the stage if nothing more is waited for."""
        enough = self._quorum is not None and 0 < self._quorum <= self._answers
        if enough or not (self._pending or self._unheard):
            self.end()

    def end(self) -> None:
        """End the stage now, if it has not ended before."""
        if not self.over.done():
            self.over.set_result(self._clock())

    def fail(self, error: Exception) -> None:
        """Fail the stage: tasks that wait for its end get `error`."""
        if not self.over.done():
            self.over.set_exception(error)

    def close(self) -> None:
        """Set the outcome of clients that are still open after the end: late, or never connected."""
        for exchange in self.exchanges:
            if self.pending(exchange):
                self._stage.outcome[exchange.position] = LATE if exchange.connected else OFFLINE


MALFORMED = b""  # decodes as nothing


def collected(kind: type[Message], exchanges: list[Exchange]) -> tuple[HostAnswers, dict[int, Vector]]:
    """Return the answers of a stage, decoded, and their vectors.

    A client's report about its work is stored as soon as it arrives, even if the answer is late. A complete
    answer that does not decode is stored in `headers` as bytes that do not decode either.

    Args:
        kind: type of the stage's question.
        exchanges: exchanges of the stage.

    Returns:
        The answers as hosts return them, and the vectors by client.
    """
    reported = [exchange for exchange in exchanges if exchange.header is not None]
    headers = [exchange.header for exchange in reported if exchange.header is not None]
    spoke = [header.status in (wire.ANSWERED, wire.REFUSED) for header in headers]
    answers = HostAnswers(
        clients=np.array([exchange.client for exchange in reported], np.int64),
        answered=np.array(spoke, np.bool_),
        sizes=np.array([header.length * spoken for header, spoken in zip(headers, spoke, strict=True)], np.int64),
        compute_s=np.array([header.compute_s for header in headers], np.float64),
        pki_up=np.array([header.pki_up for header in headers], np.int64),
        pki_down=np.array([header.pki_down for header in headers], np.int64),
    )
    vectors: dict[int, Vector] = {}
    for exchange, header in zip(reported, headers, strict=True):
        if exchange.body is None:
            continue
        client, body = exchange.client, bytes(exchange.body)
        exchange.body = None  # the vectors hold the data from here on
        if exchange.crash is not None:
            answers.crashes.append(exchange.crash)
        elif header.status == wire.REFUSED:
            answers.headers[client] = body
            answers.refusals.append(_refusal(client, body))
        elif header.status == wire.ANSWERED:
            answers.headers[client] = _detached(kind, body, client, vectors)
    return answers, vectors


def _detached(kind: type[Message], body: bytes, client: int, vectors: dict[int, Vector]) -> bytes:
    assert kind.Answer is not None
    try:
        detached = detach(decode(kind.Answer, body))
    except ProtocolError:
        return MALFORMED
    if detached.vectors:
        vectors[client] = detached.vectors[0]
    return detached.header


def _refusal(client: int, body: bytes) -> ClientRefusal:
    try:
        notice = decode(RefusalNotice, body)
    except ProtocolError:
        return ClientRefusal(client, "message.malformed", "a refusal that does not decode")
    return ClientRefusal(client, notice.check, notice.detail)


def summed(vectors: Mapping[int, Vector], clients: Ids, weights: npt.NDArray[np.int64] | None) -> Sum:
    """Return the sum of the clients' vectors, bit for bit and metered as `Hosts.total`.

    Args:
        vectors: by client.
        clients: `(m,)` int64, clients to sum over.
        weights: `(m,)` int64 factors for float vectors; None for ring vectors.

    Raises:
        Refusal: there are no clients to sum over.
        RoundAborted: a client has sent no vector, or a vector of another shape.
    """
    if not len(clients):
        raise Refusal("sum.empty", "there are no clients to sum over")
    without = [client for client in clients.tolist() if client not in vectors]
    if without:
        raise RoundAborted("no-vector", f"client {without[0]} was to send a vector")
    chosen = [vectors[client] for client in clients.tolist()]
    bits, length = chosen[0].bits, len(chosen[0])
    if any((vector.bits, len(vector)) != (bits, length) for vector in chosen):
        raise RoundAborted("different-vectors", "clients sent vectors of different shapes")
    meter("ring.add.element" if weights is None else "float.add.element", float(len(chosen) * length))
    if not chosen[0].is_float:
        return ring_total(chosen)
    shares = np.ones(len(chosen), np.int64) if weights is None else weights
    return float_total(chosen, shares.tolist())
