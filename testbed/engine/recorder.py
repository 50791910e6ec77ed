"""The records of a run's rounds: tables, log and checkpoint. This module makes no decisions."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from testbed.emulation.client_classes import ClassMembers
from testbed.emulation.links import BYTES_PER_MBIT
from testbed.engine.plan import RunPlan
from testbed.engine.round import Outcome
from testbed.network.emulated import EmulatedNetwork
from testbed.network.live import LiveNetwork
from testbed.network.recorder import Event
from testbed.privacy.noise_plan import NoisePlan
from testbed.records import RunDirectory, RunRecords
from testbed.records.arrays import Checkpoint, RoundAggregate
from testbed.records.clients import clients_table
from testbed.records.log import RunLog
from testbed.records.schemas import SCHEMAS
from testbed.records.tables import STOPPED, events_table, exchanges_tables, participation_table, staleness_table
from testbed.records.writer import changed_after
from testbed.workload.client_accuracy import ClientAccuracy
from testbed.workload.contract import (
    DescribedWorkload,
    Evaluation,
    EvaluationWithoutLoss,
    LabelledEvaluation,
    Workload,
)


@dataclass(frozen=True)
class EndedRound:
    """The result of a round, in addition to the records of its network.

    Attributes:
        outcome: outcome of the round.
        model_before: `(d,)` float32, the model at its beginning.
        started_s: seconds of the run's clock at its beginning.
        evaluation: evaluation of the model after it; None: not evaluated.
        privacy: its `privacy` tables.
        attack_success: see `Adversary.success`.
        why_last: why there is no further round (the privacy budget, a target); empty otherwise.
        client_accuracy: accuracy of the model on the clients' own samples; None: not measured.
    """

    outcome: Outcome
    model_before: npt.NDArray[np.float32]
    started_s: float
    evaluation: Evaluation | None
    privacy: Sequence[pa.Table]
    why_last: str
    attack_success: float | None = None
    client_accuracy: ClientAccuracy | None = None


class RunRecorder:
    """The writer of one run's rounds.

    Args:
        records: the run's directory.
        plan: the run's plan.
        network: the network with the exchanges, events and crashes to record.
    """

    def __init__(self, records: RunDirectory, plan: RunPlan, network: EmulatedNetwork | LiveNetwork) -> None:
        self.records = records
        self._plan = plan
        self._network = network
        self._crashes_logged: set[tuple[str, int, str]] = set()

    def record_clients(self, samples: npt.NDArray[np.int64]) -> None:
        """Write the properties of the clients; `samples`, `(n,)`, are their numbers of training samples."""
        if not self._plan.experiment.records.clients:
            return
        links, members = self._network.links, self._plan.class_members
        if members is None:
            members = ClassMembers(("",), np.zeros(len(samples), np.int16))
        columns = {
            "down_mbit_s": links.down.mean() / BYTES_PER_MBIT,
            "up_mbit_s": links.up.mean() / BYTES_PER_MBIT,
            "latency_ms": links.latency_s * 1000,
            "loss": links.loss,
            "device_factor": self._network.speed_factors,
            "samples": samples,
        }
        self.records.write_clients(clients_table(members.names, members.class_of, columns))

    def record_noise(self, noise: NoisePlan) -> None:
        """Write the noise multiplier into ``experiment.yaml``, as ``provenance.noise_multiplier``, unless it is there.

        The experiment's own keys stay as they were written: `aggregation.noise` has an epsilon or a multiplier.
        """
        if noise.noise_multiplier is not None:
            self._add_to_provenance("noise_multiplier", noise.noise_multiplier)

    def record_data(self, workload: Workload) -> None:
        """Write what a workload says of its data into ``experiment.yaml``, as ``provenance.data``, unless it is there.

        Nothing where it has nothing to say.
        """
        if isinstance(workload, DescribedWorkload) and workload.data_facts:
            self._add_to_provenance("data", dict(workload.data_facts))

    def _add_to_provenance(self, key: str, value: Any) -> None:
        stored = RunRecords(self.records.path).experiment
        provenance = dict(stored.get("provenance") or {})
        # A resumed run keeps the values of its beginning.
        if key not in provenance:
            self.records.replace_experiment(stored | {"provenance": provenance | {key: value}})

    def record_resumption(self, checkpoint: Checkpoint, resumed: bool) -> None:
        """Add events to the next round: the run is resumed from `checkpoint`, perhaps with changed code."""
        if resumed:
            lost = f"; {self.records.lost}, and this one stands in" if self.records.lost else ""
            detail = f"resumed after round {checkpoint.round_number}{lost}"
            self._network.record_event("coordinator", "resume", detail)
        changed = changed_after(self.records.path, checkpoint.round_number)
        if changed:
            self._network.record_event("coordinator", "changed-code", f"resumed with changed {', '.join(changed)}")

    def append(self, ended: EndedRound, checkpoint: Checkpoint, wall_s: float) -> None:
        """Record a round and move the checkpoint on; it took `wall_s` seconds."""
        number, aggregate = checkpoint.round_number, ended.outcome.aggregate
        view = None
        if aggregate is not None and self._plan.experiment.records.keeps(number):
            view = RoundAggregate(ended.model_before, aggregate.mean, aggregate.weight)
        rounds, others = self._rounds_table(number, ended), self._tables(number, ended)
        # Tables and checkpoint in one step: a run that dies in between repeats the round.
        self.records.append_round({"rounds": rounds, **others}, checkpoint, view)
        self._log(rounds.to_pylist()[0], wall_s)
        self._log_crashes(number)

    def _rounds_table(self, number: int, ended: EndedRound) -> pa.Table:
        network, outcome, evaluation = self._network, ended.outcome, ended.evaluation
        without_loss, of_clients = isinstance(evaluation, EvaluationWithoutLoss), ended.client_accuracy
        row = {
            "round": number,
            "outcome": outcome.state,
            "reason": outcome.reason,
            "started_s": ended.started_s,
            "ended_s": network.now_s,
            "server_compute_s": network.server_compute_s,
            "server_work": [{"stage": stage, "compute_s": spent_s} for stage, spent_s in network.server_work.items()],
            "behind_s": network.behind_s,
            "population": self._plan.experiment.population,
            "candidates": outcome.candidates,
            "participants": len(outcome.participants),
            "survivors": len(outcome.survivors),
            "bytes_down": sum(stage.total("bytes_down") for stage in network.exchanges),
            "bytes_up": sum(stage.total("bytes_up") for stage in network.exchanges),
            "beacon_bytes_down": network.beacon_bytes_down,
            "beacon_bytes_up": network.beacon_bytes_up,
            "accuracy": None if evaluation is None or math.isnan(evaluation.accuracy) else float(evaluation.accuracy),
            "loss": None if evaluation is None or without_loss else float(evaluation.loss),
            "recalls": list(evaluation.recalls) if isinstance(evaluation, LabelledEvaluation) else None,
            "metrics": list(evaluation.metrics) or None if isinstance(evaluation, Evaluation) else None,
            "attack_success": ended.attack_success,
            "client_accuracy_mean": None if of_clients is None else of_clients.mean,
            "client_accuracy_worst_decile": None if of_clients is None else of_clients.worst_decile,
            "client_accuracy_std": None if of_clients is None else of_clients.std,
        }
        return pa.Table.from_pylist([row], schema=SCHEMAS["rounds"])

    def _tables(self, number: int, ended: EndedRound) -> dict[str, pa.Table | Iterable[pa.Table]]:
        network, outcome = self._network, ended.outcome
        events = network.events
        # After the last planned round there is nothing left to stop.
        if ended.why_last and number < self._plan.experiment.rounds:
            events = [*events, Event("after round", "coordinator", STOPPED, ended.why_last)]
        tables: dict[str, pa.Table | Iterable[pa.Table]] = {
            "exchanges": exchanges_tables(number, network.exchanges),
            "participation": participation_table(number, outcome.participants, outcome.survivors, self._plan.dishonest),
            "events": events_table(number, events),
        }
        if self._plan.experiment.asynchronous is not None:
            columns = vars(outcome.buffered) | {"client": outcome.buffered.clients}
            tables["staleness"] = staleness_table(number, columns)
        if ended.privacy:
            tables["privacy"] = pa.concat_tables(ended.privacy)
        return tables

    def _log(self, row: dict[str, Any], wall_s: float) -> None:
        RunLog(self.records.path).write(
            "round-ended",
            round=row["round"],
            outcome=row["outcome"],
            reason=row["reason"],
            wall_s=wall_s,
            now_s=row["ended_s"],
            bytes_down=row["bytes_down"],
            bytes_up=row["bytes_up"],
            survivors=row["survivors"],
            accuracy=row["accuracy"],
        )

    def _log_crashes(self, number: int) -> None:
        """Log the traceback of each kind of crash once; all crashes are in the events."""
        for stage, crash in self._network.crashes:
            # Without the message, which may name the client.
            place = (crash.file, crash.line, crash.error.partition(":")[0])
            if place in self._crashes_logged:
                continue
            self._crashes_logged.add(place)
            RunLog(self.records.path).write(
                "client-crashed",
                round=number,
                stage=stage,
                client=crash.client,
                error=crash.error,
                file=crash.file,
                line=crash.line,
                traceback=crash.trace,
            )
