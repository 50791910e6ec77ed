"""The table of clients: written once, then read unchanged or refused."""

from pathlib import Path

import numpy as np
import pytest

from testbed.errors import RunError
from testbed.records import RunDirectory, RunRecords
from testbed.records.clients import FILE, SCHEMA, clients_table
from tests.records.rounds import record_round

COLUMNS = {
    "down_mbit_s": np.array([20.0, 1e3, np.inf]),
    "up_mbit_s": np.array([1.5, 0.0, 3.0]),
    "latency_ms": np.array([0.0, 12.5, 300.0]),
    "loss": np.broadcast_to(np.zeros(()), 3),
    "device_factor": np.array([1.0, 2.0, 0.3]),
    "samples": np.array([5, 0, 7]),
}
TABLE = clients_table(("fibre", "phone"), np.array([1, 0, 1], np.int16), COLUMNS)


@pytest.fixture
def directory(run_path: Path) -> RunDirectory:
    """A run that has begun."""
    return RunDirectory.create(run_path, {"name": "with-clients", "rounds": 1, "population": 3})


def test_what_was_written_is_read(directory: RunDirectory) -> None:
    directory.write_clients(TABLE)
    run = RunRecords(directory.path)
    assert run.clients["client"].tolist() == [0, 1, 2]
    assert run.clients["class"].tolist() == ["phone", "fibre", "phone"]
    for name, column in COLUMNS.items():
        assert run.clients[name].tolist() == column.tolist()
    assert run.frame("clients").equals(run.clients)
    assert list(run.clients.columns) == SCHEMA.names


def test_it_is_written_once(directory: RunDirectory) -> None:
    directory.write_clients(TABLE)
    before = (directory.path / FILE).stat()
    directory.write_clients(clients_table(("other",), np.zeros(3, np.int16), COLUMNS))
    assert (directory.path / FILE).stat() == before
    assert set(RunRecords(directory.path).clients["class"]) == {"fibre", "phone"}


def test_runs_of_earlier_versions_have_none(directory: RunDirectory) -> None:
    record_round(directory, 1)
    directory.finish()
    run = RunRecords(directory.path)
    assert run.clients.empty
    assert list(run.clients.columns) == SCHEMA.names
    assert run.verifiable


def test_no_flipped_bit_gives_other_clients(directory: RunDirectory) -> None:
    directory.write_clients(TABLE)
    file = directory.path / FILE
    whole, expected = file.read_bytes(), RunRecords(directory.path).clients
    unnoticed = 0
    for byte in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[byte] ^= 1 << byte % 8
        file.write_bytes(damaged)
        try:
            rows = RunRecords(directory.path).clients
        except RunError:
            continue
        unnoticed += 1
        assert rows.equals(expected)
    assert unnoticed <= 16  # in the key of the digest, which then is none
    file.write_bytes(whole[:-9])
    with pytest.raises(RunError, match=f"^{directory.path}: the table 'clients' is damaged"):
        _ = RunRecords(directory.path).clients
    file.write_bytes(whole.replace(b"testbed.sha256", b"testbed.sha257"))
    assert not RunRecords(directory.path).verifiable
