"""`ask` on a virtual clock: work runs as fast as the machine allows, time is computed.

A stage for client i: server uplink share -> latency -> client downlink -> compute -> client uplink -> latency ->
server downlink share. The server's link is shared max-min fairly (`fluid`). The model's limits: a download and an
upload of one client do not overlap; a client that drops out in a stage uses no server downlink there; TCP's slow
start and loss are not modelled.
"""

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.availability import Availability
from testbed.cost import ComputeModel, Meter, metered, thread_cpu_s
from testbed.errors import ProtocolError
from testbed.links import ClientLinks
from testbed.messages import Message, detach, encode
from testbed.network.asking import Missing, Replies, ids
from testbed.network.fluid import transfer_finish
from testbed.network.hosting import Delivery, HostAnswers, Hosts, Ids

OUTCOMES = ("answered", "silent", "offline", "dropped", "late", "refused")
ANSWERED, SILENT, OFFLINE, DROPPED, LATE, REFUSED = range(6)


@dataclass(frozen=True)
class Exchanges:
    """One stage's record: arrays aligned by client (see `testbed.records`)."""

    stage: str
    as_participant: bool
    clients: Ids
    sent_s: float
    received_s: npt.NDArray[np.float64]  # NaN where no answer arrived
    bytes_down: Ids
    bytes_up: Ids
    pki_bytes_down: Ids
    pki_bytes_up: Ids
    compute_s: npt.NDArray[np.float64]
    outcome: npt.NDArray[np.int8]


@dataclass(frozen=True)
class Event:
    """Something worth a line: a refusal, a misbehaviour, a restart."""

    stage: str
    party: str
    kind: str
    detail: str


@dataclass(frozen=True)
class Timing:
    """What the server waits for.

    Attributes:
        deadline_s: seconds a stage lasts at most.
        stage_deadlines: stages with their own.
        disconnects_visible: the server learns at once that a client has gone, instead of by timeout.
    """

    deadline_s: float
    stage_deadlines: Mapping[str, float] = field(default_factory=dict)
    disconnects_visible: bool = False


class EmulatedNetwork:
    """The virtual clock and the network of one run.

    Args:
        hosts: where the clients run.
        links: the clients' and the server's links.
        speed_factors: `(n,)` compute slowdown per client.
        availability: who is reachable when, and who drops out where.
        timing: deadlines.
        compute: measured or modelled seconds.
        on_stage: called with (stage, virtual seconds) when a stage begins.
    """

    def __init__(
        self,
        hosts: Hosts,
        links: ClientLinks,
        speed_factors: npt.NDArray[np.float64],
        availability: Availability,
        timing: Timing,
        compute: ComputeModel,
        on_stage: Callable[[str, float], None] = lambda stage, now: None,
    ) -> None:
        self.hosts = hosts
        self.links = links
        self.speed_factors = speed_factors
        self.availability = availability
        self.timing = timing
        self.compute = compute
        self.on_stage = on_stage
        self.now_s = 0.0
        self.round_number = 0
        self._meter_scope: AbstractContextManager[Meter] | None = None
        self._begin_bookkeeping(0)

    def _begin_bookkeeping(self, round_number: int) -> None:
        self.round_number = round_number
        self.exchanges: list[Exchanges] = []
        self.events: list[Event] = []
        self.server_compute_s = 0.0
        self._gone = np.zeros(len(self.speed_factors), np.bool_)
        self._stage = "round"

    async def begin_round(self, round_number: int) -> None:
        """Start a round at the present virtual time: nobody has dropped out of it yet."""
        self._begin_bookkeeping(round_number)
        await self.hosts.begin_round(round_number)
        self._start_server_work()

    def end_round(self) -> None:
        """Account the server's work since the last stage."""
        self._finish_server_work()

    def record_event(self, party: str, kind: str, detail: str) -> None:
        """See `Network.record_event`."""
        self.events.append(Event(self._stage, party, kind, detail))

    # -- the server's own work between two stages ------------------------------------------------------------

    def _start_server_work(self) -> None:
        self._meter_scope = metered()
        self._meter = self._meter_scope.__enter__()
        self._cpu_mark_s = thread_cpu_s()

    def _finish_server_work(self) -> None:
        if self._meter_scope is None:
            return
        spent_s = self.compute.seconds(self._meter, thread_cpu_s() - self._cpu_mark_s)
        self._meter_scope.__exit__(None, None, None)
        self._meter_scope = None
        self.server_compute_s += spent_s
        self.now_s += spent_s

    async def _total(
        self, key: tuple[int, int], clients: Ids, weights: npt.NDArray[np.int64] | None
    ) -> npt.NDArray[Any]:
        """Sum vectors where they lie; the time counts as the server's, which in reality would sum them."""
        self._finish_server_work()
        summed, cpu_s = await self.hosts.total(key, clients, weights)
        operation = "ring.add.element" if weights is None else "float.add.element"
        counts = {operation: float(len(clients) * len(summed))}
        spent_s = cpu_s if self.compute.measured else self.compute.modelled_s(counts)
        self.server_compute_s += spent_s
        self.now_s += spent_s
        self._start_server_work()
        return summed

    # -- ask -------------------------------------------------------------------------------------------------

    async def ask(
        self,
        recipients: Ids,
        message: Message,
        *,
        private: Mapping[int, Message] | None = None,
        deadline_s: float | None = None,
        quorum: int | None = None,
    ) -> Replies:
        """See `Network.ask`."""
        kind = type(message)
        if kind.Answer is None or not kind.stage:
            raise ProtocolError(f"{kind.__name__} names no stage, or no type of answer")
        recipients = ids(recipients)
        detached = detach(message)
        sealed = {client: encode(part) for client, part in private.items()} if private is not None else None
        self._finish_server_work()
        self._stage = kind.stage
        self.on_stage(kind.stage, self.now_s)

        reachable = self._reachable(recipients)
        drops = reachable & self.availability.drops(self.round_number, kind.stage, recipients)
        working = recipients[reachable & ~drops]
        delivery = Delivery(
            (self.round_number, len(self.exchanges)), kind, detached.header, detached.vectors, working,
            None if sealed is None else {client: sealed[client] for client in working.tolist()},
        )  # fmt: skip
        answers = await self.hosts.deliver(delivery)
        stage = _Stage(recipients, kind, detached.size, sealed, answers)
        limit_s = self._deadline(kind.stage, deadline_s)
        stage.outcome[~reachable] = OFFLINE
        stage.outcome[drops] = DROPPED
        stage.bytes_down[~reachable] = 0
        self._time_transfers(stage)
        end_s = self._settle(stage, limit_s, quorum)
        self._keep_record(stage, answers)
        self.now_s = end_s
        replies = stage.replies(answers, self, delivery.key)
        self._start_server_work()
        return replies

    def _deadline(self, stage: str, deadline_s: float | None) -> float:
        if deadline_s is not None:
            return deadline_s
        return self.timing.stage_deadlines.get(stage, self.timing.deadline_s)

    def _reachable(self, recipients: Ids) -> npt.NDArray[np.bool_]:
        return self.availability.reachable(self.round_number, self.now_s, recipients) & ~self._gone[recipients]

    def _time_transfers(self, stage: "_Stage") -> None:
        """Fill `stage.arrival_s`: when each answer is complete at the server (infinite: never)."""
        links, who = self.links, stage.recipients
        on_the_way = stage.outcome != OFFLINE
        start_s = np.where(on_the_way, self.now_s, np.inf)
        received = transfer_finish(start_s, stage.bytes_down, links.down_bytes_s[who], links.server_up_bytes_s)
        ready = received + links.latency_s[who] + stage.compute_s * self.speed_factors[who]
        lookup = stage.pki_up + stage.pki_down > 0
        if lookup.any():
            ready = ready + lookup * (
                2 * links.latency_s[who]
                + stage.pki_up / links.up_bytes_s[who]
                + stage.pki_down / links.down_bytes_s[who]
            )
        uploads = np.isin(stage.outcome, (ANSWERED, REFUSED))
        start_up = np.where(uploads, ready, np.inf)
        complete = transfer_finish(start_up, stage.bytes_up, links.up_bytes_s[who], links.server_down_bytes_s)
        stage.arrival_s = complete + links.latency_s[who]

    def _settle(self, stage: "_Stage", limit_s: float, quorum: int | None) -> float:
        """Decide who is late; return when the stage ends (virtual seconds)."""
        started = self.now_s
        answering = stage.outcome == ANSWERED
        speaking = answering | (stage.outcome == REFUSED)  # a refusal arrives, too
        in_time = stage.arrival_s <= started + limit_s
        unheard = stage.outcome == SILENT
        if not self.timing.disconnects_visible:
            unheard = unheard | (stage.outcome == OFFLINE) | (stage.outcome == DROPPED)
        must_wait = bool(unheard.any() or (~in_time & speaking).any())
        heard = in_time & speaking
        last = float(stage.arrival_s[heard].max()) if heard.any() else started
        end_s = started + limit_s if must_wait else last
        arrivals = stage.arrival_s[answering & in_time]
        if quorum is not None and 0 < quorum <= len(arrivals):
            end_s = min(end_s, float(np.partition(arrivals, quorum - 1)[quorum - 1]))
        stage.outcome[speaking & (stage.arrival_s > end_s)] = LATE
        return end_s

    def _keep_record(self, stage: "_Stage", answers: HostAnswers) -> None:
        self._gone[stage.recipients[np.isin(stage.outcome, (DROPPED, OFFLINE))]] = True
        uploaded = np.isin(stage.outcome, (ANSWERED, REFUSED, LATE))
        self.exchanges.append(
            Exchanges(
                stage.kind.stage, stage.kind.as_participant, stage.recipients, self.now_s,
                np.where(np.isfinite(stage.arrival_s), stage.arrival_s, np.nan),
                stage.bytes_down, np.where(uploaded, stage.bytes_up, 0), stage.pki_down, stage.pki_up,
                stage.compute_s * self.speed_factors[stage.recipients], stage.outcome,
            )
        )  # fmt: skip
        for refusal in answers.refusals:
            self.record_event(f"client:{refusal.client}", "refusal", f"{refusal.check}: {refusal.detail}")
        for client, line in answers.failures:
            self.record_event(f"client:{client}", "crash", line)


class _Stage:
    """The arrays of one stage, aligned with its recipients."""

    def __init__(
        self,
        recipients: Ids,
        kind: type[Message],
        size: int,
        private: Mapping[int, bytes] | None,
        answers: HostAnswers,
    ) -> None:
        count = len(recipients)
        self.recipients = recipients
        self.kind = kind
        self.bytes_down = np.full(count, size, np.int64)
        if private is not None:
            self.bytes_down += np.fromiter((len(private[client]) for client in recipients.tolist()), np.int64, count)
        self.bytes_up = np.zeros(count, np.int64)
        self.pki_up = np.zeros(count, np.int64)
        self.pki_down = np.zeros(count, np.int64)
        self.compute_s = np.zeros(count)
        self.arrival_s = np.full(count, np.inf)
        self.outcome = np.full(count, SILENT, np.int8)
        self._place(answers)

    def _place(self, answers: HostAnswers) -> None:
        at = np.searchsorted(self.recipients, answers.clients)
        self.bytes_up[at] = answers.sizes
        self.compute_s[at] = answers.compute_s
        self.pki_up[at] = answers.pki_up
        self.pki_down[at] = answers.pki_down
        self.outcome[at[answers.answered]] = ANSWERED
        refused = np.fromiter((refusal.client for refusal in answers.refusals), np.int64)
        self.outcome[np.searchsorted(self.recipients, refused)] = REFUSED
        if answers.alike is not None:
            clients, _, size, compute_s = answers.alike
            at = np.searchsorted(self.recipients, clients)
            self.bytes_up[at] = size
            self.compute_s[at] = compute_s
            self.outcome[at] = ANSWERED

    def replies(self, answers: HostAnswers, network: EmulatedNetwork, key: tuple[int, int]) -> Replies:
        def who(outcome: int) -> Ids:
            return self.recipients[self.outcome == outcome]

        refused = who(REFUSED)
        in_time = set(refused.tolist())
        missing = Missing(
            offline=who(OFFLINE), dropped=who(DROPPED), late=who(LATE), refused=refused, silent=who(SILENT),
            refusals=tuple(refusal for refusal in answers.refusals if refusal.client in in_time),
        )  # fmt: skip
        assert self.kind.Answer is not None
        alike = answers.alike[1] if answers.alike is not None else None
        summing = functools.partial(network._total, key)
        return Replies(self.kind.Answer, who(ANSWERED), answers.headers, missing, summing, alike)
