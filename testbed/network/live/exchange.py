"""One client's part of a live stage: its question goes out, its answer comes in, and what got through is counted."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from testbed.network.live import sockets
from testbed.network.live.admission import Connection
from testbed.network.live.frames import ANSWER_OVERHEAD, REFUSED, AnswerHeader, FramingError, QuestionHeader
from testbed.network.live.throttle import ThrottledTransfer, UnthrottledTransfer

LONGEST_LINE = 1 << 16
Transfer = ThrottledTransfer | UnthrottledTransfer


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

    async def send_question(
        self, connection: Connection, header: QuestionHeader, name: bytes, parts: tuple[bytes, ...], passage: Transfer
    ) -> None:
        """Send header and stage name, then the `parts`, which are what counts; raises `OSError` when it is lost."""
        stream = connection.stream
        await sockets.send_all(stream, header.pack() + name, more_follows=True)
        with self._carried(passage):
            for part in parts:
                view = memoryview(part)
                while len(view):
                    piece, rest = view[: await passage.next_piece(len(view))], len(view)
                    more_follows = part is not parts[-1] and len(piece) == rest
                    while len(piece):
                        written = await sockets.send_some(stream, piece, more_follows=more_follows)
                        self.sent += written
                        piece, view = piece[written:], view[written:]
        self.asked = True

    @property
    def may_have_refused(self) -> bool:
        """The client has the question, and has not said that it accepts it: its answer may have been a refusal."""
        return self.asked and not self.losing and (self.header is None or self.header.status == REFUSED)

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

    async def receive_header(self, connection: Connection, key: tuple[int, int], largest: int) -> AnswerHeader:
        """Wait for the answer to begin.

        Raises:
            FramingError: what comes is no answer of this client at stage `key`, or has more than `largest` bytes.
            ConnectionError: the client has hung up.
        """
        data = await sockets.receive_exactly(connection.stream, ANSWER_OVERHEAD)
        header = AnswerHeader.unpack(data, largest)
        if header.client != self.client:
            raise FramingError(f"answers as client {header.client}")
        if (header.round_number, header.number) != key:
            raise FramingError(f"answers stage {header.number} of round {header.round_number}, when asked {key}")
        if self.losing:
            raise FramingError("answers although it was to be lost")
        self.header = header
        return header

    async def receive_answer(self, connection: Connection, size: int, passage: Transfer) -> None:
        """Receive the `size` bytes of the answer; raises `ConnectionError` when the client hangs up before."""
        body = bytearray()  # grows with what comes: an announced size takes no memory
        with self._carried(passage):
            while self.received < size:
                piece = memoryview(bytearray(await passage.next_piece(size - self.received)))
                got = 0
                while got < len(piece):
                    count = await sockets.receive_into(connection.stream, piece[got:])
                    got += count
                    self.received += count
                body += piece
        self.body = body

    async def receive_line(self, connection: Connection, size: int) -> bytes:
        """Receive what a client that has no answer says about itself: not a protocol message, and not counted."""
        if size > LONGEST_LINE:
            raise FramingError(f"a line of {size} bytes")
        self.body = await sockets.receive_exactly(connection.stream, size)
        return bytes(self.body)

    def hang_up(self, connection: Connection) -> None:
        """Cut the connection; what it has not delivered of the question did not get through."""
        if connection.alive and self.header is None:
            with contextlib.suppress(OSError):  # reset by the client: nothing better is known than what was written
                self.sent = max(0, self.sent - sockets.unacknowledged_bytes(connection.stream))
        connection.cut()
