"""Pipes and devices are refused before they are opened: reading a pipe without a writer waits for ever."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main
from testbed.emulation.compute.cost import read_costs
from testbed.emulation.traces.columns import column_names
from testbed.emulation.traces.interval_files import read_batches
from testbed.emulation.traces.latency import read_latency_matrix
from testbed.emulation.traces.schedule import Schedule
from testbed.emulation.traces.series import BANDWIDTH, read_series
from testbed.errors import ExperimentError, TraceError
from testbed.experiment.reading import read_yaml

SAID = "cannot be read: a pipe or a device, not a regular file; name a file"
COLUMNS = ("--time-column", "1", "--value-column", "2", "--unit", "Mbit/s", "--no-header")
READERS: dict[str, Callable[[Path], Any]] = {
    "experiment.yaml": read_yaml,
    "costs.yaml": read_costs,
    "devices.csv": column_names,
    "availability.csv": read_batches,
    "latencies.csv": read_latency_matrix,
    "schedule.csv": Schedule.read,
    "bandwidth.txt": lambda path: read_series(path, BANDWIDTH),
}
COMMANDS = {
    "experiment.yaml": ("validate",),
    "trace.csv": ("trace", "inspect"),
    "log.csv": ("trace", "convert", "--kind", "bandwidth", "--from", "csv", *COLUMNS, "--out", "out.txt"),
    "timers.json": ("trace", "convert", "--from", "phone-intervals", "--out", "out.parquet"),
}


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    """End a test that hangs."""

    def stop(*_: object) -> None:
        raise AssertionError("it waits for bytes that do not come")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes a pipe that nobody writes to, in the working directory."""
    monkeypatch.chdir(tmp_path)

    def make(name: str) -> Path:
        os.mkfifo(name)
        return Path(name)

    return make


@pytest.mark.parametrize("name", READERS)
def test_readers_refuse_a_pipe(name: str, pipe: Callable[[str], Path]) -> None:
    with pytest.raises((ExperimentError, TraceError)) as caught:
        READERS[name](pipe(name))
    assert str(caught.value) == f"{name}: {SAID}"


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_refuse_a_pipe(name: str, pipe: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    command, *more = COMMANDS[name]
    verb = more[:1] if command == "trace" else []
    assert main([command, *verb, str(pipe(name)), *more[len(verb) :]]) == 2
    assert capsys.readouterr().err == f"error: {name}: {SAID}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_refuse_a_folder_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    command, *more = COMMANDS[name]
    verb = more[:1] if command == "trace" else []
    assert main([command, *verb, name, *more[len(verb) :]]) == 2
    assert capsys.readouterr().err.startswith(f"error: {name}: ")
