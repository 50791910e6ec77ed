"""The live network: `ask` with real waiting and real bytes over TCP. Time is the wall clock.

    network = LiveNetwork(links, speed_factors, availability, timing, compute)
    address = await network.open()                  # clients: `LiveClients(host, address).start()`, anywhere
    await network.wait_for_clients(8, timeout_s=30)
    ...                                             # rounds, as on the virtual clock
    await network.close()

The semantics are those of the virtual clock (`EmulatedNetwork`): the same outcomes and bytes, and times that differ by
the overhead of machine, kernel and network. Both directions of a client's link, and the server's, are token buckets at
the server (`links`), which hold back the writing of questions and the reading of answers; a socket with small buffers
then holds back the client. So there is one clock, and a client need not know its link. A message's latency is a timer
at its receiver. Handshakes and congestion windows delay messages as in the model (`windows`). With
``throttled=False`` all of this is off: the real network is the link.

If a client leaves, its connection is cut at once. The same happens to all unfinished exchanges when the stage ends;
bytes that got through until then are counted. The client connects again on its own and takes part in the next stage.

An overloaded machine makes stages longer than links and devices would. A round in which such delays exceed `BEHIND_S`
and `BEHIND_SHARE` of its duration is `behind`, and an event is recorded.
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Mapping

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.crashes import OnCrash
from testbed.emulation.availability import Availability, Presence
from testbed.emulation.compute.cost import ComputeModel
from testbed.emulation.links import ClientLinks
from testbed.messages import Vector, encode, question_name
from testbed.network.contract import Ask, Replies, Timing
from testbed.network.exchanges import DROPPED, LATE, OFFLINE
from testbed.network.hosts import HostAnswers
from testbed.network.live import wire
from testbed.network.live.admission import STRANGERS, Admission
from testbed.network.live.conversation import Conversation, OutgoingQuestion
from testbed.network.live.links import RealLinks, ThrottledLinks, sleep_until
from testbed.network.live.reports import ClientReports, Confirming, unconfirmed
from testbed.network.live.stage import Exchange, LiveStageProgress, collected, summed
from testbed.network.live.windows import StageSenders
from testbed.network.live.wire import Address
from testbed.network.recorder import RecordingNetwork, Stage
from testbed.network.sums import Sum

RECONNECT_S = 2.0  # if disconnects are visible, a client without a connection for this long counts as gone
BEHIND_S, BEHIND_SHARE = 0.1, 0.05  # a round that the machine delays by more than this gets an event
STRANGERS_NOTED = 20  # per round


class LiveNetwork(RecordingNetwork):
    """The wall clock and the network of one run.

    Args:
        links, speed_factors, availability, timing, compute, on_stage, on_crash: see `RecordingNetwork`.
        listen_host: the name or address to listen on, under which clients reach it.
        throttled: emulate the links; False: the real network is the link.
        largest_answer: bytes; a client that announces more is cut off.
        before_round: awaited before each round, outside of the clock, e.g. to bring lost hosts back.
        confirming: asks a client's own host about a crash that the client reports (`reports`); default: nobody can say,
            and a reported crash costs the client alone.
    """

    def __init__(
        self,
        links: ClientLinks,
        speed_factors: Floats,
        availability: Availability,
        timing: Timing,
        compute: ComputeModel,
        on_stage: Callable[[str, float], None] = lambda stage, now: None,
        on_crash: OnCrash = "stop",
        *,
        listen_host: str = "127.0.0.1",
        throttled: bool = True,
        largest_answer: int = wire.LARGEST_PART,
        before_round: Callable[[int], Awaitable[None]] | None = None,
        confirming: Confirming = unconfirmed,
    ) -> None:
        self._base_s = 0.0
        self._running_since: float | None = None
        super().__init__(links, speed_factors, availability, timing, compute, on_stage, on_crash)
        self.before_round = before_round
        self._listen_host = listen_host
        self._throttled = throttled
        self._carrying = (ThrottledLinks if throttled else RealLinks)(links, self._clock)
        self._admission = Admission(len(speed_factors), self._turned_away)
        self._reports = ClientReports(confirming, self._check, len(speed_factors), self._misbehaves)
        self._conversation = Conversation(
            self._admission,
            self._carrying,
            self._clock,
            largest_answer=largest_answer,
            on_misbehaviour=self._misbehaves,
            reports=self._reports,
        )
        self._cut_off_s = 0.0
        self._server_busy_until_s = 0.0
        self._strangers = 0

    # -- connections -----------------------------------------------------------------------------------------

    async def open(self) -> Address:
        """Begin to listen; return the address that clients need to connect. Raises `ClusterError`."""
        wire.allow(len(self.speed_factors) + STRANGERS)
        return await self._admission.open(self._listen_host, small_buffers=self._throttled)

    async def wait_for_clients(self, count: int, timeout_s: float) -> None:
        """Wait until `count` clients are connected; raises `ClusterError` after `timeout_s`."""
        await self._admission.wait_for(count, timeout_s)

    @property
    def connected(self) -> int:
        """How many clients are connected."""
        return len(self._admission)

    async def close(self) -> None:
        """Tell the clients that the run is over and stop listening."""
        await self._admission.close()

    def _misbehaves(self, client: int, line: str) -> None:
        self.record_event(f"client:{client}", "misbehaviour", line)

    def _turned_away(self, line: str) -> None:
        self._strangers += 1
        if self._strangers <= STRANGERS_NOTED:
            self.record_event("stranger", "misbehaviour", line)

    # -- the clock -------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Seconds of all rounds so far; may be set between rounds (a resumed run)."""
        return self._clock()

    @now_s.setter
    def now_s(self, value: float) -> None:
        self._base_s = value
        if self._running_since is not None:
            self._running_since = time.monotonic()

    def _clock(self) -> float:
        since = self._running_since
        return self._base_s if since is None else self._base_s + (time.monotonic() - since)

    async def begin_round(self, round_number: int) -> None:
        """Start a round; the clock runs from now on."""
        await super().begin_round(round_number)
        self._strangers = 0
        if self.before_round is not None:
            await self.before_round(round_number)
        self._running_since = time.monotonic()
        self._round_began_s = self._clock()
        self._most_behind = (0.0, "")
        self._start_server_work()

    async def pause(self, seconds: float) -> None:
        """Wait between two rounds."""
        await asyncio.sleep(seconds)
        await super().pause(seconds)

    def end_round(self) -> None:
        """Account the server's work since the last stage, and stop the clock."""
        self._finish_server_work()
        self._tell_behind()
        super().end_round()
        # The clock stands still until the next round: evaluation does not count, as on the virtual clock.
        self._base_s = max(self._clock(), self._server_busy_until_s)
        self._running_since = None

    def _start_server_work(self) -> None:
        self._work_began_s = self._clock()
        super()._start_server_work()

    def _server_worked(self, spent_s: float) -> None:
        super()._server_worked(spent_s)
        # Modelled work may take longer than the real work here: the next question waits for it.
        self._server_busy_until_s = self._work_began_s + spent_s
        self._fall_behind("the server's work", max(0.0, self._clock() - self._server_busy_until_s))

    async def consult_beacon(self, bytes_up: int, bytes_down: int, round_trip_s: float) -> None:
        """See `Network.consult_beacon`: the beacon answers in this process, and its time is waited for."""
        self._finish_server_work()
        takes_s = round_trip_s + self._beacon_asked(bytes_up, bytes_down)
        await sleep_until(max(self._server_busy_until_s, self._clock()) + takes_s, self._clock)
        self._start_server_work()

    # -- asking ----------------------------------------------------------------------------------------------

    async def _ask(self, call: Ask) -> Replies:
        kind, recipients, private = call.kind, call.recipients, call.encoded_private()
        common = encode(call.message)
        self._finish_server_work()
        # With modelled compute, the modelled seconds must pass in real time before the next question.
        await sleep_until(self._server_busy_until_s, self._clock)
        self._stage = kind.stage
        sent_s = self._clock()
        self.on_stage(kind.stage, sent_s)

        stage = Stage(kind, recipients, len(common), private, len(self.exchanges))
        presence = self._presence(recipients)
        progress = LiveStageProgress(
            stage,
            presence,
            quorum=self.timing.quorum(kind.stage, call.quorum, len(recipients)),
            disconnects_visible=self.timing.disconnects_visible,
            clock=self._clock,
        )
        key = (self.round_number, stage.number)
        there = np.flatnonzero(presence.reachable)
        senders = StageSenders(self.connections if self._throttled else None, key, sent_s, recipients, there)
        question = OutgoingQuestion(
            key=key,
            name=question_name(kind),
            common=common,
            private=private,
            senders=senders,
            last_announced=self._last_announced(kind, recipients),
            cut_off_s=self._cut_off_s,
        )
        await self._run(progress, presence, question, sent_s + self.timing.limit_s(kind.stage, call.deadline_s))
        end_s = self._clock()
        # A crash must stop the run even if the stage ended before its report was judged.
        await self._reports.judge_late_crashes(progress.exchanges, key)
        self._start_server_work()
        answers, vectors = collected(kind, progress.exchanges)
        if len(stage.who(LATE)):
            # Bounds the delay that a host may report with its next answer.
            self._cut_off_s = max(self._cut_off_s, end_s - sent_s)
        self._place(stage, progress, answers, senders)
        if senders.opening is not None:
            elapsed_s = np.minimum(presence.leaves_s, end_s) - sent_s
            self._count_opening(stage, progress, senders.opening.carried(elapsed_s))
            self.connections.record_handshakes(recipients, senders.opening, end_s - sent_s)
        self.connections.close(stage.who(OFFLINE, DROPPED))
        self._keep_record(stage, answers, sent_s)
        got_it = [exchange.position for exchange in progress.exchanges if exchange.delivered and not exchange.losing]
        # Counted as refusals: a server that does not wait for them must not move clients to a number that they refuse.
        cut_off = [exchange.client for exchange in progress.exchanges if exchange.may_have_refused]
        self._note_announced(call.message, recipients, np.isin(np.arange(len(recipients)), got_it), answers, cut_off)
        summing, gathering = functools.partial(self._total, vectors), functools.partial(self._gathered, vectors)
        return stage.replies(answers, summing, gathering, sent_s, end_s)

    async def _run(
        self, progress: LiveStageProgress, presence: Presence, question: OutgoingQuestion, last_s: float
    ) -> None:
        """Run the stage until it ends; then stop all exchanges that are still in progress."""
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        timers = [loop.call_later(max(0.0, last_s - self._clock()), progress.end)]
        try:
            if not progress.over.done():
                for exchange in progress.exchanges:
                    speed_factor = float(self.speed_factors[exchange.client])
                    task = loop.create_task(self._conversation.with_client(progress, exchange, question, speed_factor))
                    tasks.append(task)
                    timers += self._departure(progress, exchange, task, float(presence.leaves_s[exchange.position]))
                if self.timing.disconnects_visible:
                    timers.append(loop.call_later(RECONNECT_S, self._give_up, progress))
            await progress.over
        finally:
            for timer in timers:
                timer.cancel()
            for task in tasks:
                task.cancel()
            # Cancelled tasks cut their connections; the bytes that got through are final only after that.
            await asyncio.gather(*tasks, return_exceptions=True)
        progress.close()

    def _departure(
        self, progress: LiveStageProgress, exchange: Exchange, task: asyncio.Task[None], leaves_s: float
    ) -> list[asyncio.TimerHandle]:
        """Schedule the client's departure at `leaves_s`: messages sent less than a latency before do not reach it."""
        if leaves_s == np.inf:
            return []

        def stop_sending() -> None:
            if not exchange.delivered:
                task.cancel()

        def leave() -> None:
            if exchange.body is None:
                task.cancel()
            if exchange.body is None or not progress.pending(exchange):  # else its answer is complete, and on its way
                progress.leaves(exchange)

        loop, left_s = asyncio.get_running_loop(), leaves_s - self._clock()
        return [
            loop.call_later(max(0.0, left_s - self._carrying.latency_s(exchange.client)), stop_sending),
            loop.call_later(max(0.0, left_s), leave),
        ]

    @staticmethod
    def _give_up(progress: LiveStageProgress) -> None:
        """Give up clients whose host has died, if disconnects are visible."""
        for exchange in progress.exchanges:
            if not exchange.connected:
                progress.settle(exchange, OFFLINE)

    def _place(self, stage: Stage, progress: LiveStageProgress, answers: HostAnswers, senders: StageSenders) -> None:
        """Store the clients' reactions and the bytes that got through."""
        outcome = stage.outcome.copy()
        stage.place(answers)
        # Outcomes were settled as things happened; `place` would overwrite late and dropped ones.
        stage.outcome = outcome
        for exchange in progress.exchanges:
            stage.bytes_down[exchange.position] = min(exchange.bytes_sent, stage.size_down[exchange.position])
            stage.bytes_up[exchange.position] = exchange.received
        headers_down, acknowledged_up = self._overhead(stage.bytes_down, stage.size_down, senders.resent_down)
        headers_up, acknowledged_down = self._overhead(stage.bytes_up, stage.size_up, senders.resent_up)
        stage.transport_down, stage.transport_up = headers_down + acknowledged_down, headers_up + acknowledged_up
        # Clients wait at the same time, so the largest delay counts, not the sum. It is a lower bound: a message that
        # waits unread in a socket because a process is busy is not noticed.
        slowest = max(progress.exchanges, key=lambda exchange: exchange.behind_s, default=None)
        if slowest is not None:
            self._fall_behind(stage.kind.stage, slowest.behind_s)

    @staticmethod
    def _count_opening(stage: Stage, progress: LiveStageProgress, size: tuple[Ids, Ids]) -> None:
        """Enter the bytes of handshakes, `(m,)` down and up, of clients that are there."""
        there = np.array([exchange.position for exchange in progress.exchanges if exchange.connected], np.int64)
        stage.transport_down[there] += size[0][there]
        stage.transport_up[there] += size[1][there]

    def _fall_behind(self, what: str, seconds: float) -> None:
        """Record that the machine has delayed `what` by this many seconds."""
        self.behind_s += seconds
        self._most_behind = max(self._most_behind, (seconds, what))

    def _tell_behind(self) -> None:
        lasted_s = self._clock() - self._round_began_s
        self.behind_s = min(self.behind_s, lasted_s)  # clients say a part of it themselves
        if self.behind_s > max(BEHIND_S, BEHIND_SHARE * lasted_s):
            line = f"{self.behind_s:.2f} of {lasted_s:.2f} s were the machine's, and not those of links and devices"
            self.record_event("machine", "behind-schedule", f"{line}; most at {self._most_behind[1]}")

    def _overhead(self, carried: Ids, size: Ids, resent: Floats) -> tuple[Ids, Ids]:
        """Return the overhead of `carried` of `size` bytes, and acknowledgements in return, as on the virtual clock."""
        share = np.divide(carried, size, out=np.zeros(len(size)), where=size > 0)
        there, back = self.links.transport.overhead(size)
        return (
            np.floor(there * share).astype(np.int64) + np.rint(resent).astype(np.int64),
            np.floor(back * share).astype(np.int64),
        )

    # -- sums ------------------------------------------------------------------------------------------------

    async def _total(self, vectors: Mapping[int, Vector], clients: Ids, weights: npt.NDArray[np.int64] | None) -> Sum:
        """Sum the vectors that have really arrived; it is the server's work, and takes its time."""
        return summed(vectors, clients, weights)

    async def _gathered(self, vectors: Mapping[int, Vector], clients: Ids) -> Mapping[int, Vector]:
        """Some of the vectors that have arrived."""
        return {client: vectors[client] for client in clients.tolist()}
