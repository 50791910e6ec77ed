"""The server's exchange with one client in one stage: a question, an answer, and the outcome."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from testbed.arrays import Ids
from testbed.errors import RunError
from testbed.network.exchanges import ANSWERED, DROPPED, REFUSED, SILENT
from testbed.network.live import wire
from testbed.network.live.admission import Admission, Connection
from testbed.network.live.links import ThrottledLinks, sleep_until
from testbed.network.live.reports import ClientReports
from testbed.network.live.stage import Exchange, LiveStageProgress
from testbed.network.live.windows import StageSenders
from testbed.network.live.wire import FramingError, QuestionHeader


@dataclass(frozen=True, kw_only=True)
class OutgoingQuestion:
    """The question of a stage.

    Attributes:
        key: (round, number of the stage within it).
        name: name of the question (`question_name`).
        common: the encoded common part.
        private: the encoded private part of each client; None: there are none.
        senders: connections and congestion windows of the stage.
        last_announced: `(m,)` int64, see `Delivery`; None: the previous round.
        cut_off_s: seconds of the longest stage so far in which answers were cut off.
    """

    key: tuple[int, int]
    name: str
    common: bytes
    private: Mapping[int, bytes] | None
    senders: StageSenders
    last_announced: Ids | None
    cut_off_s: float = 0.0

    def parts_for(self, client: int) -> tuple[bytes, ...]:
        """Return the encoded parts for one client, in the order in which they are sent."""
        return (self.common,) if self.private is None else (self.common, self.private[client])


class Conversation:
    """The server's exchanges with its clients.

    Args:
        admission: connected clients.
        links: throttled or real links.
        clock: seconds since the run began.
        largest_answer: maximum size of an answer, bytes.
        on_misbehaviour: called with (client, one line) when a client has been cut off because of invalid data.
        reports: validates the clients' reports about themselves.
    """

    def __init__(
        self,
        admission: Admission,
        links: ThrottledLinks,
        clock: Callable[[], float],
        *,
        largest_answer: int,
        on_misbehaviour: Callable[[int, str], None],
        reports: ClientReports,
    ) -> None:
        self._admission = admission
        self._links = links
        self._clock = clock
        self._largest_answer = largest_answer
        self._on_misbehaviour = on_misbehaviour
        self._reports = reports

    async def with_client(
        self, progress: LiveStageProgress, exchange: Exchange, question: OutgoingQuestion, speed_factor: float
    ) -> None:
        """Ask one client, and store the outcome in `progress`; if cancelled, cut the connection at once."""
        at_once = self._admission.is_connected(exchange.client)
        # A client that connects late cannot have been ready before; its delay is not the machine's.
        ready_s = question.senders.connected_s(exchange.position) if at_once else None
        connection = await self._admission.connection(exchange.client)
        exchange.connected = True
        try:
            outcome = await self._talk(exchange, connection, question, speed_factor, ready_s)
        except FramingError as error:
            exchange.hang_up(connection)
            self._on_misbehaviour(exchange.client, str(error))
            progress.settle(exchange, SILENT)
        except OSError:  # it has hung up, or its host has died
            exchange.hang_up(connection)
            progress.settle(exchange, DROPPED)
        except RunError as error:
            connection.cut()
            progress.fail(error)
        except BaseException:  # cancelled
            exchange.hang_up(connection)
            raise
        else:
            connection.release()
            if outcome != SILENT:
                # The connection is released before: the answer is on its way, and the client is free.
                await asyncio.sleep(self._links.latency_s(exchange.client))
            progress.settle(exchange, outcome)

    async def _talk(
        self,
        exchange: Exchange,
        connection: Connection,
        question: OutgoingQuestion,
        speed_factor: float,
        ready_s: float | None,
    ) -> int:
        """Question and answer; returns the outcome once the answer has been received (or never will be)."""
        client, links, senders = exchange.client, self._links, question.senders
        if senders.opening is not None:
            await sleep_until(senders.connected_s(exchange.position), self._clock)
        name, parts = question.name.encode(), question.parts_for(client)
        last_announced = question.last_announced
        header = QuestionHeader(
            kind=wire.LOSING if exchange.losing else wire.QUESTION,
            round_number=question.key[0],
            number=question.key[1],
            latency_s=links.latency_s(client),
            speed_factor=speed_factor,
            name_bytes=len(name),
            common_bytes=len(question.common),
            private_bytes=None if question.private is None else len(parts[1]),
            last_announced=question.key[0] - 1 if last_announced is None else int(last_announced[exchange.position]),
        )
        size, began_s = sum(map(len, parts)), self._clock()
        pacing = senders.question(exchange.position, size, began_s)
        passage = links.downwards(client, size, ready_s, pacing)
        await exchange.send_question(connection, header, name, parts, passage)
        # Client-made values are bounded before anything else uses them.
        answer = await exchange.receive_header(
            connection,
            question.key,
            self._largest_answer,
            lambda header: self._reports.bounded(header, self._clock() - began_s, speed_factor, question.cut_off_s),
        )
        await sleep_until(links.looked_up_s(client, self._clock(), answer.pki_up, answer.pki_down), self._clock)
        if answer.status in (wire.ANSWERED, wire.REFUSED):
            pacing = senders.answer(exchange.position, answer.length, self._clock())
            passage = links.upwards(client, answer.length, pacing)
            await exchange.receive_answer(connection, answer.length, passage)
            return ANSWERED if answer.status == wire.ANSWERED else REFUSED
        # Read in any case: the stream has to be at the end of a frame before the next question.
        await exchange.receive_line(connection, answer.length)
        if exchange.reports_crash:
            await self._reports.judge_crash(exchange, question.key)
        return SILENT
