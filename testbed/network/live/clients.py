"""The clients' side of the live network: one host's clients, each on a TCP connection of its own.

    clients = LiveClients(Host(numbers, environment, roles), address)
    clients.start()                  # returns at once; connects, answers, and connects again when it is cut off
    clients.join()                   # until the server says that the run is over

One event loop in a thread of its own serves all connections; one further thread runs the handlers, one at a time
(a `Host` is not thread-safe). An answer leaves no earlier than latency, compute seconds and speed factor say. It may
leave later, when the host has more clients at work than it has time for; its answer says by how much.

Nothing is needed to start a client but the host and the server's `Address`: it learns latency and speed factor with
every question, and its link is throttled at the server (see `server`) or by the real network.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from testbed.crashes import Crash
from testbed.errors import ProtocolError
from testbed.messages import Message, RefusalNotice, attach, decode, detach, encode
from testbed.network.hosts import Delivery, HostAnswers
from testbed.network.live import wire
from testbed.network.live.reports import HostReport
from testbed.network.live.wire import Address, AnswerHeader, FramingError, QuestionHeader
from testbed.parties.host import OTHER_PROTOCOL, Host

FIRST_RETRY_S, LAST_RETRY_S = 0.02, 1.0
GIVE_UP_S = 300.0  # without a connection: the server has died, and a run that is resumed has another address
_LONGEST_LINE = 500
_NO_WORK = (0.0, 0, 0)

HandlerResult = tuple[int, bytes, tuple[float, int, int]]
"""Status, body, and (compute seconds, bytes to and from the PKI)."""


@dataclass(frozen=True, slots=True)
class ReceivedQuestion:
    """A question as received from the wire.

    Attributes:
        header: the header before it.
        name: see `question_name`.
        common: the encoded common part.
        private: the encoded private part; None if there is none.
        received_s: when it counts as received, on this process's monotonic clock.
    """

    header: QuestionHeader
    name: str
    common: bytes
    private: bytes | None
    received_s: float


class LiveClients:
    """The clients of one host, or some of them, on a live network.

    Args:
        host: where their handlers run; nobody else may use it from now on.
        address: what `LiveNetwork.open` returned.
        clients: their numbers; default: all of the host's.
    """

    def __init__(self, host: Host, address: Address, clients: Iterable[int] | None = None) -> None:
        self._host = host
        self._address = address
        self._clients = sorted(host.numbers.tolist() if clients is None else clients)
        self._kinds = host.questions
        self._round = 0
        self._owed_s = 0.0  # by how much an answer that was cut off was late already, for want of time
        self._reports: dict[int, HostReport] = {}  # the last crash of each client in this round
        self._handlers = ThreadPoolExecutor(1, thread_name_prefix="handlers")
        self._thread = threading.Thread(target=self._run, name="live clients", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()

    def start(self) -> None:
        """Begin to connect; returns when the event loop runs. Raises `ClusterError` for want of file descriptors."""
        wire.allow(len(self._clients))
        self._thread.start()
        self._started.wait()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until the server has said goodbye to every client (or has died); returns whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Cut all connections and end the threads; a handler that runs is waited for."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has just ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread.ident is not None:
            self._thread.join()
        self._handlers.shutdown(cancel_futures=True)

    def crash_report(self, client: int, key: tuple[int, int]) -> HostReport | None:
        """Return this host's report about a crash of `client` at the question `key`; None if there was no crash.

        The process that started the host passes the report to the server (`LiveNetwork`'s `confirming`). It does not
        use the client's connection, on which anybody with the run's token can claim anything.
        """
        report = self._reports.get(client)
        return report if report is not None and report.key == key else None

    # -- the event loop's thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.run(self._serve_all())

    async def _serve_all(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        everybody = asyncio.gather(*(self._live(client) for client in self._clients))
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((everybody, stopped), return_when=asyncio.FIRST_COMPLETED)
        for task in (everybody, stopped):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _live(self, client: int) -> None:
        """Connect, serve, and connect again, until the run is over or the server is not there any more."""
        retry_s, connected_s = FIRST_RETRY_S, time.monotonic()
        while time.monotonic() - connected_s < GIVE_UP_S:
            stream: socket.socket | None = None
            try:
                stream = await self._admitted(client)
                retry_s = FIRST_RETRY_S
                if await self._serve(client, stream):
                    return
            except (OSError, ProtocolError):  # cut off, lost, or not let in (yet)
                pass
            finally:
                if stream is not None:
                    wire.cut(stream)
                    connected_s = time.monotonic()
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, LAST_RETRY_S)

    async def _admitted(self, client: int) -> socket.socket:
        stream = await wire.connected(self._address.host, self._address.port)
        try:
            challenged = await wire.receive_exactly(stream, wire.CHALLENGE_BYTES)
            await wire.send_all(stream, wire.greeting(self._address.token, challenged, client))
            header = await _next_header(stream)
            if header.kind != wire.WELCOME:
                raise FramingError("the server did not say welcome")
        except BaseException:
            wire.cut(stream)
            raise
        return stream

    async def _serve(self, client: int, stream: socket.socket) -> bool:
        """Answer questions until the server says goodbye (True), or the client is to be lost (False)."""
        answering: asyncio.Task[None] | None = None
        try:
            while True:
                reading = asyncio.ensure_future(_next_question(stream))
                try:
                    await asyncio.wait(
                        (reading,) if answering is None else (reading, answering), return_when=asyncio.FIRST_COMPLETED
                    )
                    if answering is not None and answering.done():
                        answering.result()  # raises the handler's exception
                        answering = None
                    question = await reading
                finally:
                    await _ended(reading)
                if question.header.kind == wire.GOODBYE:
                    return True
                if question.header.kind == wire.LOSING:
                    return False
                if answering is not None:
                    raise FramingError("asked again before it has answered")
                answering = asyncio.ensure_future(self._answer(client, stream, question))
        finally:
            if answering is not None:
                await _ended(answering)

    async def _answer(self, client: int, stream: socket.socket, question: ReceivedQuestion) -> None:
        loop = asyncio.get_running_loop()
        handled = loop.run_in_executor(self._handlers, self._handle, client, question)
        try:
            # A client completes its work even if it is cut off, so that its state does not depend on the network.
            status, body, (compute_s, pki_up, pki_down) = await asyncio.shield(handled)
        except asyncio.CancelledError:
            cut_off_s = time.monotonic()
            handled.add_done_callback(lambda future: self._too_late(future, question, cut_off_s))
            raise
        leaves_s = question.received_s + compute_s * question.header.speed_factor
        while (left_s := leaves_s - time.monotonic()) > 0:
            await asyncio.sleep(left_s)
        header = AnswerHeader(
            status=status,
            round_number=question.header.round_number,
            number=question.header.number,
            client=client,
            compute_s=compute_s,
            behind_s=max(self._owed_s, time.monotonic() - leaves_s),
            pki_up=pki_up,
            pki_down=pki_down,
            length=len(body),
        )
        self._owed_s = 0.0
        await wire.send_all(stream, header.pack(), more_follows=bool(body))
        await wire.send_all(stream, body)

    def _too_late(self, future: "asyncio.Future[HandlerResult]", question: ReceivedQuestion, cut_off_s: float) -> None:
        """Note how late a handler ended for which the server did not wait; the next answer reports it."""
        if not future.cancelled() and future.exception() is None:
            compute_s = future.result()[2][0]
            due_s = question.received_s + compute_s * question.header.speed_factor
            self._owed_s = max(self._owed_s, cut_off_s - due_s)

    # -- the handlers' thread ----------------------------------------------------------------------------------

    def _handle(self, client: int, question: ReceivedQuestion) -> HandlerResult:
        """Run the client's handler."""
        try:
            return self._result(client, question)
        except Exception as error:  # of the run, not of this client
            return *self._crashed(question, Crash.of(client, error), fatal=True), _NO_WORK

    def _result(self, client: int, question: ReceivedQuestion) -> HandlerResult:
        if question.name not in self._kinds:
            notice = RefusalNotice(OTHER_PROTOCOL, f"{question.name!r}: no handler for this message"[:_LONGEST_LINE])
            return wire.REFUSED, encode(notice), _NO_WORK
        answers, kind, key = self._delivered(client, question)
        if answers.shared is not None and answers.shared.header is not None:
            return wire.ANSWERED, answers.shared.header, (answers.shared.compute_s, 0, 0)
        work = (float(answers.compute_s[0]), int(answers.pki_up[0]), int(answers.pki_down[0]))
        if answers.crashes:
            return *self._crashed(question, answers.crashes[0]), work
        if not answers.answered[0]:
            return wire.SILENT, b"", work
        if answers.refusals:
            return wire.REFUSED, answers.headers[client], work
        return wire.ANSWERED, self._encoded(kind, answers.headers[client], key, client), work

    def _crashed(self, question: ReceivedQuestion, crash: Crash, *, fatal: bool = False) -> tuple[int, bytes]:
        """Keep the crash for `crash_report`, and say over the connection that there is one: status and body."""
        key = (question.header.round_number, question.header.number)
        self._reports[crash.client] = HostReport(key, crash, fatal)
        return wire.FAILED if fatal else wire.CRASHED, crash.detail.encode(errors="replace")[:_LONGEST_LINE]

    def _delivered(self, client: int, question: ReceivedQuestion) -> tuple[HostAnswers, type[Message], tuple[int, int]]:
        round_number = question.header.round_number
        if round_number > self._round:
            self._host.begin_round()
            self._round = round_number
            self._reports.clear()
        elif round_number < self._round:
            raise ProtocolError(f"round {round_number} is over")
        kind = self._kinds[question.name]
        try:
            detached = detach(decode(kind, question.common))
            header, vectors = detached.header, detached.vectors
        except ProtocolError:
            header, vectors = question.common, ()  # the host lets the client refuse it
        key = (round_number, question.header.number)
        delivery = Delivery(
            key=key,
            kind=kind,
            header=header,
            vectors=vectors,
            recipients=np.array([client], np.int64),
            private=None if question.private is None else {client: question.private},
            last_announced=np.array([question.header.last_announced], np.int64),
        )
        return self._host.deliver(delivery), kind, key

    def _encoded(self, kind: type[Message], header: bytes, key: tuple[int, int], client: int) -> bytes:
        """Return the answer as encoded for the wire, with its vector, which the host keeps, put in its place."""
        assert kind.Answer is not None
        try:
            vector = self._host.vectors(key, np.array([client], np.int64))[client]
        except KeyError:
            return header  # without vectors, that is all
        try:
            return encode(attach(kind.Answer, header, (vector,)))
        except ProtocolError:  # a misbehaving client's: nor will the server be able to decode it
            return header


async def _next_header(stream: socket.socket) -> QuestionHeader:
    return QuestionHeader.unpack(await wire.receive_exactly(stream, wire.QUESTION_HEADER))


async def _next_question(stream: socket.socket) -> ReceivedQuestion:
    """Read the server's next message completely; raises `FramingError`, `ConnectionError`."""
    header = await _next_header(stream)
    name = await wire.receive_exactly(stream, header.name_bytes)
    common = await wire.receive_exactly(stream, header.common_bytes)
    private = await wire.receive_exactly(stream, header.private_bytes or 0)
    return ReceivedQuestion(
        header=header,
        name=name.decode(errors="replace"),
        common=bytes(common),
        private=None if header.private_bytes is None else bytes(private),
        received_s=time.monotonic() + header.latency_s,
    )


async def _ended(task: "asyncio.Future[object] | asyncio.Task[object]") -> None:
    """Cancel the task and wait until it has released its socket."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
