"""The base class of all networks: it records a round's exchanges by stage, events, server work and dropouts.

The records of one round are kept in memory. `testbed.engine.recorder` turns them into rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids, compress_constant
from testbed.crashes import Crash, OnCrash
from testbed.emulation.availability import Availability, Presence
from testbed.emulation.compute.cost import ComputeModel, Meter, metered, thread_cpu_s
from testbed.emulation.links import ClientLinks, Transport
from testbed.memory import ArrayGroup, ArrayName, Memory
from testbed.messages import Message
from testbed.network.announced_rounds import AnnouncedRounds
from testbed.network.client_groups import ClientGroups, is_among
from testbed.network.connections import Connections
from testbed.network.contract import Gathering, Missing, Replies, RoundNetwork, Summing, Timing, ids
from testbed.network.exchanges import ANSWERED, DROPPED, LATE, OFFLINE, REFUSED, SILENT, Exchanges, ExchangesOfKinds
from testbed.network.hosts import HostAnswers

_ANNOUNCED = ArrayName("rounds heard of")  # see `AnnouncedRounds`
_CONNECTIONS = ArrayGroup("connections: ")  # of `Connections`


@dataclass(frozen=True)
class Event:
    """Something worth a line: a refusal, a misbehaviour, a restart."""

    stage: str
    party: str
    kind: str
    detail: str


class RecordingNetwork(RoundNetwork):
    """The records of one round at a time; subclasses implement `_ask`.

    Args:
        links: the clients' and the server's links.
        speed_factors: `(n,)` compute slowdown per client.
        availability: model of availability and dropout.
        timing: deadlines and quorums.
        compute: measured or modelled seconds.
        on_stage: called with (stage, seconds) when a stage begins.
        on_crash: reaction to a crash of a client's code: the run ends, unless this is "drop".

    Attributes:
        crashes: crashes of clients' code in this round, each with its stage.
        server_compute_s: seconds of the server's own work in this round.
        server_work: the same seconds by stage: the work between the end of the stage and the next one; the work before
            the first stage is under "round".
        behind_s: seconds by which this round exceeds the time of links and devices because the machine is too slow; 0
            on the virtual clock.
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
    ) -> None:
        self.links = links
        self.speed_factors = compress_constant(speed_factors)
        self.availability = availability
        self.timing = timing
        self.compute = compute
        self.on_stage = on_stage
        self.on_crash = on_crash
        self.now_s = 0.0
        self._meter_scope: AbstractContextManager[Meter] | None = None
        self._between_rounds: list[Event] = []
        self.announced_rounds = AnnouncedRounds(len(speed_factors))
        self.connections = Connections(links)
        self._open_round(0)
        self._in_round = False

    def _open_round(self, round_number: int) -> None:
        self.round_number = round_number
        self._in_round = True
        self.exchanges: list[Exchanges] = []
        self.events: list[Event] = self._between_rounds  # events since the last round belong to this round
        self._between_rounds = []
        self.crashes: list[tuple[str, Crash]] = []
        self.behind_s = 0.0
        self.server_compute_s = 0.0
        self.server_work: dict[str, float] = {}
        self.beacon_bytes_up = self.beacon_bytes_down = 0
        self._gone = np.zeros(len(self.speed_factors), np.bool_)
        self._stage = "round"

    async def begin_round(self, round_number: int) -> None:
        """Start a round at the present time: nobody has dropped out of it yet."""
        self._open_round(round_number)
        self.announced_rounds.begin_round(round_number)
        self.connections.begin_round()

    def to_checkpoint(self, round_number: int) -> Memory:
        """Return the network state that a run resumed after this round needs."""
        state = _CONNECTIONS.named(self.connections.to_checkpoint())
        if (announced := self.announced_rounds.to_checkpoint(round_number)) is not None:
            state[_ANNOUNCED] = announced
        return state

    def restore(self, memory: Memory) -> None:
        """Restore the state that `to_checkpoint` returned, and remove it from `memory`."""
        if (announced := memory.pop(_ANNOUNCED, None)) is not None:
            self.announced_rounds.restore(announced)
        self.connections.restore(_CONNECTIONS.take(memory))

    async def pause(self, seconds: float) -> None:
        """Let time pass between two rounds."""
        self.now_s += seconds

    def end_round(self) -> None:
        """Account the server's work since the last stage."""
        self._finish_server_work()
        self._in_round = False

    def record_event(self, party: str, kind: str, detail: str, stage: str | None = None) -> None:
        """See `Network.record_event`."""
        if self._in_round:
            self.events.append(Event(stage or self._stage, party, kind, detail))
        else:
            self._between_rounds.append(Event("between rounds", party, kind, detail))

    def _record_answers(self, answers: HostAnswers) -> None:
        """Record the events of answers: attacks, refusals and crashed handlers."""
        for client, line in answers.attacks:
            self.record_event(f"client:{client}", "attack", line)
        for refusal in answers.refusals:
            self.record_event(f"client:{refusal.client}", "refusal", f"{refusal.check}: {refusal.detail}")
        for crash in answers.crashes:
            self.record_event(f"client:{crash.client}", "crash", crash.detail)
            self.crashes.append((self._stage, crash))

    def _check(self, crashes: Sequence[Crash]) -> None:
        """Raise `CodeCrashed` when a client's code has crashed, and that is to end the run."""
        if crashes and self.on_crash != "drop":
            raise crashes[0].stopping(self.round_number, self._stage) from crashes[0].cause

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
        self._server_worked(spent_s)

    def _server_worked(self, spent_s: float) -> None:
        """Account `spent_s` seconds of the server's work; a network with a virtual clock also advances the clock."""
        self.server_compute_s += spent_s
        self.server_work[self._stage] = self.server_work.get(self._stage, 0.0) + spent_s

    def _beacon_asked(self, bytes_up: int, bytes_down: int) -> float:
        """Count a request to the beacon and its answer; seconds that the server's link takes for them."""
        self.beacon_bytes_up += bytes_up
        self.beacon_bytes_down += bytes_down
        return bytes_up / self.links.server_up_bytes_s + bytes_down / self.links.server_down_bytes_s

    # -- presence of clients ---------------------------------------------------------------------------------

    def _presence(self, recipients: Ids) -> Presence:
        """Return the presence of `recipients` in the current stage; clients that dropped out before are absent."""
        presence = self.availability.presence(self.round_number, self._stage, self.now_s, recipients)
        reachable = presence.reachable & ~self._gone[recipients]
        drops = presence.drops & reachable
        # A client that drops out stays away until the end of the round, even if the availability model brings it back.
        self._gone[recipients[drops]] = True
        return Presence(reachable, drops, presence.leaves_s)

    def _last_announced(self, kind: type[Message], clients: Ids) -> Ids | None:
        """See `AnnouncedRounds.known_to`, for a question that announces a round; else None."""
        return self.announced_rounds.known_to(clients, self.round_number) if kind.announces else None

    def _note_announced(
        self,
        message: Message,
        recipients: Ids,
        reached: npt.NDArray[np.bool_],
        answers: HostAnswers,
        cut_off: Iterable[int] = (),
    ) -> None:
        """Record which clients have heard the announcement in `message`; a client that crashed over it has not.

        `cut_off`: clients whose answer was cut off. They may have refused, and count as if they had.
        """
        if not message.announces:
            return
        number: int = message.round  # type: ignore[attr-defined]  # all that announce a round have one
        crashed = [crash.client for crash in answers.crashes]
        refused = np.union1d(ids([refusal.client for refusal in answers.refusals]), ids(list(cut_off)))
        self.announced_rounds.record(number, recipients, reached & ~np.isin(recipients, crashed), refused)

    def _keep_record(self, stage: "Stage", answers: HostAnswers, sent_s: float) -> None:
        """Record a stage that has ended, and the clients that are gone until the end of the round."""
        if not self.availability.comes_back:
            self._gone[stage.who(DROPPED, OFFLINE)] = True
        stage.ride_on_answers(self.links.transport, self.speed_factors)
        self.exchanges.append(stage.exchanges(sent_s, self.speed_factors))
        self._record_answers(answers)


class Stage:
    """The state of one running stage: arrays with one row per asked client, or per group of clients.

    Args:
        kind: type of the question.
        recipients: `(m,)` sorted client numbers.
        size: bytes of the common part on the wire.
        private: encoded private part per client, or None.
        number: identifies the stage within the round.
        kinds: groups of these recipients; None: all may differ. Clients with private parts always differ.

    Attributes:
        recipients: `(m,)` int64, the client of each row: all asked clients, or one of each of m groups.
        kinds: the groups.
        size_down, size_up: `(m,)` int64 bytes to transfer; `bytes_down`, `bytes_up` the bytes transferred.
        transport_down, transport_up: `(m,)` int64 bytes of transport headers and acknowledgements.
        pki_up, pki_down: `(m,)` int64 bytes exchanged with the PKI by the handler.
        compute_s: `(m,)` seconds on the reference machine.
        ready_s: `(m,)` seconds at which the client's work was done, including look-ups at the PKI; infinite: never.
        arrival_s: `(m,)` seconds at which the answer was complete at the server; infinite: never.
        outcome: `(m,)` int8 position in `OUTCOMES`.
        number: identifies the stage within the round.
    """

    def __init__(
        self,
        kind: type[Message],
        recipients: Ids,
        size: int,
        private: Mapping[int, bytes] | None,
        number: int,
        kinds: ClientGroups | None = None,
    ) -> None:
        self.kinds = ClientGroups.alone(recipients) if kinds is None else kinds
        count = len(self.kinds)
        self.kind = kind
        self.recipients = recipients = self.kinds.examples
        self.number = number
        self.size_down = np.full(count, size, np.int64)
        if private is not None:
            self.size_down += np.fromiter((len(private[client]) for client in recipients.tolist()), np.int64, count)
        self.size_up = np.zeros(count, np.int64)
        self.bytes_down, self.bytes_up = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.transport_down, self.transport_up = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.pki_up, self.pki_down = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.compute_s = np.zeros(count)
        self.ready_s, self.arrival_s = np.full(count, np.inf), np.full(count, np.inf)
        self.outcome = np.full(count, SILENT, np.int8)

    def place(self, answers: HostAnswers) -> None:
        """Store the clients' reactions (answered, refused or silent) and their cost."""
        at = np.searchsorted(self.recipients, answers.clients)
        self.size_up[at] = answers.sizes
        self.compute_s[at] = answers.compute_s
        self.pki_up[at] = answers.pki_up
        self.pki_down[at] = answers.pki_down
        self.outcome[at[answers.answered]] = ANSWERED
        refused = np.fromiter((refusal.client for refusal in answers.refusals), np.int64)
        self.outcome[np.searchsorted(self.recipients, refused)] = REFUSED
        if (shared := answers.shared) is not None:
            sharing = is_among(self.recipients, shared.clients)
            who = slice(None) if sharing is None else sharing
            self.size_up[who] = shared.size
            self.compute_s[who] = shared.compute_s
            self.outcome[who] = SILENT if shared.header is None else ANSWERED

    def who(self, *outcomes: int) -> Ids:
        """Return the sorted numbers of the clients with one of these outcomes."""
        return self.kinds.members(np.isin(self.outcome, outcomes))

    def ride_on_answers(self, transport: Transport, speed_factors: Floats) -> None:
        """Take off `transport_up` the last acknowledgements of questions that were answered before they went alone."""
        # A receiver delays the acknowledgement of the last segment, and sends it with an answer that is ready by then.
        prompt = self.compute_s * speed_factors[self.recipients] <= transport.acknowledgement_delay_s
        rode = (self.bytes_up > 0) & prompt
        self.transport_up = self.transport_up - np.where(rode, transport.delayed_acknowledgement(self.size_down), 0)

    def exchanges(self, sent_s: float, speed_factors: Floats) -> Exchanges:
        """Return the records of the stage; `(n,)` `speed_factors` scale the compute time."""
        # A late answer may have arrived in the end, but the server did not wait for it.
        arrived = np.isfinite(self.arrival_s) & (self.outcome != LATE)
        each = Exchanges(
            stage=self.kind.stage,
            as_participant=self.kind.as_participant,
            clients=self.recipients,
            sent_s=sent_s,
            received_s=np.where(arrived, self.arrival_s, np.nan),
            bytes_down=self.bytes_down,
            bytes_up=self.bytes_up,
            transport_down=self.transport_down,
            transport_up=self.transport_up,
            pki_bytes_down=self.pki_down,
            pki_bytes_up=self.pki_up,
            compute_s=self.compute_s * speed_factors[self.recipients],
            outcome=self.outcome,
        )
        return each if self.kinds.which is None else ExchangesOfKinds(self.kinds, each)

    def replies(
        self, answers: HostAnswers, summing: Summing, gathering: Gathering, sent_s: float, end_s: float
    ) -> Replies:
        """Return the server's view of a stage that began at `sent_s` and ended at `end_s`."""
        refused = self.who(REFUSED)
        # A refusal that came late is no refusal to the server: it knows only that the client is late.
        in_time = set(refused.tolist())
        missing = Missing(
            offline=self.who(OFFLINE),
            dropped=self.who(DROPPED),
            late=self.who(LATE),
            refused=refused,
            silent=self.who(SILENT),
            refusals=tuple(refusal for refusal in answers.refusals if refusal.client in in_time),
        )
        assert self.kind.Answer is not None
        answered = self.outcome == ANSWERED
        after_s = self.arrival_s - sent_s
        return Replies(
            kind=self.kind.Answer,
            clients=self.kinds.members(answered),
            headers=answers.headers,
            missing=missing,
            summing=summing,
            latency_s=lambda: self.kinds.spread(after_s)[self.kinds.spread(answered)],
            waited_s=end_s - sent_s,
            shared=None if answers.shared is None else answers.shared.header,
            gathering=gathering,
        )
