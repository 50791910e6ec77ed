"""Run directories for the analysis: written by hand, or synthetic ones that look like real runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from testbed.network.exchanges import ANSWERED, DROPPED, OFFLINE, OUTCOMES, SILENT, Exchanges
from testbed.network.recorder import Event
from testbed.records import RunDirectory, RunRecords
from testbed.records.arrays import Checkpoint
from testbed.records.schemas import SCHEMAS
from testbed.records.tables import events_table, exchanges_table, participation_table

MODEL_BYTES = 4_072_696  # the FEMNIST CNN in float32
LINK_BYTES_S = 44e6 / 8
DEADLINE_S = 60.0


@dataclass
class RecordedRound:
    """One round as it goes into the tables."""

    started_s: float
    ended_s: float
    exchanges: list[Exchanges]
    participants: Sequence[int] = ()
    survivors: Sequence[int] = ()
    outcome: str = "completed"
    reason: str = ""
    accuracy: float | None = None
    loss: float | None = None
    recalls: Sequence[float] | None = None
    events: list[Event] = field(default_factory=list)


def asked(
    stage: str,
    sent_s: float,
    clients: Sequence[int],
    received_s: Sequence[float | None],
    *,
    down: int | Sequence[int] = 0,
    up: int | Sequence[int] = 0,
    pki: tuple[int, int] = (0, 0),
    overhead: tuple[int, int] = (0, 0),
    outcome: str | Sequence[int] = "answered",
    as_participant: bool = True,
) -> Exchanges:
    """One stage, from short lists."""
    count = len(clients)

    def spread(value: Any) -> Any:
        return np.broadcast_to(np.asarray(value, np.int64), count).copy()

    outcomes = OUTCOMES.index(outcome) if isinstance(outcome, str) else outcome
    received = np.array([np.nan if at is None else at for at in received_s], np.float64)
    return Exchanges(
        stage, as_participant, np.asarray(clients, np.int64), sent_s, received, spread(down), spread(up),
        spread(overhead[0]), spread(overhead[1]), spread(pki[0]), spread(pki[1]), np.zeros(count),
        spread(outcomes).astype(np.int8),
    )  # fmt: skip


def write_run(
    path: Path, experiment: Mapping[str, Any], rounds: Sequence[RecordedRound], *, finish: bool = True
) -> RunRecords:
    """A run directory as the testbed writes it, a round at a time."""
    directory = RunDirectory.create(path, experiment)
    for number, made in enumerate(rounds, start=1):
        row = {
            "round": number, "outcome": made.outcome, "reason": made.reason, "started_s": made.started_s,
            "ended_s": made.ended_s, "server_compute_s": 0.25, "population": experiment["population"],
            "candidates": len(made.participants), "participants": len(made.participants),
            "survivors": len(made.survivors),
            "bytes_down": sum(int(stage.bytes_down.sum()) for stage in made.exchanges),
            "bytes_up": sum(int(stage.bytes_up.sum()) for stage in made.exchanges),
            "accuracy": made.accuracy, "loss": made.loss,
            "recalls": made.recalls,
        }  # fmt: skip
        tables = {
            "rounds": pa.Table.from_pylist([row], schema=SCHEMAS["rounds"]),
            "exchanges": exchanges_table(number, made.exchanges),
            "participation": participation_table(
                number, np.asarray(made.participants, np.int64), np.asarray(made.survivors, np.int64)
            ),
            "events": events_table(number, made.events),
        }
        model, counts = np.zeros(3, np.float32), np.zeros(experiment["population"], np.int64)
        directory.append_round(tables, Checkpoint(number, made.ended_s, model, counts, 1.5 * number))
    if finish:
        directory.finish()
    return RunRecords(path)


# Stage: whether everybody is asked, bytes down and up per client, seconds of compute on a device of speed 1.
CHECK_IN = {"check-in": (True, 14, 8, 0.0)}
SIGNED_LIST = {"lotto/participants": (False, 2400, 66, 0.004), "lotto/signatures": (False, 760, 8, 0.003)}
TRAIN = {"train": (False, MODEL_BYTES, 0, 30.0)}
PLAIN = {"plain/update": (False, 40, MODEL_BYTES, 0.01)}
SECAGG = {
    "secagg/advertise-keys": (False, 20, 140, 0.001),
    "secagg/share-keys": (False, 1500, 1900, 0.02),
    "secagg/masked-input": (False, 1900, MODEL_BYTES * 5 // 8, 0.4),
    "secagg/consistency": (False, 90, 66, 0.001),
    "secagg/unmask": (False, 760, 1200, 0.001),
}
SELECTION = {
    "random": CHECK_IN,
    "weighted-random": CHECK_IN,
    "batch-partition": CHECK_IN,
    "lotto-server-centric": CHECK_IN | SIGNED_LIST,
    "lotto-client-centric": {"lotto/announce": (True, 22, 146, 0.02)} | SIGNED_LIST,
}


def synthetic_run(
    path: Path,
    protocol: str = "random",
    *,
    population: int = 100,
    participants: int = 10,
    rounds: int = 10,
    seed: int | None = 1,
    aggregation: str = "secagg",
    label: str | None = None,
    sweep: Mapping[str, Any] | None = None,
    selection: Mapping[str, Any] | None = None,
    failing: Mapping[int, str] | None = None,
    accuracy_every: int | None = 1,
    finish: bool = True,
    latency_ms: float | None = None,
    sweep_labels: Mapping[str, str] | None = None,
    point: int | None = None,
    extra: Mapping[str, Any] | None = None,
) -> RunRecords:
    """A run with the stages, sizes and times that a real one of that protocol could have.

    Args:
        failing: round to ``"skipped"`` (after the check-in) or ``"aborted"`` (in the last stage but one).
        accuracy_every: rounds between two evaluations; None: never.
        extra: other sections of the experiment.
    """
    generator = np.random.default_rng([seed or 0, population, *protocol.encode()])
    speed = 1 + 3 / np.arange(1, population + 1) ** 1.2
    generator.shuffle(speed)
    stages = SELECTION[protocol] | TRAIN | (PLAIN if aggregation == "plain" else SECAGG)
    experiment: dict[str, Any] = {
        "name": "synthetic", "seed": seed, "rounds": rounds, "population": population,
        "selection": {"protocol": protocol, "participants": participants, **(selection or {})},
        "aggregation": {"protocol": aggregation}, "links": {"down_mbit_s": 44.0, "up_mbit_s": 44.0},
        "provenance": {"label": label or protocol, "sweep": dict(sweep or {}), "versions": {"testbed": "0.1.0"}},
    }  # fmt: skip
    experiment["links"] |= {} if latency_ms is None else {"latency_ms": latency_ms}
    experiment["provenance"] |= {"sweep_labels": dict(sweep_labels)} if sweep_labels else {}
    experiment["provenance"] |= {} if point is None else {"point": point}
    experiment |= extra or {}
    made, now = [], 0.0
    for number in range(1, rounds + 1):
        outcome = (failing or {}).get(number, "completed")
        chosen = np.sort(generator.choice(population, participants, replace=False))
        last = {"completed": len(stages), "skipped": 1, "aborted": len(stages) - 1}[outcome]
        gone: set[int] = set()
        started, exchanges = now, []
        dropping = int(generator.choice(chosen)) if number % 3 == 0 else None
        for stage, (everybody, down, up, compute_s) in list(stages.items())[:last]:
            clients = np.arange(population) if everybody else chosen
            state = np.full(len(clients), ANSWERED, np.int8)
            state[np.isin(clients, list(gone))] = OFFLINE
            if stage in ("secagg/masked-input", "plain/update") and dropping is not None:
                state[clients == dropping] = DROPPED
                gone.add(dropping)
            answers = np.full(len(clients), up)
            if stage == "lotto/announce":  # only candidates answer
                silent = ~np.isin(clients, chosen) & (generator.random(len(clients)) > 0.03)
                state[silent], answers[silent] = SILENT, 0
            busy = compute_s * speed[clients] * generator.uniform(0.97, 1.03, len(clients))
            arrival = now + 0.05 + busy + (down + answers) / LINK_BYTES_S
            arrival[state != ANSWERED] = np.nan
            exchanges.append(
                asked(
                    stage, now, clients, arrival, down=np.where(state == OFFLINE, 0, down),
                    up=np.where(state == ANSWERED, answers, 0), outcome=state, as_participant=stage != "check-in",
                    pki=(64, 9) if stage == "lotto/participants" else (0, 0),
                )
            )  # fmt: skip
            now = float(np.nanmax(arrival)) if DROPPED not in state else now + DEADLINE_S
        took_part: Sequence[int] = chosen.tolist() if outcome != "skipped" else []
        survivors = [] if outcome != "completed" else [c for c in chosen if c not in gone]
        measured = accuracy_every is not None and number % accuracy_every == 0
        accuracy = 0.95 - 0.8 * np.exp(-number / 6) + generator.normal(0, 0.01) if measured else None
        reason = {"completed": "", "skipped": "too-few-available", "aborted": "too-few-survivors"}[outcome]
        made.append(RecordedRound(started, now, exchanges, took_part, survivors, outcome, reason, accuracy))
    return write_run(path, experiment, made, finish=finish)
