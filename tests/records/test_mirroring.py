"""Records at a URI: a kill at any upload loses nothing, machines take turns, what cannot work is said at once."""

import asyncio
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pyarrow import fs

from testbed.commands import main
from testbed.errors import ExperimentError, RunError
from testbed.experiment.schema import Experiment
from testbed.federation import Plan
from testbed.in_process import federation_in_process
from testbed.records import RunDirectory, RunRecords, store
from testbed.records.mirroring import fetched, is_uri, staged
from testbed.records.pushing import Mirror
from testbed.records.store import Store
from testbed.records.tables import SCHEMAS
from testbed.running.locking import held

ROUNDS = 3
EXPERIMENT = {
    "name": "mirrored", "seed": 3, "rounds": ROUNDS, "population": 8, "selection": {"participants": 4},
    "aggregation": {"protocol": "plain"}, "time": {"compute": "modelled"},
    "availability": {"dropout": {"rate": 0.3, "stage": "random"}},
}  # fmt: skip


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
        return SimpleNamespace(delta=delta.astype(np.float32), samples=client + 1, loss=1.0, examples_processed=3)

    def evaluate(self, model: np.ndarray) -> Any:
        return SimpleNamespace(loss=float(np.abs(model).sum()), accuracy=0.5, samples=10)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(store, "PAUSES_S", (0.0, 0.0))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Be on the machine of this name: each has a cache of its own."""

    def be(name: str) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches" / name))

    be("a")
    return be


@pytest.fixture
def uri(tmp_path: Path) -> str:
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


def live(path: Path, rounds: int = ROUNDS, *, finish: bool = True) -> None:
    """Begin or go on with the run and bring it to its end."""
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


def contents(path: Path) -> dict[str, Any]:
    """All tables and the bits of the model; what a resumed run records of its being resumed is left out."""
    run = RunRecords(path)
    tables = {name: RunDirectory(path).table(name).to_pylist() for name in SCHEMAS}
    tables["events"] = [row for row in tables["events"] if row["kind"] != "resume"]
    return tables | {"model": None if run.model is None else run.model.tobytes()}


@pytest.fixture
def undisturbed(tmp_path: Path) -> dict[str, Any]:
    live(tmp_path / "undisturbed")
    return contents(tmp_path / "undisturbed")


def remote_names(uri: str) -> set[str]:
    """The files at the URI; not the log, which is for people."""
    return {name for name in Store(uri).files() if not name.endswith("log.jsonl")}


def cut_off(monkeypatch: pytest.MonkeyPatch, uploads: int) -> None:
    """The process dies when it begins the change at the URI after so many."""
    count = itertools.count(1)

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Store, *arguments: Any) -> Any:
            if next(count) > uploads:
                raise Killed
            return real(self, *arguments)

        return call

    monkeypatch.setattr(Store, "put", dying(Store.put))
    monkeypatch.setattr(Store, "delete_below", dying(Store.delete_below))


FINISHED = {"experiment.yaml", "checkpoint.npz", "summary.json", *(f"{name}.parquet" for name in SCHEMAS)}


def kill_at_every_upload(
    place: str, machine: Callable[[str], None], undisturbed: dict[str, Any], every: int = 1
) -> int:
    for uploads in itertools.count(0, every):
        uri = place.format(f"run-{uploads}")
        machine(f"first-{uploads}")
        path = staged(uri)
        with pytest.MonkeyPatch.context() as patched:
            cut_off(patched, uploads)
            try:
                live(path)
                died = False
            except Killed:
                died = True
        machine(f"second-{uploads}")
        if "experiment.yaml" in remote_names(uri):  # what can be read meanwhile is a whole number of rounds
            there = fetched(uri)
            rounds = RunDirectory(there).table("rounds")["round"].to_pylist()
            expected = [row for row in undisturbed["exchanges"] if row["round"] <= len(rounds)]
            assert rounds == list(range(1, len(rounds) + 1))
            assert RunDirectory(there).table("exchanges").to_pylist() == expected
        path = staged(uri)
        live(path)
        assert contents(path) == undisturbed
        assert remote_names(uri) == FINISHED
        machine(f"third-{uploads}")
        assert contents(fetched(uri)) == undisturbed
        if not died:
            return uploads
    raise AssertionError


def test_a_kill_at_any_upload_and_another_machine_comes_to_the_same_result(
    tmp_path: Path, machine: Callable[[str], None], undisturbed: dict[str, Any]
) -> None:
    # experiment, 3 x (4 tables, checkpoint), 4 merged tables, summary, log, the parts
    assert kill_at_every_upload((tmp_path / "remote").as_uri() + "/{}", machine, undisturbed) == 23


def test_the_same_at_an_object_store(s3: str, machine: Callable[[str], None], undisturbed: dict[str, Any]) -> None:
    place = f"s3://results/{uuid.uuid4()}/{{}}?{s3}"
    assert kill_at_every_upload(place, machine, undisturbed, every=5) == 25


def test_a_killed_pull_is_begun_again(
    uri: str, tmp_path: Path, machine: Callable[[str], None], undisturbed: dict[str, Any]
) -> None:
    live(staged(uri), 2, finish=False)
    real = Store.copy_to
    for copies in range(12):
        machine(f"pulls-{copies}")
        count = itertools.count(1)

        def dying(self: Store, *arguments: Any, copies: int = copies, count: Iterator[int] = count) -> None:
            if next(count) > copies:
                raise Killed
            real(self, *arguments)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Store, "copy_to", dying)
            try:
                path = staged(uri)
                died = False
            except Killed:
                died = True
        path = staged(uri)
        assert RunDirectory(path).checkpoint().round_number == 2
        assert RunDirectory(path).table("rounds").num_rows == 2
        if not died:
            break
    assert copies == 10  # experiment, checkpoint, 2 x 4 tables
    live(path)
    assert contents(path) == undisturbed


def test_machines_take_turns(uri: str, machine: Callable[[str], None], undisturbed: dict[str, Any]) -> None:
    live(staged(uri), 1, finish=False)
    machine("b")
    live(staged(uri), 2, finish=False)
    machine("a")  # whose copy is older
    path = staged(uri)
    assert RunDirectory(path).checkpoint().round_number == 2
    live(path)
    machine("b")  # older, and in parts, while the tables are merged at the URI
    path = staged(uri)
    assert not (path / "parts").exists()
    assert contents(path) == undisturbed
    assert json.loads((path / "summary.json").read_text()) == {"rounds": ROUNDS}


def test_a_copy_that_is_ahead_is_pushed(
    uri: str, machine: Callable[[str], None], undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = staged(uri)
    live(path, 1, finish=False)
    with pytest.MonkeyPatch.context() as patched:
        cut_off(patched, 0)
        with pytest.raises(Killed):
            live(path, 2, finish=False)
    assert staged(uri) == path
    machine("b")
    assert RunDirectory(staged(uri)).checkpoint().round_number == 2
    live(staged(uri))
    assert contents(staged(uri)) == undisturbed


def test_two_machines_at_once_are_noticed(
    uri: str, machine: Callable[[str], None], undisturbed: dict[str, Any]
) -> None:
    first = staged(uri)
    live(first, 1, finish=False)
    machine("b")
    second = staged(uri)
    live(second, 2, finish=False)
    with pytest.MonkeyPatch.context() as patched:
        cut_off(patched, 0)  # not one file of theirs is touched
        with pytest.raises(RunError, match="another machine writes to this URI") as error:
            live(first)
    assert "\n" not in str(error.value)
    assert "--resume" in str(error.value)
    live(second)
    assert contents(second) == undisturbed
    machine("a")
    assert contents(staged(uri)) == undisturbed


def test_at_the_same_round_the_uri_wins(uri: str, machine: Callable[[str], None], undisturbed: dict[str, Any]) -> None:
    path = staged(uri)
    live(path, 1, finish=False)
    with pytest.MonkeyPatch.context() as patched:
        cut_off(patched, 0)
        with pytest.raises(Killed):
            live(path, 2, finish=False)
    ours = (path / "checkpoint.npz").read_bytes()
    machine("b")
    live(staged(uri), 2, finish=False)
    theirs = Store(uri).read("checkpoint.npz")
    machine("a")
    assert (staged(uri) / "checkpoint.npz").read_bytes() == theirs != ours
    live(path)
    assert contents(path) == undisturbed


def test_what_one_machine_has_merged_comes_to_the_other(
    uri: str, machine: Callable[[str], None], undisturbed: dict[str, Any]
) -> None:
    live(staged(uri), finish=False)
    machine("b")
    assert (staged(uri) / "parts").exists()
    machine("a")
    path = staged(uri)
    with pytest.MonkeyPatch.context() as patched:
        cut_off(patched, 6)  # 4 tables, summary, log; the parts stay
        with pytest.raises(Killed):
            live(path)
    assert remote_names(uri) > FINISHED
    staged(uri)  # does what is left to do
    assert remote_names(uri) == FINISHED
    machine("b")
    path = staged(uri)
    assert not (path / "parts").exists()
    assert (path / "summary.json").is_file()
    assert contents(path) == undisturbed


def test_a_coordinator_that_dies_when_its_checkpoint_is_up_is_replaced_without_looking(
    uri: str, machine: Callable[[str], None], undisturbed: dict[str, Any]
) -> None:
    path = staged(uri)
    real = Mirror.remember

    def dying(self: Mirror, memory: Any) -> None:
        if memory.same is not None:
            raise Killed
        real(self, memory)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Mirror, "remember", dying)
        with pytest.raises(Killed):
            live(path)
    assert "checkpoint.npz" in remote_names(uri)
    live(path)  # the same directory, and nobody called `staged`
    assert contents(path) == undisturbed
    assert remote_names(uri) == FINISHED


def test_nothing_is_merged_that_is_not_at_the_uri(uri: str, machine: Callable[[str], None]) -> None:
    path = staged(uri)
    real = Store._write

    def failing(self: Store, name: str, content: Any) -> None:
        if name.startswith("parts/round-000003"):
            raise OSError("AWS Error SLOW_DOWN")
        real(self, name, content)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Store, "_write", failing)
        with pytest.raises(RunError, match="SLOW_DOWN"):
            live(path)
    assert len(list(path.glob("parts/round-000003/*.parquet"))) == 4
    assert not (path / "rounds.parquet").exists()


def test_two_machines_that_begin_at_once(uri: str, machine: Callable[[str], None]) -> None:
    first = staged(uri)
    machine("b")
    RunDirectory.create(staged(uri), {"name": "theirs"})
    with pytest.raises(RunError, match="another machine has begun a run here"):
        RunDirectory.create(first, {"name": "ours"})


def test_a_run_that_was_removed_or_replaced_is_put_aside(
    uri: str, tmp_path: Path, machine: Callable[[str], None]
) -> None:
    path = staged(uri)
    live(path)
    kept = (path / "checkpoint.npz").read_bytes()
    remote = tmp_path / "remote" / "run"
    shutil.rmtree(remote)
    assert not (staged(uri) / "experiment.yaml").exists()
    (aside,) = path.with_name(f"{path.name}.aside").iterdir()
    assert (aside / "checkpoint.npz").read_bytes() == kept
    RunDirectory.create(staged(uri), {"name": "first"})
    machine("b")
    shutil.rmtree(remote)
    RunDirectory.create(staged(uri), {"name": "second"})
    machine("a")
    assert RunRecords(staged(uri)).label == "second"


def test_reading_writes_nothing_at_the_uri_and_leaves_a_running_copy_alone(
    uri: str, machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = staged(uri)
    live(path, 2, finish=False)
    machine("b")
    with pytest.MonkeyPatch.context() as patched:
        cut_off(patched, 0)
        assert RunDirectory(fetched(uri)).table("rounds").num_rows == 2
    live(staged(uri))
    machine("a")
    with held(path):
        assert RunDirectory(fetched(uri)).checkpoint().round_number == 2
        with pytest.raises(RunError, match="in use by another run"):
            staged(uri)
    assert RunDirectory(fetched(uri)).checkpoint().round_number == ROUNDS


def test_only_what_is_missing_is_pulled(uri: str, machine: Callable[[str], None]) -> None:
    live(staged(uri), 2, finish=False)
    machine("b")
    path = staged(uri)
    machine("a")
    live(staged(uri), 3, finish=False)
    machine("b")
    copied: list[str] = []
    real = Store.copy_to
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Store, "copy_to", lambda self, name, to: (copied.append(name), real(self, name, to))[1])
        staged(uri)
        assert sorted(copied) == ["checkpoint.npz", *sorted(f"parts/round-000003/{name}.parquet" for name in SCHEMAS)]
        copied.clear()
        staged(uri)
        assert copied == []
    assert RunDirectory(path).table("rounds").num_rows == 3


# -- the command --------------------------------------------------------------------------------------------------

SWEEP = """\
name: swept
seed: 1
rounds: 2
population: 8
workload: {dataset: digits, model: logistic}
aggregation: {protocol: plain}
time: {compute: modelled}
cluster: {network: in-process}
sweep: {selection.participants: [2, 4]}
"""


def test_a_sweep_at_an_object_store(
    s3: str, tmp_path: Path, machine: Callable[[str], None], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "swept.yaml").write_text(SWEEP)
    place = f"s3://results/{uuid.uuid4()}?{s3}"
    assert main(["run", "swept.yaml", "--out", place, "--quiet"]) == 0
    capsys.readouterr()
    points = {"participants=2", "participants=4"}
    assert remote_names(place) == {f"{point}/{name}" for point in points for name in FINISHED}
    machine("reader")
    assert main(["dropouts", place, "--format", "csv"]) == 0
    table = capsys.readouterr().out
    assert all(point in table for point in points)
    assert main(["run", "swept.yaml", "--out", place, "--quiet"]) == 3
    assert "already holds a run" in capsys.readouterr().err
    assert main(["run", "swept.yaml", "--out", place, "--quiet", "--resume", "--set", "seed=2"]) == 2
    assert "this run has seed: 1" in capsys.readouterr().err
    assert main(["run", "swept.yaml", "--out", place, "--quiet", "--resume"]) == 0


# -- what cannot work is said before anything runs -------------------------------------------------------------------


def test_what_is_a_uri() -> None:
    assert is_uri("s3://bucket/path")
    assert is_uri("file:///tmp")
    assert not is_uri("runs/monday")
    assert not is_uri("C:\\runs")
    assert not is_uri(Path("s3://bucket"))
    assert staged("runs/monday") == fetched(Path("runs/monday")) == Path("runs/monday")


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("s3://KEY:SECRET@bucket/path", "credentials before the host"),
        ("s3://SECRET@bucket/path", "credentials before the host"),
        ("s3://KEY:SEC/RET@bucket/path", "AWS_PROFILE"),
        ("hdfs://me:SECRET@host/path", "credentials before the host"),
        ("s3://bucket/path?access_key=SECRET", "the parameter access_key"),
        ("s3://bucket/path?region=x&secret_key=SECRET", "in the environment"),
        ("s3://bucket/path?session_token=SECRET", "session_token"),
        ("abfs://c@account/path?sig=SECRET", "the parameter sig"),
        ("s3://bucket?surprise=1", "surprise"),
        ("s3://", "names no bucket"),
        ("nowhere://host/path", "nowhere"),
        (Path("s3://bucket/path"), "lost a slash"),
    ],
)
def test_a_uri_that_cannot_be_used(uri: str | Path, says: str, machine: Callable[[str], None]) -> None:
    for use in (staged, fetched):
        with pytest.raises(ExperimentError, match=says) as error:
            use(uri)
        assert "\n" not in str(error.value)
        assert "SEC" not in str(error.value).replace("AWS_SECRET_ACCESS_KEY", "")


def test_secrets_in_an_experiment_are_refused_and_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text("output: {directory: 's3://KEY:SECRET@bucket'}\n")
    assert main(["validate", str(file)]) == 2
    said = capsys.readouterr()
    assert "output.directory" in said.err
    assert "KEY:SEC" not in said.out + said.err
    assert (
        Experiment.model_validate({"output": {"directory": "s3://b/x?region=r"}}).output.directory
        == "s3://b/x?region=r"
    )


def test_no_such_bucket_and_no_server_are_one_line(s3: str, machine: Callable[[str], None]) -> None:
    with pytest.raises(RunError, match=r"NO_SUCH_BUCKET.*make the bucket first") as error:
        staged(f"s3://nothing-here/run?{s3}")
    assert "\n" not in str(error.value)
    with pytest.raises(RunError, match="no runs here"):
        fetched(f"s3://results/{uuid.uuid4()}?{s3}")


def test_a_place_with_other_things_is_refused(uri: str, tmp_path: Path, machine: Callable[[str], None]) -> None:
    other = tmp_path / "remote" / "run" / "photos" / "cat.png"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"meow")
    with pytest.raises(RunError, match="is not empty and holds no run"):
        staged(uri)
    with pytest.raises(RunError, match="no runs here"):
        fetched(uri)
    assert remote_names(uri) == {"photos/cat.png"}


@pytest.mark.parametrize(("failures", "passes"), [(2, True), (1000, False)])
def test_failures_that_may_pass_are_tried_again_and_not_for_ever(
    failures: int, passes: bool, uri: str, machine: Callable[[str], None], undisturbed: dict[str, Any]
) -> None:
    path = staged(uri)
    live(path, 1, finish=False)
    count = itertools.count(1)
    real = Store._write

    def failing(self: Store, *arguments: Any) -> None:
        if next(count) <= failures:
            raise OSError("AWS Error SLOW_DOWN during PutObject operation: please (Request ID: x)")
        real(self, *arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Store, "_write", failing)
        if passes:
            live(path)
        else:
            with pytest.raises(
                RunError, match=r"cannot write: AWS Error SLOW_DOWN .*: please; what is recorded"
            ) as error:
                live(path)
            assert "\n" not in str(error.value)
            assert RunDirectory(path).checkpoint().round_number == 3  # recorded, and not lost
            assert RunDirectory(path).table("rounds").num_rows == 3
    live(staged(uri))
    machine("b")
    assert contents(fetched(uri)) == undisturbed


def test_a_refusal_is_not_tried_again(uri: str, machine: Callable[[str], None]) -> None:
    count = itertools.count(1)

    def refusing(self: Store, *arguments: Any) -> None:
        next(count)
        raise OSError("AWS Error ACCESS_DENIED during PutObject operation: no")

    path = staged(uri)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Store, "_write", refusing)
        with pytest.raises(RunError, match="are the credentials in the environment right"):
            RunDirectory.create(path, {"name": "x"})
    assert next(count) == 2


def test_a_local_run_has_no_mirror(tmp_path: Path) -> None:
    live(tmp_path / "plain")
    assert Mirror.of(tmp_path / "plain") is None
    assert not [file for file in (tmp_path / "plain").iterdir() if file.name.startswith(".mirror")]
