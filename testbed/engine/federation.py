"""A federation that runs: everything an experiment describes, put together, and its rounds one after the other.

Nothing here knows whether the clients live in this process or on a cluster: `Federation` is given `Hosts`.
"""

import functools
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from testbed.adversary.composition import Adversary
from testbed.aggregation.contract import AggregationParameters
from testbed.crashes import locating_crashes
from testbed.crypto.signatures import SigningKey
from testbed.emulation.availability import Availability, Scheduled, availability_model
from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.emulation.devices import speed_factors
from testbed.emulation.links import ClientLinks, client_links
from testbed.emulation.traces.schedule import Schedule
from testbed.engine.registry import aggregation_protocol, selection_protocol
from testbed.engine.round import Outcome, run_round, skipped_round
from testbed.errors import ExperimentError, RunError
from testbed.experiment.digest import secrets_context
from testbed.experiment.schema import Experiment
from testbed.experiment.stages import check_schedule, check_stages
from testbed.network.emulated import EmulatedNetwork
from testbed.network.hosts import Hosts
from testbed.network.live import LiveNetwork
from testbed.network.recorder import Event, Timing
from testbed.parties.client import Environment, RoleSpec
from testbed.parties.pki import Directory
from testbed.parties.round_beacon import BeaconAccess, RoundBeacon
from testbed.privacy.recorder import opened, reports_training
from testbed.randomness import Randomness
from testbed.records import RunDirectory
from testbed.records.aggregates import RoundAggregate
from testbed.records.changed_code import changed_after
from testbed.records.checkpoints import Checkpoint
from testbed.records.log import RunLog
from testbed.records.run_end import STOPPED
from testbed.records.tables import SCHEMAS, events_table, exchanges_table, participation_table
from testbed.selection.contract import SelectionParameters, SelectionRound, recalled
from testbed.training.client import Trainer
from testbed.training.server import Broadcast
from testbed.training.workload import Evaluation, LabelledWorkload, PartlySharedWorkload, Workload

_HEARD = "rounds heard of"  # among the arrays of a checkpoint: see `AnnouncedRounds`
_BEACON = "round beacon"  # likewise: see `RoundBeacon`


@dataclass(frozen=True)
class Progress:
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


class Plan:
    """What an experiment's parts are, before any client exists. Cheap to make, anywhere.

    Args:
        experiment: one point (no sweep).
        simulation_seed: what stands in for the experiment's seed when it has none.

    Raises:
        ExperimentError: a class of one's own cannot be found, a stage is named that does not
            exist, or the aggregation cannot take as many participants as the selection may choose.
    """

    def __init__(self, experiment: Experiment, simulation_seed: int) -> None:
        self.experiment = experiment
        seed = experiment.seed if experiment.seed is not None else simulation_seed
        self.randomness = Randomness(
            seed, secrets_from_system=experiment.seed is None, context=secrets_context(experiment)
        )
        costs = {**REFERENCE_COSTS, **experiment.time.costs}
        self.compute = ComputeModel(experiment.time.compute == "measured", costs)
        self.adversary: Adversary | None = None
        self.broadcast = Broadcast()
        if experiment.adversary is None:
            self.selection = selection_protocol(experiment.selection, experiment.population)
            self.aggregation = aggregation_protocol(experiment.aggregation)
        else:
            colluders = experiment.aggregation.guarantees(experiment.selection.participants).max_colluders
            self.adversary = Adversary(
                experiment.adversary, experiment.population, experiment.rounds, self.randomness, max(1, colluders + 1)
            )
            with_attacks = self.adversary.with_attacks
            self.selection = selection_protocol(experiment.selection, experiment.population, with_attacks)
            self.aggregation = aggregation_protocol(experiment.aggregation, with_attacks)
            self.broadcast = with_attacks(Broadcast, {"train"})()
            self.adversary.check_used(self.roles)
            self.adversary.check_learning(experiment.workload)
        check_stages(experiment, self.stages)
        self.selection_parameters: SelectionParameters = self.selection.parameters
        self.aggregation_parameters: AggregationParameters = self.aggregation.parameters
        self.maximum_participants = self.selection.maximum_participants
        try:
            self.aggregation_parameters.check(self.maximum_participants)
        except ValueError as error:
            raise ExperimentError(
                f"aggregation.{error}; a round of this selection may have {self.maximum_participants} participants or "
                f"as few as {experiment.selection.participants}: a number must be allowed for both"
            ) from None
        self.minimum_participants = self.selection.minimum_participants
        self.seed = seed
        self.experiment_id = hashlib.sha256(b"testbed/experiment/v1" + experiment.name.encode()).digest()[:16]

    @cached_property
    def beacon_key(self) -> SigningKey | None:
        """The key pair of the randomness beacon; None where selection uses none."""
        if self.selection.beacon_latency_s is None:
            return None
        return SigningKey.from_seed(self.randomness.secret("round beacon", 0, "signing key"))

    def round_beacon(self, state: npt.NDArray[np.uint8] | None) -> RoundBeacon | None:
        """The beacon, where the last round left it."""
        return None if self.beacon_key is None else RoundBeacon(self.beacon_key, self.experiment_id, state)

    def with_beacon(self, board: Directory) -> Directory:
        """The bulletin board with the beacon's public key on it."""
        return board if self.beacon_key is None else replace(board, beacon=self.beacon_key.public)

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of a round, in order."""
        return (*self.selection.stages, "train", *self.aggregation.stages)

    @property
    def needs_registration(self) -> bool:
        """Whether clients must be registered with the PKI before the rounds."""
        return self.selection.needs_registration or self.aggregation.needs_registration

    @property
    def roles(self) -> list[RoleSpec]:
        """The client sides of all protocols of the run."""
        specs = [*self.selection.roles, RoleSpec(Trainer, None), *self.aggregation.roles]
        return specs if self.adversary is None else self.adversary.roles(specs)

    @property
    def dishonest(self) -> frozenset[int]:
        """The clients that work for a malicious server."""
        return frozenset() if self.adversary is None else self.adversary.dishonest

    def environment(self, workload: Workload) -> Environment:
        """What the clients of one host share; the directory comes after registration."""
        self.aggregation_parameters.prepare(self.maximum_participants, workload.dimension)
        return Environment(
            population=self.experiment.population,
            randomness=self.randomness,
            compute=self.compute,
            directory=Directory.empty(0),
            workload=workload,
            experiment_id=self.experiment_id,
            participants_are_agreed=self.selection.participants_agree,
            minimum_participants=self.minimum_participants,
            maximum_participants=self.maximum_participants,
            rounds=self.experiment.rounds,
            batches=self.selection.batches,
            client_rate=self.selection.client_rate,
            reports_training=reports_training(self, workload.dimension),
        )

    def links(self) -> ClientLinks:
        """The clients' and the server's links; raises `TraceError` for files that cannot be used."""
        generator = self.randomness.generator("links", 0, "draw")
        return client_links(self.experiment.links, self.experiment.population, generator)

    def speed_factors(self) -> npt.NDArray[np.float64]:
        """`(n,)` how many times longer than the reference machine each client computes; raises as `links` does."""
        generator = self.randomness.generator("devices", 0, "speed")
        return speed_factors(self.experiment.devices, self.experiment.population, generator)

    def availability(self, workload: Workload) -> Availability:
        """Who is reachable when; raises as `links` does, and `ExperimentError` when the workload has no labels."""

        def label_counts() -> npt.NDArray[np.int64]:
            if isinstance(workload, PartlySharedWorkload):  # what all clients share tells none from another
                return workload.own_label_counts()
            if isinstance(workload, LabelledWorkload):
                return workload.label_counts()
            raise ExperimentError("availability.model: this workload has no label_counts(), which the model needs")

        after_selection = ("train", *self.aggregation.stages)
        experiment = self.experiment
        return availability_model(
            experiment.availability, experiment.population, after_selection, self.randomness, label_counts
        )

    def read_files(self, workload: Workload) -> None:
        """Read every file that the experiment names, to raise before anything runs what is wrong with one."""
        self.links()
        self.speed_factors()
        self.availability(workload)
        section = self.experiment.availability
        if isinstance(section, Scheduled):
            check_schedule(Schedule.read(section.path).stages, str(section.path), self.stages)
        self.selection.check_files()

    @property
    def timing(self) -> Timing:
        """What the server waits for."""
        time_ = self.experiment.time
        return Timing(time_.deadline_s, time_.stage_deadlines, time_.disconnects == "visible", time_.stage_quorums)

    def check_sums(self, workload: Workload) -> None:
        """Raise `ExperimentError` when the aggregation cannot sum what these clients learn, or not so many of them, or
        the adversary cannot do with it what it is to do.
        """
        self.aggregation_parameters.check_workload(workload)
        heaviest = int(workload.sample_counts.max(initial=1))
        self.aggregation_parameters.check_weights(self.maximum_participants, heaviest)
        self.aggregation_parameters.check_dimension(self.maximum_participants, workload.dimension)
        if self.adversary is not None:
            self.adversary.check_workload(workload)
        reports_training(self, workload.dimension)


class Federation:
    """Runs an experiment's rounds and records them.

    Args:
        plan: the experiment's parts.
        hosts: where the clients run (registered, if the plan needs it).
        workload: for the initial model and for evaluation.
        directory: the PKI's bulletin board.
        records: the run's directory, or None to record nothing (benchmarks).
        on_progress: called when a stage begins and when a round has ended.
        network: makes the network from the plan's links, speed factors, availability, timing and compute model, and a
            callback for progress; default: the virtual clock over `hosts`.

    Raises:
        RunError: the directory's checkpoint does not belong to this experiment.
    """

    def __init__(
        self,
        plan: Plan,
        hosts: Hosts,
        workload: Workload,
        directory: Directory,
        records: RunDirectory | None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        network: Callable[..., EmulatedNetwork | LiveNetwork] | None = None,
    ) -> None:
        self.plan = plan
        self.workload = workload
        self.directory = directory
        self.records = records
        self.on_progress = on_progress
        experiment = plan.experiment
        n = experiment.population
        make_network = functools.partial(EmulatedNetwork, hosts) if network is None else network
        with locating_crashes("the run's preparation"):
            parts = (plan.links(), plan.speed_factors(), plan.availability(workload))
        self.network = make_network(*parts, plan.timing, plan.compute, self._on_stage, experiment.on_crash)
        self.accuracy: float | None = None
        self._crashes_logged: set[tuple[str, int, str]] = set()
        self._selection: SelectionRound | None = None  # of the round that is running
        checkpoint = records.checkpoint() if records is not None else None
        self.state = checkpoint or self._start()
        if self.state.model.shape != (workload.dimension,) or self.state.participations.shape != (n,):
            where = "the workload" if records is None or checkpoint is None else f"{records.path}: the checkpoint"
            raise RunError(
                f"{where} has a model of {self.state.model.size} parameters and {self.state.participations.size} "
                f"clients, the experiment {workload.dimension} and {n}; resume with the experiment that began the run"
            )
        self.network.now_s = self.state.now_s
        self.privacy = opened(plan, workload)
        if self.privacy is not None and records is not None:
            self.privacy.keep_in(records)
        self._record_resumption(checkpoint is not None)

    def _start(self) -> Checkpoint:
        with locating_crashes("the run's preparation"):
            model = self.workload.initial_model()
        return Checkpoint(0, 0.0, model, np.zeros(self.plan.experiment.population, np.int64), 0.0)

    def _record_resumption(self, resumed: bool) -> None:
        if self.finished or self.records is None:
            return
        if resumed:
            lost = f"; {self.records.lost}, and this one stands in" if self.records.lost else ""
            detail = f"went on after round {self.state.round_number}{lost}"
            self.network.record_event("coordinator", "resume", detail)
        changed = changed_after(self.records.path, self.state.round_number)
        if changed:
            self.network.record_event("coordinator", "changed-code", f"went on with changed {', '.join(changed)}")

    @property
    def finished(self) -> bool:
        """Whether all rounds have been run, or the privacy budget allows no more."""
        return self.state.round_number >= self.plan.experiment.rounds or bool(self._spent)

    @property
    def _spent(self) -> str:
        """Why the privacy budget allows no further round; empty while it does."""
        return "" if self.privacy is None else self.privacy.spent

    def progress(self, stage: str = "", outcome: str = "") -> Progress:
        """Where the run stands now."""
        running = min(self.state.round_number + (0 if outcome else 1), self.plan.experiment.rounds)
        return Progress(running, self.plan.experiment.rounds, stage, self.network.now_s, self.accuracy, outcome)

    def _on_stage(self, stage: str, now_s: float) -> None:
        if self.privacy is not None and self._selection is not None:
            self.privacy.asking(stage, self._selection.number, self._selection.participants)
        self.on_progress(self.progress(stage))

    async def run_next_round(self) -> Outcome:
        """Run the next round, record it and move the checkpoint on.

        Raises `CodeCrashed` when code of the user's own crashes: the server's, or a client's unless these are dropped.
        """
        with locating_crashes(f"the server's side of round {self.state.round_number + 1}"):
            return await self._run_next_round()

    async def _run_next_round(self) -> Outcome:
        began = time.monotonic()
        experiment, before = self.plan.experiment, self.state
        number = before.round_number + 1
        if number > 1:
            await self.network.pause(experiment.time.between_rounds_s)
        started_s = self.network.now_s
        start = SelectionRound(
            number, experiment.population, self.network, before.participations, self.directory,
            self.plan.randomness, self.plan.experiment_id, sample_counts=self.workload.sample_counts,
            memory=recalled(before.memory),
        )  # fmt: skip
        if (heard := start.memory.pop(_HEARD, None)) is not None:
            self.network.announced_rounds.restore(heard)
        beacon = self.plan.round_beacon(start.memory.pop(_BEACON, None))
        if beacon is not None:
            start.beacon = BeaconAccess(beacon, self.network, self.plan.selection.beacon_latency_s or 0.0)
        entered = [] if self.privacy is None else self.privacy.enter_attempts(number)
        if entered:
            self.network.record_event("coordinator", "attempt", _charged_again(entered))
        self._selection = start
        if self._spent:  # by attempts
            outcome = await skipped_round(start, self.network, before.model, f"budget-spent: {self._spent}")
        else:
            outcome = await run_round(
                start, self.network, self.plan.selection, self.plan.aggregation, before.model, self.plan.broadcast,
                self.workload,
            )  # fmt: skip
        participations = before.participations.copy()
        participations[outcome.participants] += 1
        if self.privacy is not None:
            entered.append(self.privacy.enter(number, outcome, self.network.exchanges))
        evaluation = self._evaluate(number, outcome.model)
        wall_s = before.wall_s + time.monotonic() - began
        memory = recalled(start.memory)
        if (heard := self.network.announced_rounds.to_checkpoint(number)) is not None:
            memory[_HEARD] = heard
        if beacon is not None:
            memory[_BEACON] = beacon.state
        self.state = Checkpoint(number, self.network.now_s, outcome.model, participations, wall_s, memory)
        if self.records is not None:
            tables = self._tables(number, started_s, outcome, evaluation)
            if entered:
                tables["privacy"] = pa.concat_tables(entered)
            self.records.append_round(tables, self.state, self._seen(number, before.model, outcome))
            self._log(tables["rounds"].to_pylist()[0], time.monotonic() - began)
            self._log_crashes(number)
        self.on_progress(self.progress(outcome=outcome.state))
        return outcome

    def _seen(self, number: int, model: npt.NDArray[np.float32], outcome: Outcome) -> RoundAggregate | None:
        aggregate = outcome.aggregate
        if aggregate is None or not self.plan.experiment.records.keeps(number):
            return None
        return RoundAggregate(model, aggregate.mean, aggregate.weight)

    def _log(self, row: dict[str, Any], wall_s: float) -> None:
        assert self.records is not None
        RunLog(self.records.path).write(
            "round-ended", round=row["round"], outcome=row["outcome"], reason=row["reason"], wall_s=wall_s,
            now_s=row["ended_s"], bytes_down=row["bytes_down"], bytes_up=row["bytes_up"], survivors=row["survivors"],
            accuracy=row["accuracy"],
        )  # fmt: skip

    def _log_crashes(self, number: int) -> None:
        """The traceback of each kind of crash, once; all of them stand in the events."""
        assert self.records is not None
        for stage, crash in self.network.crashes:
            place = (crash.file, crash.line, crash.error.partition(":")[0])
            if place not in self._crashes_logged:
                self._crashes_logged.add(place)
                RunLog(self.records.path).write(
                    "client-crashed", round=number, stage=stage, client=crash.client, error=crash.error,
                    file=crash.file, line=crash.line, traceback=crash.trace,
                )  # fmt: skip

    def _evaluate(self, number: int, model: npt.NDArray[np.float32]) -> Evaluation | None:
        """Evaluate every k-th round and the last; outside the clock."""
        every = self.plan.experiment.workload.evaluate_every
        if number % every and number != self.plan.experiment.rounds and not self._spent:
            return None
        evaluation = self.workload.evaluate(model)
        if evaluation is not None:
            self.accuracy = float(evaluation.accuracy)
        return evaluation

    def _tables(
        self, number: int, started_s: float, outcome: Outcome, evaluation: Evaluation | None
    ) -> dict[str, pa.Table]:
        network = self.network
        row = {
            "round": number,
            "outcome": outcome.state,
            "reason": outcome.reason,
            "started_s": started_s,
            "ended_s": network.now_s,
            "server_compute_s": network.server_compute_s,
            "behind_s": network.behind_s,
            "population": self.plan.experiment.population,
            "candidates": outcome.candidates,
            "participants": len(outcome.participants),
            "survivors": len(outcome.survivors),
            "bytes_down": sum(int(stage.bytes_down.sum()) for stage in network.exchanges),
            "bytes_up": sum(int(stage.bytes_up.sum()) for stage in network.exchanges),
            "beacon_bytes_down": network.beacon_bytes_down,
            "beacon_bytes_up": network.beacon_bytes_up,
            "accuracy": None if evaluation is None else float(evaluation.accuracy),
            "loss": None if evaluation is None else float(evaluation.loss),
        }
        events = network.events
        if self._spent and number < self.plan.experiment.rounds:
            events = [*events, Event("after round", "coordinator", STOPPED, self._spent)]
        return {
            "rounds": pa.Table.from_pylist([row], schema=SCHEMAS["rounds"]),
            "exchanges": exchanges_table(number, network.exchanges),
            "participation": participation_table(number, outcome.participants, outcome.survivors, self.plan.dishonest),
            "events": events_table(number, events),
        }


def _charged_again(attempts: list[pa.Table]) -> str:
    """What the event says of attempts that are charged, given their `privacy` rows."""
    clients = len(np.unique(np.concatenate([table["client"].to_numpy() for table in attempts])))
    times = "once" if len(attempts) == 1 else f"{len(attempts)} times"
    return (
        f"this round's last stage had begun {times} before, with other noise, and was not recorded: {clients} clients "
        "are charged for it"
    )
