"""The server's talk with one client in one stage: a question, an answer, and what becomes of it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from testbed.arrays import Ids
from testbed.crashes import Crash
from testbed.errors import RunError
from testbed.network.live import frames as framing
from testbed.network.live.admission import Admission, Connection
from testbed.network.live.exchange import Exchange
from testbed.network.live.frames import FramingError, QuestionHeader
from testbed.network.live.links import ThrottledLinks
from testbed.network.live.stage_end import StageProgress
from testbed.network.live.throttle import sleep_until
from testbed.network.recorder import ANSWERED, DROPPED, REFUSED, SILENT


@dataclass(frozen=True)
class OutgoingQuestion:
    """What all clients are asked in a stage.

    Attributes:
        key: (round, number of the stage within it).
        name: of the question (`question_name`).
        common: the encoded common part.
        sent_s: when the stage began.
        last_announced: `(m,)` int64, see `Delivery`; None: up to the round before.
    """

    key: tuple[int, int]
    name: str
    common: bytes
    sent_s: float
    last_announced: Ids | None = None


class Conversation:
    """How the server talks to its clients.

    Args:
        admission: who is connected.
        links: what the bytes go through.
        clock: seconds since the run began.
        largest_answer: bytes that an answer may have.
        on_misbehaviour: told (client, one line) when a client has been cut off for what it sent.
        on_crash: told when a client's code has crashed; raises `RunError` if that is to end the run.
    """

    def __init__(
        self,
        admission: Admission,
        links: ThrottledLinks,
        clock: Callable[[], float],
        largest_answer: int,
        on_misbehaviour: Callable[[int, str], None],
        on_crash: Callable[[Crash], None],
    ) -> None:
        self._admission = admission
        self._links = links
        self._clock = clock
        self._largest_answer = largest_answer
        self._on_misbehaviour = on_misbehaviour
        self._on_crash = on_crash

    async def with_client(
        self,
        progress: StageProgress,
        exchange: Exchange,
        asked: OutgoingQuestion,
        private: bytes | None,
        speed_factor: float,
    ) -> None:
        """Ask, and tell `progress` what has become of it; if cancelled, the connection is cut where it stands."""
        ready_s = asked.sent_s if self._admission.is_connected(exchange.client) else None
        connection = await self._admission.connection(exchange.client)
        exchange.connected = True
        try:
            outcome = await self._talk(exchange, connection, asked, private, speed_factor, ready_s)
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
        except BaseException:  # told to stop
            exchange.hang_up(connection)
            raise
        else:
            connection.release()
            if outcome != SILENT:
                await asyncio.sleep(self._links.latency_s(exchange.client))
            progress.settle(exchange, outcome)

    async def _talk(
        self,
        exchange: Exchange,
        connection: Connection,
        asked: OutgoingQuestion,
        private: bytes | None,
        speed_factor: float,
        ready_s: float | None,
    ) -> int:
        """Question and answer; returns the outcome once the answer has been received (or never will be)."""
        client, links = exchange.client, self._links
        name = asked.name.encode()
        header = QuestionHeader(
            framing.LOSING if exchange.losing else framing.QUESTION, *asked.key, links.latency_s(client), speed_factor,
            len(name), len(asked.common), None if private is None else len(private),
            asked.key[0] - 1 if asked.last_announced is None else int(asked.last_announced[exchange.position]),
        )  # fmt: skip
        parts = (asked.common,) if private is None else (asked.common, private)
        way = links.downwards(client, sum(map(len, parts)), ready_s)
        await exchange.send_question(connection, header, name, parts, way)
        answer = await exchange.receive_header(connection, asked.key, self._largest_answer)
        await sleep_until(links.looked_up_s(client, self._clock(), answer.pki_up, answer.pki_down), self._clock)
        if answer.status in (framing.ANSWERED, framing.REFUSED):
            await exchange.receive_answer(connection, answer.length, links.upwards(client, answer.length))
            return ANSWERED if answer.status == framing.ANSWERED else REFUSED
        line = await exchange.receive_line(connection, answer.length)
        if answer.status == framing.FAILED:
            raise RunError(f"client {client}'s host cannot go on: {line.decode(errors='replace')}")
        if answer.status == framing.CRASHED:
            self._on_crash(Crash.decoded(client, line))
        return SILENT
