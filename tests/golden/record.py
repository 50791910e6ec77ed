"""Run the experiments and hash their records.

A run has a hash for each of its parts, so that a difference says where it is:

- ``experiment``: experiment.yaml without `provenance` (versions, machine, dates, paths), in the order of its keys.
- each table: its columns and rows, in their order. Not the Parquet bytes, which hold versions. A column that is null in
  every row is left out, so that a new column changes the hashes only of runs that fill it.
- ``evaluation``: the columns of ``rounds`` that say how good the model is; ``rounds`` is without them.
- ``texts``: sentences for people, i.e. the reasons of aborted rounds and the details of events. ``rounds`` and
  ``events`` are without them, but for the name of the check that was refused.
- ``model`` and ``memory``: the last checkpoint's.
- ``wire <stage>``: all questions and answers of a stage with their vectors, masks included, as they are encoded. Masks
  cancel in a sum, so no other part would change with them.
"""

import asyncio
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

import workloads
from testbed.engine.in_process import federation_in_process, to_the_end
from testbed.engine.plan import Plan
from testbed.experiment.schema import Experiment
from testbed.messages import Vector
from testbed.network.hosts import Delivery, HostAnswers, Hosts
from testbed.records import RunDirectory
from testbed.records.clients import read_clients
from testbed.records.schemas import SCHEMAS
from tests.engine.federations import Pulling
from tests.engine.quadratics import Quadratics
from tests.golden.experiments import EXPERIMENTS, SEED, GoldenExperiment

HASHES = Path(__file__).parent / "hashes.json"
HEX_DIGITS = 16  # of a SHA-256: enough to tell records apart, and short enough to read a difference

LEARNED_COLUMNS = (
    "accuracy", "loss", "recalls", "metrics", "attack_success", "client_accuracy_mean", "client_accuracy_worst_decile",
    "client_accuracy_std",
)  # fmt: skip
FOLLOWING_FROM_MODEL = frozenset({"evaluation", "model", "memory", "privacy"})  # and all that is on the wire
WIRE = "wire "


class WireHashes:
    """Hashes of the traffic of one run, by stage.

    Args:
        hosts: deliver the questions of the run; their `deliver` is replaced by one that listens.
    """

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._deliver = hosts.deliver
        self._by_stage: dict[str, Any] = defaultdict(hashlib.sha256)
        hosts.deliver = self.deliver  # type: ignore[method-assign]

    async def deliver(self, delivery: Delivery) -> HostAnswers:
        """Deliver as the hosts do, and hash the questions and answers."""
        answers = await self._deliver(delivery)
        answering = np.flatnonzero(answers.answered)
        with_vectors = np.array(
            [client for client in answers.clients[answering].tolist() if await self._has_vector(delivery, client)],
            np.int64,
        )
        vectors = await self._hosts.vectors(delivery.key, with_vectors)
        shared = answers.shared
        content = (
            delivery.kind.stage,  # not the name of its class, which may change
            delivery.header,
            [encoded(vector) for vector in delivery.vectors],
            delivery.recipients.tolist(),
            sorted((delivery.private or {}).items()),
            sorted(answers.headers.items()),
            [(client, encoded(vector)) for client, vector in sorted(vectors.items())],
            None if shared is None else (shared.clients.tolist(), shared.header),
        )
        self._by_stage[delivery.kind.stage].update(repr(content).encode())
        return answers

    async def _has_vector(self, delivery: Delivery, client: int) -> bool:
        try:
            await self._hosts.vectors(delivery.key, np.array([client], np.int64))
        except KeyError:
            return False
        return True

    def hashes(self) -> dict[str, str]:
        """The hash of each stage."""
        return {f"{WIRE}{stage}": done.hexdigest()[:HEX_DIGITS] for stage, done in sorted(self._by_stage.items())}


def encoded(vector: Vector) -> bytes:
    """Return the bytes of a vector on the wire, which has all its masks."""
    return vector.header() + vector.pack()


def workload_of(golden: GoldenExperiment, experiment: Experiment) -> Any:
    """Make the workload of an experiment."""
    if golden.workload == "digits":
        return workloads.build(experiment.workload, experiment.population, SEED)
    if golden.workload == "quadratics":
        return Quadratics.drawn(experiment.workload, experiment.population)
    return Pulling(experiment.population)


def run_golden(name: str, path: Path) -> dict[str, str]:
    """Run one of `EXPERIMENTS` in this process, record it in the directory `path`, and return its hashes."""
    golden = EXPERIMENTS[name]
    experiment = Experiment.model_validate(golden.sections)
    workload = workload_of(golden, experiment)
    records = RunDirectory.create(path, experiment.plain())

    async def run() -> WireHashes:
        federation = federation_in_process(Plan(experiment, 0), workload, records)
        wire = WireHashes(federation.network.hosts)
        await to_the_end(federation)
        return wire

    wire = asyncio.run(run())
    records.finish()
    return record_hashes(path) | wire.hashes()


def record_hashes(path: Path) -> dict[str, str]:
    """Hash the parts of a run's directory; see the head of this module."""
    records = RunDirectory(path)
    checkpoint = records.checkpoint()
    assert checkpoint is not None, f"{path}: no round was recorded"
    described = yaml.safe_load((path / "experiment.yaml").read_text())
    described.pop("provenance", None)
    tables = {name: records.table(name).to_pylist() for name in SCHEMAS}
    names = {
        name: [column for column in schema.names if column not in LEARNED_COLUMNS] for name, schema in SCHEMAS.items()
    }
    texts = [row["reason"] for row in tables["rounds"]] + [row["detail"] for row in tables["events"]]
    evaluation = [[row[column] for column in LEARNED_COLUMNS] for row in tables["rounds"]]
    tables["rounds"] = [
        without(row, LEARNED_COLUMNS) | {"reason": text_code(row["reason"])} for row in tables["rounds"]
    ]
    tables["events"] = [row | {"detail": text_code(row["detail"])} for row in tables["events"]]
    clients = read_clients(path)
    parts: dict[str, Any] = {
        "experiment": json.dumps(described),
        **{name: filled_columns(names[name], tables[name]) for name in SCHEMAS if tables[name]},
        "clients": (clients.schema.names, clients.to_pylist()),
        "evaluation": evaluation,
        "texts": texts,
        "model": array_content(checkpoint.model),
        "memory": (
            checkpoint.round_number,
            checkpoint.now_s,
            array_content(checkpoint.participations),
            [(name, array_content(array)) for name, array in sorted(checkpoint.memory.items())],
        ),
    }
    return {name: hashlib.sha256(repr(part).encode()).hexdigest()[:HEX_DIGITS] for name, part in parts.items()}


def differing_parts(name: str, hashes: dict[str, str], pinned: dict[str, str], *, same_cpu: bool) -> list[str]:
    """Return the parts of a run with differing hashes, or with only one hash.

    Args:
        name: the experiment.
        hashes: of the run.
        pinned: those that they should be.
        same_cpu: whether this CPU rounds as the one on which `pinned` was written.
    """
    parts = (part for part in hashes | pinned if hashes.get(part) != pinned.get(part))
    if EXPERIMENTS[name].model_depends_on_cpu and not same_cpu:
        parts = (part for part in parts if part not in FOLLOWING_FROM_MODEL and not part.startswith(WIRE))
    return sorted(parts)


def cpu_kind() -> str:
    """Return the vector instructions that torch and numpy use here, on which their rounding depends."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    return f"torch {torch.backends.cpu.get_cpu_capability()}, numpy {' '.join(found)}"


def without(row: dict[str, Any], columns: Iterable[str]) -> dict[str, Any]:
    """Return a row without some columns."""
    return {name: value for name, value in row.items() if name not in columns}


def filled_columns(names: list[str], rows: list[dict[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the columns with a value in at least one row, and the rows with these columns alone."""
    empty = {name for name in names if all(row.get(name) is None for row in rows)}
    return [name for name in names if name not in empty], [without(row, empty) for row in rows]


def text_code(text: str) -> str:
    """Return the name at the head of a recorded sentence, e.g. that of the check that was refused."""
    return text.partition(":")[0]


def array_content(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    """Return the type, shape and bytes of an array."""
    return str(array.dtype), array.shape, array.tobytes()
