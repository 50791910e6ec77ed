"""Rounds to record without running any; and small runs whose records are mirrored at a URI, with what kills them."""

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import Plan
from testbed.experiment.schema import Experiment
from testbed.network.recorder import ANSWERED, DROPPED, Event, Exchanges
from testbed.records import RunDirectory, RunRecords, store
from testbed.records.checkpoints import Checkpoint
from testbed.records.store import Store
from testbed.records.tables import (
    OPTIONAL_TABLES,
    SCHEMAS,
    events_table,
    exchanges_table,
    participation_table,
    privacy_table,
)
from testbed.workload.contract import LocalUpdate


def tables_of(number: int) -> dict[str, pa.Table]:
    """A round's rows; round 2 is skipped, only odd rounds have events, later ones another stage."""
    skipped = number == 2
    clients = np.arange(3, dtype=np.int64)
    stage = Exchanges(
        "check-in" if number < 3 else f"stage-{number}", False, clients, float(number),
        np.array([number + 0.5, np.nan, number + 1]), clients + number, clients, clients * 2, clients * 3,
        clients * 0, clients * 0,
        np.array([0.1, 0.0, 0.2]), np.array([ANSWERED, DROPPED, ANSWERED], np.int8),
    )  # fmt: skip
    row = dict.fromkeys(SCHEMAS["rounds"].names) | {
        "round": number, "outcome": "skipped" if skipped else "completed", "reason": "too-few" if skipped else "",
        "started_s": float(number), "ended_s": number + 1.0, "behind_s": 0.0, "candidates": 3, "accuracy": number / 10,
    }  # fmt: skip
    events = [Event("check-in", "client:1", "refusal", f"test.check: in round {number}")] * (number % 2)
    return {
        "rounds": pa.Table.from_pylist([row], schema=SCHEMAS["rounds"]),
        "exchanges": exchanges_table(number, [stage]),
        "participation": participation_table(number, clients[: 0 if skipped else 2], clients[:1]),
        "events": events_table(number, events),
        "privacy": privacy_table(number, charged(clients[: 0 if skipped else 1])),
    }


def charged(clients: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of the privacy ledger."""
    numbers = dict.fromkeys(SCHEMAS["privacy"].names[2:], np.full(len(clients), 0.5))
    return numbers | {"client": clients, "noise": np.full(len(clients), np.nan)}


def checkpoint_of(number: int) -> Checkpoint:
    """Where the run stands after a round."""
    return Checkpoint(number, number + 1.0, np.full(4, number, np.float32), np.full(3, number), 2.0 * number)


def record(directory: RunDirectory, number: int) -> None:
    """Append a round."""
    directory.append_round(tables_of(number), checkpoint_of(number))


@pytest.fixture
def record_round() -> Callable[[RunDirectory, int], None]:
    """See `record`."""
    return record


@pytest.fixture
def expected_rows() -> Callable[[str, int], list[dict]]:
    """The rows of a table after so many rounds."""

    def rows(table: str, rounds: int) -> list[dict]:
        return [row for number in range(1, rounds + 1) for row in tables_of(number)[table].to_pylist()]

    return rows


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    """Where a run goes."""
    return tmp_path / "run"


# -- runs at a URI ----------------------------------------------------------------------------------------------------

ROUNDS = 3
EXPERIMENT = {
    "name": "mirrored", "seed": 3, "rounds": ROUNDS, "population": 8, "selection": {"participants": 4},
    "aggregation": {"protocol": "plain"}, "time": {"compute": "modelled"},
    "availability": {"dropout": {"rate": 0.3, "stage": "random"}},
}  # fmt: skip


@pytest.fixture
def with_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs keep a privacy ledger, too."""
    noise = {"protocol": "plain", "weights": "equal", "noise": {"noise_multiplier": 2.0}}
    monkeypatch.setitem(EXPERIMENT, "aggregation", noise)


class Killed(BaseException):
    """The process is gone."""


class Drifting:
    """A small workload: what a client learns depends on (client, round, model) alone."""

    dimension = 5
    sample_counts = np.arange(1, 9)

    def initial_model(self) -> np.ndarray:
        return np.zeros(self.dimension, np.float32)

    def train(self, client: int, model: np.ndarray, round_number: int) -> Any:
        delta = np.random.default_rng((client, round_number)).normal(0, 0.1, self.dimension) - 0.3 * model
        return LocalUpdate(delta=delta.astype(np.float32), samples=client + 1, loss=1.0, examples_processed=3)

    def evaluate(self, model: np.ndarray) -> Any:
        return SimpleNamespace(loss=float(np.abs(model).sum()), accuracy=0.5, samples=10)


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the disk nor before what has failed is tried again."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(store, "PAUSES_S", (0.0, 0.0))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_waiting: None) -> Callable[[str], None]:
    """Be on the machine of this name: each has a cache of its own."""

    def be(name: str) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches" / name))

    be("a")
    return be


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Where the records of a run belong."""
    return (tmp_path / "remote" / "run").as_uri()


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The parameters of an S3 server on loopback, which has a bucket named ``results``."""
    pytest.importorskip("moto.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", address.rpartition(":")[2]]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ACCESS_KEY_ID", "somebody")
        patched.setenv("AWS_SECRET_ACCESS_KEY", "very secret")
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(600):
                try:
                    socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 1).close()
                    break
                except OSError:
                    assert server.poll() is None
                    time.sleep(0.1)
            parameters = f"endpoint_override={address}&scheme=http&region=us-east-1"
            made, _ = fs.FileSystem.from_uri(f"s3://results?{parameters}&allow_bucket_creation=true")
            made.create_dir("results")
            yield parameters
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


def live_on(path: Path, rounds: int = ROUNDS, *, finish: bool = True) -> None:
    """Begin or resume the run and bring it to its end."""
    experiment = Experiment.model_validate(EXPERIMENT)
    if (path / "experiment.yaml").is_file():
        records = RunDirectory.reopen(path)
    else:
        records = RunDirectory.create(path, experiment.plain())
    federation = federation_in_process(Plan(experiment, 0), Drifting(), records)

    async def run() -> None:
        while federation.state.round_number < rounds:
            await federation.run_next_round()

    asyncio.run(run())
    if finish:
        records.finish()
        records.write_summary({"rounds": rounds})
    elif records._mirror is not None and (failure := records._mirror.failure()) is not None:
        raise failure


def contents_of(path: Path) -> dict[str, Any]:
    """All tables and the bits of the model; what a resumed run records of its being resumed is left out."""
    run = RunRecords(path)
    tables = {name: RunDirectory(path).table(name).to_pylist() for name in SCHEMAS}
    tables["events"] = [row for row in tables["events"] if row["kind"] != "resume"]
    return tables | {"model": None if run.model is None else run.model.tobytes()}


@pytest.fixture
def live() -> Callable[..., None]:
    """See `live_on`."""
    return live_on


@pytest.fixture
def contents() -> Callable[[Path], dict[str, Any]]:
    """See `contents_of`."""
    return contents_of


@pytest.fixture
def undisturbed(tmp_path: Path, no_waiting: None) -> dict[str, Any]:
    """The contents of a run that nothing has happened to."""
    live_on(tmp_path / "undisturbed")
    return contents_of(tmp_path / "undisturbed")


@pytest.fixture
def finished_names() -> set[str]:
    """The files of a finished run; not the log, which is for people."""
    tables = {f"{name}.parquet" for name in SCHEMAS.keys() - OPTIONAL_TABLES}
    return {"experiment.yaml", "checkpoint.npz", "summary.json", *tables}


@pytest.fixture
def remote_names() -> Callable[[str], set[str]]:
    """The files at a URI, without logs."""
    return lambda uri: {name for name in Store(uri).files() if not name.endswith("log.jsonl")}


@pytest.fixture
def killed() -> type[BaseException]:
    """What `cut_off` raises."""
    return Killed


@pytest.fixture
def cut_off() -> Callable[[pytest.MonkeyPatch, int], None]:
    """The process dies when it begins the change at the URI after so many."""

    def cut(monkeypatch: pytest.MonkeyPatch, uploads: int) -> None:
        count = itertools.count(1)

        def dying(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(self: Store, *arguments: Any) -> Any:
                if next(count) > uploads:
                    raise Killed
                return real(self, *arguments)

            return call

        monkeypatch.setattr(Store, "put", dying(Store.put))
        monkeypatch.setattr(Store, "delete_below", dying(Store.delete_below))

    return cut
