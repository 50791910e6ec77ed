"""A small experiment that needs no Ray, and the command called in this process."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from testbed.cli import main
from tests.finished_runs import FinishedRuns
from tests.former_defaults import with_former_defaults

SMALL: dict[str, Any] = with_former_defaults(
    {
        "name": "small",
        "seed": 3,
        "rounds": 3,
        "population": 8,
        "workload": {"dataset": "digits", "model": "logistic"},
        "selection": {"participants": 4},
        "aggregation": {"protocol": "plain"},
        "availability": {"dropout": {"rate": 0.2, "stage": "random"}},
        "time": {"compute": "modelled", "deadline_s": 10},
        "cluster": {"network": "in-process"},
    }
)


@dataclass(frozen=True)
class Ended:
    """How a call of the command ended."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The lines on standard error."""
        return self.err.splitlines()

    def line(self, code: int, out: str | None = None) -> str:
        """The only line on standard error of a call that ended with `code` and printed `out` (None: anything)."""
        assert self.code == code, self.err
        assert out is None or self.out == out
        (line,) = self.errors
        return line


@pytest.fixture(autouse=True, scope="package")
def _commands_built_once() -> Iterator[None]:
    """Typer builds the tree of all commands and options anew for each call; a process of a user makes one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Call the command in this process."""

    def call(*arguments: object) -> Ended:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return call


@pytest.fixture
def ran(
    written: Callable[..., Path], finished_runs: FinishedRuns, call: Callable[..., Ended], tmp_path: Path
) -> Callable[..., Path]:
    """Copy a finished run of the small experiment with other values for some keys; returns the copy's directory."""

    def ran(name: str = "run", code: int = 0, **changes: Any) -> Path:
        file = written(**changes)

        def run(path: Path) -> None:
            ended = call("run", file, "--out", path, "--quiet")
            assert ended.code == code, ended.err

        return finished_runs.copy(file.read_text(), tmp_path / name, run)

    return ran


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Write the small experiment with other values for some keys."""

    def written(**changes: Any) -> Path:
        data = SMALL | changes
        path = tmp_path / "small.yaml"
        path.write_text(yaml.safe_dump(data, sort_keys=False))
        return path

    return written
