"""`ask` on a virtual clock: work runs as fast as the machine allows, and time is computed.

A stage of client i: server uplink share -> latency -> client downlink -> compute -> client uplink -> latency ->
server downlink share. The server's link is shared max-min fairly (`fair_sharing`). Transfers include the transport's
headers. A client that goes offline stops sending and receiving at that moment, and all clients stop when the stage
ends; bytes that are through by then are counted. Clients without a connection connect first, and congestion windows
hold messages back (`connections`). Limit of the model: the download and the upload of one client never overlap.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.crashes import OnCrash
from testbed.emulation.availability import Availability, Presence
from testbed.emulation.compute.cost import ComputeModel
from testbed.emulation.links import ClientLinks
from testbed.emulation.links.rates import Rates
from testbed.messages import Vector, detach
from testbed.network.client_groups import FEW_CLIENTS, ClientGroups, classes, is_among
from testbed.network.connections import DOWN, UP, Opening, SendSchedule, stage_word
from testbed.network.contract import Ask, Gathering, Replies, Summing, Timing
from testbed.network.exchanges import ANSWERED, DROPPED, LATE, OFFLINE, REFUSED, SILENT
from testbed.network.fair_sharing.transfers import transfer
from testbed.network.hosts import Delivery, HostAnswers, Hosts
from testbed.network.recorder import RecordingNetwork, Stage
from testbed.network.sums import Sum


@dataclass(frozen=True, eq=False)
class _TransferOutcome:
    """The outcome of transfers: completion times, and bytes of payload, headers and acknowledgements in return."""

    finish_s: Floats
    payload: Ids
    headers: Ids
    acknowledgements: Ids


@dataclass(eq=False)
class _StageTransfers:
    """The connections and schedules of a stage's messages, computed once and reused when the stage is timed again.

    Attributes:
        word: number that identifies the stage.
        opening: cost of connecting all recipients; None if there is none.
        plans: schedules of questions and answers, by direction; None: nothing holds them back.
        begin_s: `(m,)` seconds at which the messages with a schedule begin, by direction; infinite: never.
        through_s: `(m,)` seconds at which their last byte is through if nothing stops it, by direction.
    """

    word: int
    opening: Opening | None = None
    plans: dict[int, SendSchedule | None] = field(default_factory=dict)
    begin_s: dict[int, Floats] = field(default_factory=dict)
    through_s: dict[int, Floats] = field(default_factory=dict)


class EmulatedNetwork(RecordingNetwork):
    """The virtual clock and the network of one run.

    Args:
        hosts: where the clients run.
        links, speed_factors, availability, timing, compute, on_stage, on_crash: see `RecordingNetwork`.
    """

    def __init__(
        self,
        hosts: Hosts,
        links: ClientLinks,
        speed_factors: Floats,
        availability: Availability,
        timing: Timing,
        compute: ComputeModel,
        on_stage: Callable[[str, float], None] = lambda stage, now: None,
        on_crash: OnCrash = "stop",
    ) -> None:
        super().__init__(links, speed_factors, availability, timing, compute, on_stage, on_crash)
        self.hosts = hosts

    async def begin_round(self, round_number: int) -> None:
        """Start a round at the present virtual time."""
        await super().begin_round(round_number)
        await self.hosts.begin_round(round_number)
        self._start_server_work()

    def _server_worked(self, spent_s: float) -> None:
        super()._server_worked(spent_s)
        # The stage that follows begins only when the server's own work is done.
        self.now_s += spent_s

    async def consult_beacon(self, bytes_up: int, bytes_down: int, round_trip_s: float) -> None:
        """See `Network.consult_beacon`."""
        self._finish_server_work()
        self.now_s += round_trip_s + self._beacon_asked(bytes_up, bytes_down)
        self._start_server_work()

    async def _total(self, key: tuple[int, int], clients: Ids, weights: npt.NDArray[np.int64] | None) -> Sum:
        """Sum vectors where they lie; the time counts as the server's, which in reality would sum them."""
        self._finish_server_work()
        summed, cpu_s = await self.hosts.total(key, clients, weights)
        operation = "ring.add.element" if weights is None else "float.add.element"
        counts = {operation: float(len(clients) * len(summed))}
        self._server_worked(cpu_s if self.compute.measured else self.compute.modelled_s(counts))
        self._start_server_work()
        return summed

    async def _gathered(self, key: tuple[int, int], clients: Ids) -> Mapping[int, Vector]:
        """Return the vectors; moving them between processes of the testbed is not charged to any party."""
        self._finish_server_work()
        vectors = await self.hosts.vectors(key, clients)
        self._start_server_work()
        return vectors

    def _vectors_at(self, key: tuple[int, int]) -> tuple[Summing, Gathering]:
        """Return the functions that sum the vectors of a stage, and that move them to this process."""
        return functools.partial(self._total, key), functools.partial(self._gathered, key)

    async def _ask(self, call: Ask) -> Replies:
        """Run the handlers of all that are there, and then compute when each answer arrives and the stage ends."""
        kind, recipients, private = call.kind, call.recipients, call.encoded_private()
        detached = detach(call.message)
        self._finish_server_work()
        self._stage = kind.stage
        self.on_stage(kind.stage, self.now_s)

        # Numbers the stages of the round, as each ended stage is one record.
        number = len(self.exchanges)
        presence = self._presence(recipients)
        stays = presence.reachable & ~presence.drops
        working = recipients if stays.all() else recipients[stays]
        delivery = Delivery(
            key=(self.round_number, number),
            kind=kind,
            header=detached.header,
            vectors=detached.vectors,
            recipients=working,
            private=None if private is None else {client: private[client] for client in working.tolist()},
            last_announced=self._last_announced(kind, working),
        )
        # Handlers run first: the sizes of answers and the seconds of work decide all times.
        answers = await self.hosts.deliver(delivery)
        self._check(answers.crashes)
        self._note_announced(call.message, recipients, stays, answers)
        # Private parts differ in size and content, so no two clients are alike.
        kinds = None if private is not None else self._kinds(recipients, presence, detached.size, answers)
        stage = Stage(kind, recipients, detached.size, private, number, kinds)
        stage.place(answers)
        presence = presence.take(stage.kinds.first)
        stage.outcome[~presence.reachable] = OFFLINE
        stage.outcome[presence.drops] = DROPPED
        limit_s = self.timing.limit_s(kind.stage, call.deadline_s)
        quorum = self.timing.quorum(kind.stage, call.quorum, len(recipients))
        end_s = self._run_clock(stage, presence, limit_s, quorum)
        self._keep_record(stage, answers, self.now_s)
        replies = stage.replies(answers, *self._vectors_at(delivery.key), self.now_s, end_s)
        self.now_s = end_s
        self._start_server_work()
        return replies

    @functools.cached_property
    def _classes(self) -> npt.NDArray[np.uint32] | None:
        """`(n,)` clients of one class have the same links and devices; None: they differ."""
        return classes([*self.links.columns, self.speed_factors])

    def _kinds(self, clients: Ids, presence: Presence, size: int, answers: HostAnswers) -> ClientGroups | None:
        """Group the `(m,)` clients that fare alike; None if grouping does not pay, or if all clients differ.

        A client that answers on its own, leaves, or is in a handshake is its own group.
        """
        shared = answers.shared
        largest = max(size, 0 if shared is None else shared.size, int(answers.sizes.max(initial=0)))
        if 4 * len(answers.clients) > len(clients) or len(clients) < FEW_CLIENTS:
            return None
        if self.connections.differ(largest) or self._classes is None:
            return None
        connected, connecting = self.connections.state(clients, self.now_s)
        single = connecting | (presence.leaves_s < np.inf)
        single[np.searchsorted(clients, answers.clients)] = True
        answering = np.zeros(len(clients), np.bool_) if shared is None else is_among(clients, shared.clients)
        class_of = self._classes if len(clients) == len(self._classes) else self._classes[clients]
        return ClientGroups.of(clients, [class_of, presence.reachable, presence.drops, answering, connected], single)

    def _run_clock(self, stage: Stage, presence: Presence, limit_s: float, quorum: int | None) -> float:
        """Fill in arrival times, dropouts and stragglers; return the end of the stage in virtual seconds."""
        last_s, leaving = self.now_s + limit_s, self._connected(stage, presence)
        self._time_transfers(stage, presence, last_s, np.ones(len(stage.recipients), np.bool_), leaving)
        end_s = self._end_of(stage, presence, last_s, quorum)
        unheard = presence.reachable & ~presence.drops & ~(stage.arrival_s <= end_s)
        gone = unheard & (presence.leaves_s <= end_s)
        # A silent client has no answer to lose: it has dropped out only if it left before it was ready.
        dropped = gone & np.where(stage.outcome == SILENT, stage.ready_s > presence.leaves_s, stage.arrival_s == np.inf)
        late = unheard & ~dropped & (stage.outcome != SILENT)
        under_way = presence.reachable & ~(stage.arrival_s <= end_s) & (_speaking(stage) | (stage.ready_s > end_s))
        if under_way.any() and end_s < last_s:  # the quorum ends the stage: remaining transfers stop now
            self._time_transfers(stage, presence, end_s, under_way, leaving)
        if leaving.opening is not None:
            self.connections.record_handshakes(stage.recipients, leaving.opening, end_s - self.now_s)
        # After the handshakes are recorded for the examples, and before clients that left are disconnected.
        self.connections.same_for_all(stage.kinds)
        for way, plan in leaving.plans.items():
            if plan is not None:
                through_s = np.where(leaving.begin_s[way] < end_s, leaving.through_s[way], np.nan)
                self.connections.record_sent(way, stage.recipients, plan, through_s, end_s)
        stage.outcome[dropped], stage.outcome[late] = DROPPED, LATE
        for cost in (stage.compute_s, stage.pki_up, stage.pki_down):
            # Handlers have run in advance, even of clients that the question did not reach.
            cost[~np.isfinite(stage.ready_s)] = 0  # the question never arrived whole
        stage.arrival_s[unheard] = np.inf
        self.connections.close(stage.who(OFFLINE, DROPPED))
        return end_s

    def _connected(self, stage: Stage, presence: Presence) -> _StageTransfers:
        """Connect the clients that are reachable."""
        there, word = np.flatnonzero(presence.reachable), stage_word(self.round_number, stage.number)
        self.connections.begin_stage(stage.kinds.members(presence.reachable))  # all of each kind
        opening = self.connections.open(stage.recipients[there], self.now_s, word)
        return _StageTransfers(word, None if opening is None else opening.spread(there, len(stage.recipients)))

    def _time_transfers(
        self, stage: Stage, presence: Presence, end_s: float, whose: npt.NDArray[np.bool_], leaving: _StageTransfers
    ) -> None:
        """Fill in completion times of answers and delivered bytes, for transfers that all stop at `end_s`.

        Transfers of all clients are computed; only the results of the clients in the mask `whose`, `(m,)`, are stored.
        Transfers on the server's link are timed at the server: a client's link is one latency ahead (upwards) or
        behind.
        """
        links, who = self.links, stage.recipients
        down, up, latency_s = links.down.take(who), links.up.take(who), links.latency_at(self.now_s, who)
        connected_s = self.now_s if leaving.opening is None else self.now_s + leaving.opening.delay_s
        questions = self._carried(
            DOWN,
            stage,
            leaving,
            start_s=np.where(presence.reachable, connected_s, np.inf),
            size=stage.size_down,
            rates=down.delayed(-latency_s),
            capacity_bytes_s=links.server_up_bytes_s,
            stop_s=np.minimum(presence.leaves_s - latency_s, end_s),
        )
        ready = questions.finish_s + latency_s + stage.compute_s * self.speed_factors[who]
        asks_pki = stage.pki_up + stage.pki_down > 0
        if asks_pki.any():
            # The PKI is not behind the server's link: look-ups share it with nobody.
            looked_up = up.time_to_send(ready, stage.pki_up) + latency_s
            ready = np.where(asks_pki, down.time_to_send(looked_up, stage.pki_down) + latency_s, ready)
        speaks = _speaking(stage)
        answers = self._carried(
            UP,
            stage,
            leaving,
            start_s=np.where(speaks, ready + latency_s, np.inf),
            size=np.where(speaks, stage.size_up, 0),
            rates=up.delayed(latency_s),
            capacity_bytes_s=links.server_down_bytes_s,
            stop_s=np.minimum(presence.leaves_s + latency_s, end_s),
        )
        for column, result in (
            (stage.ready_s, ready),
            (stage.arrival_s, answers.finish_s),
            (stage.bytes_down, questions.payload),
            (stage.bytes_up, answers.payload),
            (stage.transport_down, questions.headers + answers.acknowledgements),
            (stage.transport_up, answers.headers + questions.acknowledgements),
        ):
            np.copyto(column, result, where=whose)
        if leaving.opening is not None:
            opened = leaving.opening.carried(np.minimum(presence.leaves_s, end_s) - self.now_s)
            for column, size in zip((stage.transport_down, stage.transport_up), opened, strict=True):
                np.add(column, size, out=column, where=whose)

    def _carried(
        self,
        way: int,
        stage: Stage,
        leaving: _StageTransfers,
        *,
        start_s: Floats,
        size: Ids,
        rates: Rates,
        capacity_bytes_s: float,
        stop_s: Floats,
    ) -> _TransferOutcome:
        """Transfer messages over the shared link, with headers and retransmissions."""
        headers, acknowledgements = self.links.transport.overhead(size)
        whole = size + headers
        first = way not in leaving.plans
        if first:
            # Once per stage: the second timing stops transfers earlier, but does not change how they are sent.
            leaving.plans[way] = self.connections.plan(
                way, stage.recipients, self.now_s, start_s, size, whole, leaving.word | 1 + way
            )
        plan = leaving.plans[way]
        total_bytes = whole.astype(np.float64) if plan is None else plan.flights.total_bytes
        headers = headers if plan is None else headers + plan.resent(whole)
        flights = None if plan is None else plan.flights
        carried = transfer(start_s, total_bytes, rates, capacity_bytes_s, stop_s, flights, stage.kinds.count)
        if first and plan is not None:
            leaving.begin_s[way], leaving.through_s[way] = start_s, carried.finish_s
        share = np.divide(carried.delivered_bytes, total_bytes, out=np.zeros(len(size)), where=total_bytes > 0)
        parts = (np.floor(of * share).astype(np.int64) for of in (size, headers, acknowledgements))
        return _TransferOutcome(carried.finish_s, *parts)

    def _end_of(self, stage: Stage, presence: Presence, last_s: float, quorum: int | None) -> float:
        """Return when the server continues: at the last answer or visible departure, at the quorum, or at `last_s`."""
        there = presence.reachable & ~presence.drops
        arrived = stage.arrival_s <= last_s  # a refusal arrives, too
        left = there & ~arrived & (presence.leaves_s <= last_s)
        unheard, heard_of = there & ~arrived & ~left, stage.arrival_s[arrived]
        if self.timing.disconnects_visible:
            heard_of = np.concatenate((heard_of, presence.leaves_s[left]))
        else:
            # The server cannot tell these clients from slow ones, and waits for them until the deadline.
            unheard |= left | ~there
        end_s = last_s if unheard.any() else float(heard_of.max(initial=self.now_s))
        answered = arrived & (stage.outcome == ANSWERED)
        arrivals, count = stage.arrival_s[answered], stage.kinds.count[answered]
        if quorum is not None and 0 < quorum <= count.sum():
            order = np.argsort(arrivals)
            end_s = min(end_s, float(arrivals[order][np.searchsorted(np.cumsum(count[order]), quorum)]))
        return end_s


def _speaking(stage: Stage) -> npt.NDArray[np.bool_]:
    """Return the `(m,)` mask of the clients that send an answer or a refusal."""
    return np.isin(stage.outcome, (ANSWERED, REFUSED))
