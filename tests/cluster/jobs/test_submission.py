"""`testbed submit` and `testbed jobs` against a real head, with a dashboard that asks for a token."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

import workloads
from cluster.jobs.submission import MINIMUM_RAY
from testbed.engine.in_process import run_in_process
from testbed.experiment import load
from testbed.records import RunDirectory, RunRecords
from tests.repository import ROOT

pytestmark = pytest.mark.ray
CHECKOUT = ROOT
TINY = {
    "name": "tiny",
    "seed": 5,
    "rounds": 2,
    "population": 12,
    "workload": {"dataset": "benchmarks.breaking:Means"},  # without torch, so that processes start quickly
    "selection": {"participants": 5},
    "aggregation": {"protocol": "plain"},
    "availability": {"model": "trace", "path": "phones.csv"},
    "time": {"compute": "modelled", "deadline_s": 5},
    "cluster": {"hosts": 1},
}
Testbed = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Head:
    """A Ray head of this module's own."""

    address: str
    token: str
    home: Path


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, different from each other."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment without Ray's variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | more


def processes_of(directory: Path) -> list[psutil.Process]:
    """Return the processes with the directory in their command line or environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            named = (*process.cmdline(), *process.environ().values())
            if process.pid != os.getpid() and any(str(directory) in part for part in named):
                found.append(process)
    return found


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    """A head with dashboard and token, in a directory of its own; at the end no process of it is left."""
    directory = Path(tempfile.mkdtemp(prefix="tbj"))  # short: Unix sockets lie below it
    token = secrets.token_hex(32)
    port, dashboard, agent, client = free_ports(4)
    command = [
        Path(sys.executable).with_name("ray"), "start", "--head", "--block", "--disable-usage-stats",
        f"--port={port}", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}",
        f"--ray-client-server-port={client}", f"--temp-dir={directory / 'ray'}", "--num-cpus=2",
        "--object-store-memory=100000000", "--min-worker-port=0", "--max-worker-port=0",
    ]  # fmt: skip
    guarded = environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token, HOME=str(directory))
    with (directory / "head.log").open("w") as log:
        ray = subprocess.Popen(command, env=guarded, stdout=log, stderr=log, cwd=directory, start_new_session=True)
    try:
        head = Head(f"http://127.0.0.1:{dashboard}", token, directory)
        wait_for_dashboard(head, ray, directory / "head.log")
        yield head
    finally:
        started = processes_of(directory)
        ray.send_signal(signal.SIGTERM)  # with --block it ends the processes that it has started
        with contextlib.suppress(subprocess.TimeoutExpired):
            ray.wait(20)
        _, alive = psutil.wait_procs(started, timeout=20)
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(alive, timeout=10)
        left = processes_of(directory)
        shutil.rmtree(directory, ignore_errors=True)
    assert not left


def wait_for_dashboard(head: Head, ray: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return when the dashboard answers; connections are refused until then."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=Retry(total=10, backoff_factor=0.2)))
        answer = session.get(f"{head.address}/api/jobs/", headers={"Authorization": f"Bearer {head.token}"}, timeout=60)
    assert answer.status_code == 200, (answer.text, ray.poll(), log.read_text())


@pytest.fixture
def testbed(head: Head, tmp_path: Path) -> Testbed:
    """Run the command in a process of its own, in `tmp_path`, with the head's token (or `token`)."""

    def testbed(*arguments: str, token: str | None = head.token, **more: str) -> subprocess.CompletedProcess[str]:
        given = {} if token is None else {"RAY_AUTH_TOKEN": token}
        paths = {"HOME": str(tmp_path), "PYTHONPATH": str(CHECKOUT)}
        return subprocess.run(
            [sys.executable, "-m", "testbed", *arguments],
            cwd=tmp_path, env=environment(**paths, **given, **more), capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    return testbed


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """Reads a trace beside it."""
    lines = [f"{client},0,{1000 + client}" for client in range(12)]
    (tmp_path / "phones.csv").write_text("\n".join(["client,online_from_s,online_until_s", *lines]) + "\n")
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(TINY))
    return file


def test_submitted_followed_and_fetched_is_the_run_of_this_process(
    head: Head, testbed: Testbed, experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # RAY_ADDRESS, which Ray would let go before --address, names nothing that answers.
    done = testbed("submit", "tiny.yaml", "--address", head.address, "--follow", RAY_ADDRESS="http://127.0.0.1:1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("tiny: round 1/2 completed") == 1
    assert done.stdout.count("tiny: round 2/2 completed") == 1
    assert done.stderr.splitlines()[-1] == "results: runs/tiny"
    assert head.token not in done.stdout + done.stderr

    monkeypatch.chdir(tmp_path)
    here = load(experiment)
    records = RunDirectory.create(tmp_path / "here", here.plain())
    run_in_process(here, workloads.build(here.workload, here.population, 5), 0, records, lambda progress: None)
    fetched, local = RunRecords(tmp_path / "runs" / "tiny"), RunRecords(tmp_path / "here")
    for table in ("rounds", "exchanges", "participation", "events"):
        assert fetched.frame(table).equals(local.frame(table)), table
    assert fetched.model is not None
    assert local.model is not None
    assert fetched.model.tobytes() == local.model.tobytes()
    assert (head.home / "testbed-runs" / "tiny" / "summary.json").is_file()

    listed = testbed("jobs", "list", "--format", "json", RAY_API_SERVER_ADDRESS=head.address)
    (job,) = json.loads(listed.stdout)  # the job that fetched is none of the user's
    assert (job["state"], job["exit_code"], job["experiment"]) == ("SUCCEEDED", 0, "tiny")
    assert head.token not in json.dumps(job)

    # Resumed from elsewhere, with its trace in another place: the same experiment.
    (tmp_path / "moved").mkdir()
    (tmp_path / "phones.csv").rename(tmp_path / "moved" / "phones.csv")
    moved = ["--set", "availability.path=moved/phones.csv", "--set", "rounds=2"]
    again = testbed("submit", "tiny.yaml", "--address", head.address, *moved, "--resume", "--follow")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "tiny: finished before" in again.stdout


def test_a_running_job_is_stopped_and_its_rounds_stay(head: Head, testbed: Testbed, experiment: Path) -> None:
    from_here = ("--address", head.address)
    long = ["--set", "name=long", "--set", "rounds=1000000", "--set", "cluster.network=in-process"]
    long += ["--out", "results/long"]
    submitted = testbed("submit", "tiny.yaml", *from_here, *long)
    assert submitted.returncode == 0, submitted.stderr
    job = submitted.stdout.strip()
    assert job.startswith("long-")
    with following(head, job) as lines:
        assert any("long: round 3/" in line for line in lines)  # Ctrl-C after that
    early = testbed("jobs", "fetch", job, *from_here)
    assert early.returncode == 3
    assert "still running" in early.stderr
    stopped = testbed("jobs", "stop", job, *from_here)
    assert (stopped.returncode, "~/results/long" in stopped.stderr) == (0, True), stopped.stderr
    ended = testbed("jobs", "logs", job, "--follow", *from_here)
    assert ended.returncode == 130, ended.stderr
    fetched = testbed("jobs", "fetch", job, *from_here, "--to", "copy")
    assert fetched.stdout == "copy\n", fetched.stderr
    assert len(RunRecords(experiment.parent / "copy").rounds) >= 3


@contextlib.contextmanager
def following(head: Head, job: str) -> Iterator[Iterator[str]]:
    """The lines of ``testbed jobs logs --follow``, which is interrupted at the end."""
    command = [sys.executable, "-m", "testbed", "jobs", "logs", job, "--follow", "--address", head.address]
    variables = environment(RAY_AUTH_TOKEN=head.token, PYTHONPATH=str(CHECKOUT))
    process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "the job continues" in said
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("arguments", "token", "code", "expected"),
    [
        (("submit", "tiny.yaml"), None, 3, "requires a token and none was found"),
        (("submit", "tiny.yaml"), "5ec4e7" * 10, 3, "refuses the token from RAY_AUTH_TOKEN"),
        (("jobs", "logs", "nothing-123456"), "", 2, "no job nothing-123456"),
        (("submit", "tiny.yaml", "--set", "availability.path=nowhere.csv"), "", 2, "nowhere.csv"),
    ],
    ids=["no-token", "wrong-token", "unknown-job", "missing-file"],
)
def test_errors_are_one_line(
    head: Head, testbed: Testbed, experiment: Path, arguments: Any, token: str | None, code: int, expected: str
) -> None:
    given = {} if token == "" else {"token": token}
    done = testbed(*arguments, "--address", head.address, **given)
    assert done.returncode == code, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert expected in line
    assert "Traceback" not in done.stderr
    assert (token or head.token) not in done.stderr + done.stdout


def test_the_least_ray_is_that_of_the_project() -> None:
    assert f'"ray[default]>={MINIMUM_RAY}"' in (CHECKOUT / "pyproject.toml").read_text()
