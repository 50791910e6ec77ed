"""``wandb``: a Weights & Biases run for each run, offline unless the experiment says otherwise.

Offline, nothing leaves the machine until you call ``wandb sync``. The library's additions about the machine,
the program, its code and its environment are switched off, and error reports too, as they look up a host.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from testbed.errors import RunError
from testbed.running.observers.export import Exporter, Row, identity, numbers, plain
from testbed.running.preparation import PlannedRun

_LONGEST_S = 20.0
_NOT_IN_A_PROJECT = re.compile(r"[/\\#?%:]")
_LONGEST_PROJECT = 128
_MAGIC = b":W&B"
_FILE_HEADER, _BLOCK, _HEADER = 7, 32768, 7  # bytes
_FULL, _FIRST, _LAST = 1, 2, 4


class WandbRuns(Exporter):
    """Exporter to Weights & Biases: the experiment as configuration, each round at its step.

    The files are below ``wandb/`` of the run's directory.

    Args:
        project: default: the experiment's name, with ``-`` for characters that project names cannot have.
        entity: owner of the project; default: the account's.
        mode: offline, or online (needs an account, and sends the exported data).
        directory: directory for the ``wandb/`` folder of all runs.
    """

    needs = ("wandb",)

    def __init__(
        self,
        project: str | None = None,
        entity: str | None = None,
        mode: Literal["offline", "online"] = "offline",
        directory: str | None = None,
    ) -> None:
        super().__init__()
        self._project, self._entity, self._mode, self._directory = project, entity, mode, directory
        self._runs: dict[Path, Any] = {}
        self._logged: dict[Path, int] = {}

    def opened(self, run: PlannedRun) -> int:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        where = self._folder(run)
        where.mkdir(parents=True, exist_ok=True)
        experiment, name = plain(run), identity(run)
        last = self._last_step(run)
        # Nothing about the machine, the code or the user leaves it: only the exported data.
        settings = wandb.Settings(
            mode=self._mode, root_dir=str(where), console="off", silent=True, disable_git=True, disable_code=True,
            save_code=False, x_disable_meta=True, x_disable_machine_info=True, x_disable_stats=True,
            x_save_requirements=False, host="",
        )  # fmt: skip
        self._runs[run.path] = wandb.init(
            project=self._project or _NOT_IN_A_PROJECT.sub("-", str(experiment["name"]))[:_LONGEST_PROJECT],
            entity=self._entity,
            id=name,
            name=run.label,
            config={key: value for key, value in experiment.items() if key != "output"},
            resume="allow",
            reinit="create_new",
            settings=settings,
        )
        return last

    def write(self, run: PlannedRun, row: Row) -> None:
        self._runs[run.path].log(numbers(row), step=row["round"], commit=True)
        self._logged[run.path] = row["round"]

    def closed(self, run: PlannedRun, summary: Mapping[str, Any] | None) -> None:
        self._runs.pop(run.path).finish(exit_code=0 if summary is not None else 1)
        logged, waits_until = self._logged.pop(run.path, 0), time.monotonic() + _LONGEST_S
        while self._last_step(run) < logged:  # its own process writes the file, and `finish` does not wait for it
            if time.monotonic() > waits_until:
                raise RunError(f"{self._folder(run)}: wandb has not written round {logged} within {_LONGEST_S:.0f} s")
            time.sleep(0.02)

    def _folder(self, run: PlannedRun) -> Path:
        # Absolute: the library's own process may have started in another folder.
        return (run.path if self._directory is None else Path(self._directory)).absolute()

    def _last_step(self, run: PlannedRun) -> int:
        files = self._folder(run).glob(f"wandb/*run-*/run-{identity(run)}.wandb")
        return max((step for file in files for step in steps(file)), default=0)


def steps(file: Path) -> Iterator[int]:
    """Yield the steps of a ``.wandb`` file, up to the first incomplete record.

    The file is a log in LevelDB's format: a header, then blocks of 32 KiB of records with checksum, length and kind;
    the records are the library's own messages.
    """
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    for data in _records(file.read_bytes()):
        record = Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            for item in record.history.item:
                if "_step" in (item.key, *item.nested_key):
                    yield int(item.value_json)


def _records(data: bytes) -> Iterator[bytes]:
    if not data.startswith(_MAGIC):
        return
    at, parts = _FILE_HEADER, b""
    while at + _HEADER <= len(data):
        # LevelDB fills the end of a block with zeros if no header fits into it.
        if _BLOCK - at % _BLOCK < _HEADER:
            at += _BLOCK - at % _BLOCK
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        begin, at = at + _HEADER, at + _HEADER + length
        if at > len(data) or kind == 0:
            return
        parts = data[begin:at] if kind in (_FULL, _FIRST) else parts + data[begin:at]
        if kind in (_FULL, _LAST):
            yield parts
