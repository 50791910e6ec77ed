"""One live stage: each client's part of it, when it ends, and what came in.

A stage ends by the rule of the virtual clock (`EmulatedNetwork._end_of`), applied as things happen: with the answer
that reaches its quorum; else when everybody has been heard of, by an answer, a refusal, or (where disconnects are
visible) by going away; else at its deadline. Silence is never heard. What came in takes the form in which hosts on the
virtual clock hand it over.
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
    """What is known of one client in one stage.

    Attributes:
        client: its number.
        position: its place among the stage's recipients.
        losing: it is lost as soon as it has the question.
        connected: it had a connection at some time of the stage.
        asked: the question has been written completely.
        sent, received: bytes of the question and of the answer that got through.
        links_behind_s: how long its links stood idle because the machine had more to do than it can.
        header: what precedes the answer, once that is there.
        body: the answer, once it is complete.
        crash: what the client's report of a crash stands for (`reports.ClientReports`), once that is known.
    """

    client: int
    position: int
    losing: bool
    connected: bool = False
    asked: bool = False
    sent: int = 0
    received: int = 0
    links_behind_s: float = 0.0
    header: AnswerHeader | None = None
    body: bytearray | None = field(default=None, repr=False)
    crash: Crash | None = None

    async def send_question(
        self, connection: Connection, header: QuestionHeader, name: bytes, parts: tuple[bytes, ...], passage: Transfer
    ) -> None:
        """Send header and stage name, then the `parts`, which are what counts; raises `OSError` when it is lost."""
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
                        self.sent += written
                        piece, view = piece[written:], view[written:]
        self.asked = True

    @property
    def reports_crash(self) -> bool:
        """The client has said, completely, that its code has crashed or that its host cannot go on."""
        return self.body is not None and self.header is not None and self.header.status in (wire.CRASHED, wire.FAILED)

    @property
    def may_have_refused(self) -> bool:
        """The client has the question, and has not said that it accepts it: its answer may have been a refusal."""
        return self.asked and not self.losing and (self.header is None or self.header.status == wire.REFUSED)

    @contextlib.contextmanager
    def _carried(self, passage: Transfer) -> Iterator[None]:
        """A transfer, complete or cut off."""
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
            key: of the question.
            largest: bytes that an answer may have.
            bounded: takes from a header what cannot be true; may raise `FramingError`.

        Returns:
            the header as it counts.

        Raises:
            FramingError: what comes is no answer of this client at stage `key`, or has more than `largest` bytes.
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
        body = bytearray()  # grows with what comes: an announced size takes no memory
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
        """Receive what a client that has no answer says about itself: not a protocol message, and not counted."""
        if size > LONGEST_LINE:
            raise FramingError(f"a line of {size} bytes")
        self.body = await wire.receive_exactly(connection.stream, size)

    def hang_up(self, connection: Connection) -> None:
        """Cut the connection; what it has not delivered of the question did not get through."""
        if connection.alive and self.header is None:
            with contextlib.suppress(OSError):  # reset by the client: nothing better is known than what was written
                self.sent = max(0, self.sent - wire.unacknowledged_bytes(connection.stream))
        connection.cut()


_PENDING = -1


class StageProgress:
    """Who has been heard of in one stage.

    Args:
        stage: its arrays are filled in as things happen.
        presence: who is there.
        quorum: so many answers are enough; None: all.
        disconnects_visible: see `Timing`.
        clock: the run's.

    Attributes:
        exchanges: of the clients that are asked.
        over: done when the stage has ended; its result is when.
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
        """Whether the client's fate is still open."""
        return bool(self._stage.outcome[exchange.position] == _PENDING)

    def settle(self, exchange: Exchange, outcome: int) -> None:
        """The client's fate is now known: ANSWERED or REFUSED (it arrives now), SILENT, DROPPED or OFFLINE."""
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
        """The client goes away; it has dropped out if its fate was still open, and may be missed no more if not."""
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
        """The stage ends now, or ended before."""
        if not self.over.done():
            self.over.set_result(self._clock())

    def fail(self, error: Exception) -> None:
        """The stage cannot go on: whoever waits for its end gets `error`."""
        if not self.over.done():
            self.over.set_exception(error)

    def close(self) -> None:
        """After the end: who is still open is late, or was never connected."""
        for exchange in self.exchanges:
            if self.pending(exchange):
                self._stage.outcome[exchange.position] = LATE if exchange.connected else OFFLINE


MALFORMED = b""  # decodes as nothing


def collected(kind: type[Message], exchanges: list[Exchange]) -> tuple[HostAnswers, dict[int, Vector]]:
    """The answers of a stage whose question is a `kind`, decoded, and the vectors that came with them.

    What a client says about its work is noted as soon as it is known, also when its answer is late. A complete
    answer that does not decode stands in `headers` as bytes that do not decode either.
    """
    heard = [exchange for exchange in exchanges if exchange.header is not None]
    headers = [exchange.header for exchange in heard if exchange.header is not None]
    spoke = [header.status in (wire.ANSWERED, wire.REFUSED) for header in headers]
    answers = HostAnswers(
        clients=np.array([exchange.client for exchange in heard], np.int64),
        answered=np.array(spoke, np.bool_),
        sizes=np.array([header.length * said for header, said in zip(headers, spoke, strict=True)], np.int64),
        compute_s=np.array([header.compute_s for header in headers], np.float64),
        pki_up=np.array([header.pki_up for header in headers], np.int64),
        pki_down=np.array([header.pki_down for header in headers], np.int64),
    )
    vectors: dict[int, Vector] = {}
    for exchange, header in zip(heard, headers, strict=True):
        if exchange.body is None:
            continue
        client, body = exchange.client, bytes(exchange.body)
        exchange.body = None  # the vectors hold what is needed
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
    """Sum of the clients' vectors: ring elements, or float vectors times `(m,)` `weights`.

    The same bits as `Hosts.total`, and metered in the same way. Raises `Refusal` when there is nobody to sum over,
    `RoundAborted` when somebody has sent no vector, or one of another shape.
    """
    if not len(clients):
        raise Refusal("sum.empty", "there is nobody to sum over")
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
