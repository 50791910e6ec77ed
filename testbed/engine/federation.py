"""A federation that runs: an experiment's rounds one after the other, each recorded and checkpointed.

Nothing here knows whether the clients live in this process or on a cluster: `Federation` is given `Hosts`.
"""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from testbed.crashes import locating_crashes
from testbed.crypto.memo import memo_scope
from testbed.engine.buffered import BufferedClients
from testbed.engine.plan import RunPlan
from testbed.engine.privacy_recorder import charged_again, open_ledger
from testbed.engine.recorder import EndedRound, RunRecorder
from testbed.engine.round import Outcome, Round, Server, selected_clients
from testbed.errors import RunError
from testbed.memory import ArrayName, Memory, memory_copy
from testbed.network.asynchronous import AsynchronousNetwork
from testbed.network.emulated import EmulatedNetwork
from testbed.network.hosts import Hosts
from testbed.network.live import LiveNetwork
from testbed.parties.participation import check_pinned, check_remembered
from testbed.parties.pki import Directory
from testbed.parties.round_beacon import BeaconAccess, RoundBeacon
from testbed.records import RunDirectory
from testbed.records.arrays import Checkpoint
from testbed.records.tables import stopped
from testbed.records.targets import measured
from testbed.selection.contract import SelectionRound
from testbed.workload.client_accuracy import ClientAccuracy, check_client_accuracy
from testbed.workload.client_algorithm import LAST_ROUND, check_memory
from testbed.workload.client_states import ClientStates
from testbed.workload.contract import ClientAccuracyWorkload, Evaluation, PersonalWorkload, Workload
from testbed.workload.local_layers import LocalLayers

MOST_EVALUATED = 200  # clients with layers of their own, drawn once
_BEACON = ArrayName("round beacon")  # (40,) uint8: see `RoundBeacon.state`


@dataclass(frozen=True)
class RunProgress:
    """Where a run stands, for progress bars.

    Attributes:
        round_number: the round that is running (or has just ended).
        rounds: how many there will be.
        stage: the stage that is running.
        now_s: seconds of the run's clock.
        accuracy: last measured, or None.
        outcome: the last finished round's, or empty.
    """

    round_number: int
    rounds: int
    stage: str
    now_s: float
    accuracy: float | None
    outcome: str = ""


class Federation:
    """Runs an experiment's rounds and records them.

    Args:
        plan: the experiment's parts.
        hosts: hosts of the clients (registered, if the plan needs it).
        workload: for the initial model and for evaluation.
        directory: the PKI's bulletin board.
        records: the run's directory, or None to record nothing (benchmarks).
        on_progress: called when a stage begins and when a round has ended.
        network: makes the network from the plan's links, speed factors, availability, timing and compute model, and a
            callback for progress; default: the virtual clock over `hosts`.
        states: storage of the clients' states; default: in the run's directory.

    Raises:
        RunError: the directory's checkpoint does not belong to this experiment.
    """

    def __init__(
        self,
        plan: RunPlan,
        hosts: Hosts,
        workload: Workload,
        directory: Directory,
        records: RunDirectory | None,
        on_progress: Callable[[RunProgress], None] = lambda progress: None,
        network: Callable[..., EmulatedNetwork | LiveNetwork] | None = None,
        states: ClientStates | None = None,
    ) -> None:
        self.plan = plan
        self.workload = workload
        self.directory = directory
        self.records = records
        self.on_progress = on_progress
        experiment = plan.experiment
        n = experiment.population
        emulated = EmulatedNetwork if experiment.asynchronous is None else AsynchronousNetwork
        make_network = functools.partial(emulated, hosts) if network is None else network
        with locating_crashes("the run's preparation"):
            parts = (plan.links(), plan.speed_factors(), plan.availability(workload))
        self.network = make_network(*parts, plan.timing, plan.compute, self._on_stage, experiment.on_crash)
        self.accuracy: float | None = None
        self._reached = ""  # the target that ends the run, and with which value it was reached; empty: it was not
        self._round: Round | None = None  # the one that is running, or the last
        self._algorithm = plan.client_algorithm(workload)
        self._collect = selected_clients
        if isinstance(self.network, AsynchronousNetwork):
            self._collect = BufferedClients(self.network, experiment)
        check_client_accuracy(experiment.workload.client_accuracy, experiment.workload.dataset, workload)
        self._states = ClientStates(records.path) if states is None and records is not None else states
        checkpoint = records.checkpoint() if records is not None else None
        self.state = checkpoint or self._start()
        if self.state.model.shape != (workload.dimension,) or self.state.participations.shape != (n,):
            where = "the workload" if records is None or checkpoint is None else f"{records.path}: the checkpoint"
            raise RunError(
                f"{where} has a model of {self.state.model.size} parameters and {self.state.participations.size} "
                f"clients, the experiment {workload.dimension} and {n}; resume with the experiment that began the run"
            )
        self._check_states()
        # A resumed run's clock goes on where it stood.
        self.network.now_s = self.state.now_s
        self._changed = False  # whether a completed round has changed the model; followed where a target ends the run
        if experiment.stop_at is not None and records is not None:
            self._reached = stopped(records.path, self.state.round_number)
            # The target must not be met by the initial model, in a resumed run neither.
            self._changed = "completed" in records.table("rounds")["outcome"].to_pylist()
        self.privacy = open_ledger(plan, workload)
        self._recorder = None if records is None else RunRecorder(records, plan, self.network)
        if self._recorder is not None and records is not None:
            if self.privacy is not None:
                self.privacy.keep_in(records)
                self._recorder.record_noise(self.privacy.ledger.plan)
            if not self.finished:
                self._recorder.record_data(workload)
                self._recorder.record_clients(workload.sample_counts)
                self._recorder.record_resumption(self.state, checkpoint is not None)

    def _start(self) -> Checkpoint:
        with locating_crashes("the run's preparation"):
            model = self.workload.initial_model()
        n = self.plan.experiment.population
        return Checkpoint(0, 0.0, model, np.zeros(n, np.int64), 0.0, self._algorithm.first_memory(n))

    def _check_states(self) -> None:
        """Raise `RunError` if the checkpoint is of another algorithm, or lacks the clients' states."""
        where = "the beginning" if self.records is None else f"{self.records.path}: the checkpoint"
        check_memory(self.state.memory, self._algorithm, self.plan.experiment.population, where)
        if self._algorithm.keeps_state and self._states is not None:
            self._states.check(self.state.memory[LAST_ROUND], len(self._algorithm.initial_state))
        pattern, pins = self.plan.participation_pattern is not None, self.plan.selection.clients_pin_batches
        if (pattern or pins) and self.records is not None and self.state.round_number:
            rows = self.records.table("participation")
            # Dishonest clients need not keep a memory.
            honest_in_sums = rows["survived"].to_numpy() & ~rows["dishonest"].to_numpy()
            clients = rows["client"].to_numpy()[honest_in_sums]
            if pattern:
                check_remembered(self.records.path, clients)
            if pins:
                check_pinned(self.records.path, clients)

    @property
    def finished(self) -> bool:
        """Whether all rounds have been run, the target is reached, or the privacy budget allows no more."""
        return self.state.round_number >= self.plan.experiment.rounds or bool(self._spent or self._reached)

    @property
    def _spent(self) -> str:
        """Why the privacy budget allows no further round; empty while it does."""
        return "" if self.privacy is None else self.privacy.spent

    def progress(self, stage: str = "", outcome: str = "") -> RunProgress:
        """Return the current progress of the run."""
        running = min(self.state.round_number + (0 if outcome else 1), self.plan.experiment.rounds)
        return RunProgress(running, self.plan.experiment.rounds, stage, self.network.now_s, self.accuracy, outcome)

    def _on_stage(self, stage: str, now_s: float) -> None:
        if self.privacy is not None and self._round is not None:
            number = self.state.round_number + 1  # a malicious server may have announced another one
            self.privacy.asking(stage, number, self._round.outcome.participants)
        self.on_progress(self.progress(stage))

    async def run_next_round(self) -> Outcome:
        """Run the next round, record it and move the checkpoint on.

        Raises `CodeCrashed` when code of the user's own crashes: the server's, or a client's unless these are dropped.
        """
        number = self.state.round_number + 1
        with locating_crashes(f"the server's side of round {number}"), memo_scope(self.plan.results):
            return await self._run_next_round()

    async def _run_next_round(self) -> Outcome:
        began, before = time.monotonic(), self.state
        number = before.round_number + 1
        if number > 1:
            await self.network.pause(self.plan.experiment.time.between_rounds_s)
        # After the pause, which belongs to no round.
        started_s = self.network.now_s
        start, beacon = self._begin(number)
        # Before the round: an interrupted attempt may have released a sum, and the repeat adds other noise.
        privacy = self._charge_attempts(number)
        self._round = Round(start, self.network, self._server, before.model, self._collect)
        outcome = await (self._round.skip(f"budget-spent: {self._spent}") if self._spent else self._round.run())
        if self.privacy is not None:
            privacy.append(self.privacy.enter(number, outcome, self.network.exchanges))
        self._changed = self._changed or outcome.state == "completed"
        evaluation = self._evaluate(number, outcome.model, start.memory)
        self._reached = self._target_reached(number, evaluation)
        participations = before.participations.copy()
        # Aborted rounds count, too: their participants were selected and have worked.
        participations[outcome.participants] += 1
        wall_s = before.wall_s + time.monotonic() - began
        memory = self._memory_after(number, start, beacon)
        self.state = Checkpoint(number, self.network.now_s, outcome.model, participations, wall_s, memory)
        if self._recorder is not None:
            why_last, success = self._spent or self._reached, self._attack_success(evaluation, outcome.model)
            of_clients = self._client_accuracy(number, outcome.model, start.memory)
            ended = EndedRound(outcome, before.model, started_s, evaluation, privacy, why_last, success, of_clients)
            self._recorder.append(ended, self.state, time.monotonic() - began)
        self.on_progress(self.progress(outcome=outcome.state))
        return outcome

    def _begin(self, number: int) -> tuple[SelectionRound, RoundBeacon | None]:
        """Return the server's state at the beginning of a round, and the beacon as the last round left it."""
        # A copy: a round that fails in the middle must leave the checkpoint's arrays as they were.
        memory = memory_copy(self.state.memory)
        self.network.restore(memory)
        beacon = self.plan.round_beacon(memory.pop(_BEACON, None))
        latency_s = self.plan.selection.beacon_latency_s or 0.0
        start = SelectionRound(
            number=number,
            population=self.plan.experiment.population,
            network=self.network,
            participations=self.state.participations,
            directory=self.directory,
            randomness=self.plan.randomness,
            experiment_id=self.plan.experiment_id,
            sample_counts=self.workload.sample_counts,
            memory=memory,
            beacon=None if beacon is None else BeaconAccess(beacon, self.network, latency_s),
        )
        return start, beacon

    def _memory_after(self, number: int, start: SelectionRound, beacon: RoundBeacon | None) -> Memory:
        """Return the arrays that the checkpoint keeps for later rounds: the protocols' and the testbed's own.

        `number` is the run's round; a malicious server may have announced another number, which `start` has.
        """
        memory = memory_copy(start.memory) | self.network.to_checkpoint(number)
        if beacon is not None:
            memory[_BEACON] = beacon.state
        return memory

    def _charge_attempts(self, number: int) -> list[pa.Table]:
        """Charge for attempts at this round that were not recorded; their `privacy` rows."""
        attempts = [] if self.privacy is None else self.privacy.enter_attempts(number)
        if attempts:
            self.network.record_event("coordinator", "attempt-charged", charged_again(attempts))
        return attempts

    @property
    def _server(self) -> Server:
        """The server's side of the plan's protocols."""
        plan = self.plan
        sides = plan.selection, plan.aggregation, plan.broadcast, plan.server_optimizer
        return Server(*sides, self._algorithm, self.workload)

    def _evaluation(self, model: npt.NDArray[np.float32], memory: Memory) -> Evaluation | None:
        algorithm, states = self._algorithm, self._states
        if not isinstance(algorithm, LocalLayers) or states is None:
            return self.workload.evaluate(model)
        assert isinstance(self.workload, PersonalWorkload), "see Plan.client_algorithm"
        owns = own_layers(algorithm, states, memory)
        return algorithm.evaluate(self.workload, model, owns, self._personal_clients())

    def _personal_clients(self) -> npt.NDArray[np.int64]:
        """Return the clients with local layers that are evaluated."""
        n = self.plan.experiment.population
        if n <= MOST_EVALUATED:
            return np.arange(n)
        # Always round 0: the same clients in each evaluation, so that the curve shows the model and not the draw.
        generator = self.plan.randomness.generator("evaluation", 0, "clients")
        return np.sort(generator.choice(n, MOST_EVALUATED, replace=False))

    def _client_accuracy(self, number: int, model: npt.NDArray[np.float32], memory: Memory) -> ClientAccuracy | None:
        """Measure the model on the clients' own samples whenever it is evaluated, if the experiment says so."""
        if not self.plan.experiment.workload.client_accuracy or not self._is_evaluated(number):
            return None
        workload, algorithm, states = self.workload, self._algorithm, self._states
        assert isinstance(workload, ClientAccuracyWorkload), "see check_client_accuracy"
        if isinstance(algorithm, LocalLayers) and states is not None:
            owns = own_layers(algorithm, states, memory)
            return ClientAccuracy.of(algorithm.client_accuracies(workload, model, owns, self._personal_clients()))
        return ClientAccuracy.of(workload.client_accuracies(np.arange(self.plan.experiment.population), model))

    def _is_evaluated(self, number: int) -> bool:
        """Return whether the model is evaluated after this round: every k-th round, and the last one."""
        every = self.plan.experiment.workload.evaluate_every
        return number % every == 0 or number == self.plan.experiment.rounds or bool(self._spent)

    def _evaluate(self, number: int, model: npt.NDArray[np.float32], memory: Memory) -> Evaluation | None:
        """Evaluate every k-th round and the last; outside the clock."""
        if not self._is_evaluated(number):
            return None
        evaluation = self._evaluation(model, memory)
        if evaluation is not None and not math.isnan(evaluation.accuracy):
            self.accuracy = float(evaluation.accuracy)
        return evaluation

    def _attack_success(self, evaluation: Evaluation | None, model: npt.NDArray[np.float32]) -> float | None:
        """Return the success of dishonest clients that poison samples, if the model is evaluated."""
        adversary = self.plan.adversary
        return None if adversary is None or evaluation is None else adversary.success(self.workload, model)

    def _target_reached(self, number: int, evaluation: Evaluation | None) -> str:
        """Return which target ends the run now, and its value; empty: none. An initial model reaches no target."""
        stop_at = self.plan.experiment.stop_at
        if stop_at is None or evaluation is None or not self._changed:
            return ""
        target = stop_at.target
        metrics = evaluation.metrics if isinstance(evaluation, Evaluation) else ()
        # Not strict: a workload may leave its further metrics out of an evaluation.
        further = dict(zip(self.plan.experiment.workload.metrics, metrics, strict=False))
        value = measured(target.metric, float(evaluation.accuracy), float(evaluation.loss), further)
        return (
            f"target: {target.label} reached ({target.format_value(value)} after round {number})"
            if target.met(value)
            else ""
        )


def own_layers(
    algorithm: LocalLayers, states: ClientStates, memory: Memory
) -> Callable[[int], npt.NDArray[np.float32]]:
    """Return a function from a client to the layers that it keeps, as they were last in a sum.

    Args:
        algorithm: knows with which layers every client begins.
        states: where the clients' layers are.
        memory: of the round, which knows when a client was last in a sum.
    """
    last = memory[LAST_ROUND]

    def own(client: int) -> npt.NDArray[np.float32]:
        if not last[client]:
            return algorithm.initial_state
        return states.read(client, int(last[client]), len(algorithm.initial_state))

    return own
