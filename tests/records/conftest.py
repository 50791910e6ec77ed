"""Where runs are recorded, on disk and at a URI."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from testbed.records import store
from testbed.records.schemas import OPTIONAL_TABLES, SCHEMAS
from tests.records.mirrored import EXPERIMENT, contents, live


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    """Where a run goes."""
    return tmp_path / "run"


@pytest.fixture
def with_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs keep a privacy ledger, too."""
    noise = {"protocol": "plain", "weights": "equal", "noise": {"noise_multiplier": 2.0}}
    monkeypatch.setitem(EXPERIMENT, "aggregation", noise)


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once after a failure."""
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


@pytest.fixture
def undisturbed(tmp_path: Path, no_waiting: None) -> dict[str, Any]:
    """The contents of a run that nothing has happened to."""
    live(tmp_path / "undisturbed")
    return contents(tmp_path / "undisturbed")


@pytest.fixture
def finished_names() -> set[str]:
    """The files of a finished run; not the log, which is for people."""
    tables = {f"{name}.parquet" for name in SCHEMAS.keys() - OPTIONAL_TABLES}
    return {"experiment.yaml", "checkpoint.npz", "summary.json", "clients.parquet", *tables}
