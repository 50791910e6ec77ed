"""What every network keeps of a round: the exchanges, the events, the server's own work, and who has gone."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.crashes import Crash, OnCrash
from testbed.emulation.availability import Availability, Presence
from testbed.emulation.compute.cost import ComputeModel, Meter, metered, thread_cpu_s
from testbed.emulation.links import ClientLinks
from testbed.messages import Message
from testbed.network.announced_rounds import AnnouncedRounds
from testbed.network.contract import RoundNetwork, ids
from testbed.network.hosts import HostAnswers

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
    transport_down: Ids
    transport_up: Ids
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
        stage_quorums: stages in which the server goes on when so many have answered: an int is a number of clients, a
            float (at most 1.0) a share of those asked.
    """

    deadline_s: float
    stage_deadlines: Mapping[str, float] = field(default_factory=dict)
    disconnects_visible: bool = False
    stage_quorums: Mapping[str, int | float] = field(default_factory=dict)

    def limit_s(self, stage: str, asked_for_s: float | None) -> float:
        """Seconds that `stage` lasts at most; what the protocol asked for goes before what the experiment says."""
        return self.stage_deadlines.get(stage, self.deadline_s) if asked_for_s is None else asked_for_s

    def quorum(self, stage: str, asked_for: int | None, recipients: int) -> int | None:
        """How many answers are enough in `stage`; None: the server waits for all."""
        if asked_for is not None or stage not in self.stage_quorums:
            return asked_for
        enough = self.stage_quorums[stage]
        # As written: 0.07 of 100 are 7, though the float 0.07 times 100 is above 7.
        return enough if isinstance(enough, int) else math.ceil(Fraction(str(enough)) * recipients)


class RoundRecorder(RoundNetwork):
    """What is recorded of one round at a time; a network adds how it asks, and calls `announced_rounds.begin_round`.

    Args:
        population: number of clients n.
        availability: who is reachable when, and who drops out where.
        timing: what the server waits for.
        compute: measured or modelled seconds.
        on_stage: called with (stage, seconds) when a stage begins.
        on_crash: what a crash in a client's code does: end the run (unless it is "drop").

    Attributes:
        crashes: of the clients in this round, each with its stage.
        behind_s: how much longer this round has taken than links and devices say, for want of a faster machine; 0 on
            the virtual clock.
    """

    def __init__(
        self,
        population: int,
        availability: Availability,
        timing: Timing,
        compute: ComputeModel,
        on_stage: Callable[[str, float], None],
        on_crash: OnCrash,
    ) -> None:
        self.availability = availability
        self.timing = timing
        self.compute = compute
        self.on_stage = on_stage
        self.on_crash = on_crash
        self.now_s = 0.0
        self._population = population
        self._meter_scope: AbstractContextManager[Meter] | None = None
        self._between_rounds: list[Event] = []
        self.announced_rounds = AnnouncedRounds(population)
        self._open_round(0)
        self._in_round = False

    def _open_round(self, round_number: int) -> None:
        self.round_number = round_number
        self._in_round = True
        self.exchanges: list[Exchanges] = []
        self.events: list[Event] = self._between_rounds  # what happened since the last round is recorded in this one
        self._between_rounds = []
        self.crashes: list[tuple[str, Crash]] = []
        self.behind_s = 0.0
        self.server_compute_s = 0.0
        self.beacon_bytes_up = self.beacon_bytes_down = 0
        self._gone = np.zeros(self._population, np.bool_)
        self._stage = "round"

    async def pause(self, seconds: float) -> None:
        """Let time pass between two rounds."""
        self.now_s += seconds

    def end_round(self) -> None:
        """Account the server's work since the last stage."""
        self._finish_server_work()
        self._in_round = False

    def record_event(self, party: str, kind: str, detail: str) -> None:
        """See `Network.record_event`."""
        if self._in_round:
            self.events.append(Event(self._stage, party, kind, detail))
        else:
            self._between_rounds.append(Event("between rounds", party, kind, detail))

    def _record_answers(self, answers: HostAnswers) -> None:
        """The events that answers bring: attacks, refusals, and handlers that crashed."""
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
        """Account `spent_s` seconds of the server's work; a network whose clock does not run by itself moves it."""
        self.server_compute_s += spent_s

    def _beacon_asked(self, links: ClientLinks, bytes_up: int, bytes_down: int) -> float:
        """Count a request to the beacon and its answer; seconds that the server's link takes for them."""
        self.beacon_bytes_up += bytes_up
        self.beacon_bytes_down += bytes_down
        return bytes_up / links.server_up_bytes_s + bytes_down / links.server_down_bytes_s

    # -- who is there ----------------------------------------------------------------------------------------

    def _presence(self, recipients: Ids) -> Presence:
        """What becomes of `recipients` in the present stage, those who have gone in this round left out."""
        presence = self.availability.presence(self.round_number, self._stage, self.now_s, recipients)
        reachable = presence.reachable & ~self._gone[recipients]
        drops = presence.drops & reachable
        self._gone[recipients[drops]] = True
        return Presence(reachable, drops, presence.leaves_s)

    def _last_announced(self, kind: type[Message], clients: Ids) -> Ids | None:
        """See `AnnouncedRounds.known_to`, for a question that announces a round; else None."""
        return self.announced_rounds.known_to(clients, self.round_number) if kind.announces else None

    def _note_announced(
        self,
        message: Message,
        asked: Ids,
        reached: npt.NDArray[np.bool_],
        answers: HostAnswers,
        cut_off: Iterable[int] = (),
    ) -> None:
        """Note who has heard what `message` announces; a client that crashed over it has not.

        `cut_off`: whose answer was. They may have refused, and count as if they had.
        """
        if not message.announces:
            return
        number: int = message.round  # type: ignore[attr-defined]  # all that announce a round have one
        crashed = [crash.client for crash in answers.crashes]
        refused = np.union1d(ids([refusal.client for refusal in answers.refusals]), ids(list(cut_off)))
        self.announced_rounds.record(number, asked, reached & ~np.isin(asked, crashed), refused)

    def _remember_gone(self, clients: Ids) -> None:
        """`clients` dropped out or were offline: the model may say that they stay away for the rest of the round."""
        if not self.availability.comes_back:
            self._gone[clients] = True
