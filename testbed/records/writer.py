"""Writing of a run's directory: append-only, a round at a time, resumable, by one process at a time.

While a run is in progress, each finished round is a folder of small Parquet files under ``parts/``; ``checkpoint.npz``
names the last finished round and has the model after it. Both are written under temporary names and renamed, the
checkpoint last, so a killed run loses at most its current round. The previous checkpoint is kept (see `arrays`).

`finish` merges the parts into one file per table. A kill at any moment neither loses nor duplicates a row, and a
finished run can be resumed.

An attempt at a round that was not recorded is charged when the round is repeated (`attempts`). A directory that
is the local copy of a URI (see `mirror`) has a `Mirror`, to which new records are pushed.
"""

import contextlib
import json
import re
import shutil
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import yaml

from testbed.errors import RunError, reason
from testbed.files import parquet as parquet_files
from testbed.records import arrays
from testbed.records.arrays import Checkpoint, cannot_write, replacing
from testbed.records.attempts import ReleaseAttempt, add_attempt, read_attempts
from testbed.records.clients import FILE as CLIENTS_FILE
from testbed.records.last_evaluations import drop_moved_evaluations
from testbed.records.locks import LOCK, WRITER
from testbed.records.schemas import SCHEMAS
from testbed.records.tables import MERGED_UP_TO, damaged, has_table, part_of, read_table, recorded_files, write_merged
from testbed.records.uploads import ATTEMPTS, EXPERIMENT, MARK, SUMMARY, Mirror


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes strings such as 1e-3, which `testbed.experiment` would read as numbers."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[.0-9]+[eE][-+]?\d+$"), list("-+.0123456789")
)


class RunDirectory:
    """One run's directory, open for writing.

    Args:
        path: the directory.

    Attributes:
        lost: why the last checkpoint is unusable, if `checkpoint` returned the previous one in its place; otherwise
            empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost = ""

    @cached_property
    def _mirror(self) -> Mirror | None:
        return Mirror.of(self.path)

    @classmethod
    def create(cls, path: Path, experiment: Mapping[str, Any]) -> "RunDirectory":
        """Create a new run.

        Raises:
            RunError: `path` already contains a run, or is not an empty directory.
        """
        if path.exists() and not is_empty(path):
            state = "already contains a run" if (path / EXPERIMENT).exists() else "exists and is not an empty directory"
            raise RunError(f"{path}: {state}; give another --out, or --resume to continue it")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{path}: cannot create the directory: {error.strerror}") from None
        directory = cls(path)
        directory.replace_experiment(experiment)
        return directory

    def replace_experiment(self, experiment: Mapping[str, Any]) -> None:
        """Write the experiment, completely or not at all.

        Raises:
            RunError: it cannot be written.
        """
        file = self.path / EXPERIMENT
        former = file.read_bytes() if file.is_file() else None
        with replacing(file) as new:
            new.write(yaml.dump(dict(experiment), Dumper=_Dumper, sort_keys=False, allow_unicode=True).encode())
        if self._mirror is not None:
            self._mirror.push_experiment(former)

    @classmethod
    def reopen(cls, path: Path) -> "RunDirectory":
        """Open an existing run to resume it.

        Raises:
            RunError: there is no run.
        """
        if not (path / EXPERIMENT).is_file():
            raise RunError(f"{path}: no run to resume here (no {EXPERIMENT}); leave out --resume to start one")
        return cls(path)

    def checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint (if it is lost, the previous one); None before the first round has ended.

        Raises:
            RunError: rounds have been recorded and there is no usable checkpoint.
        """
        loaded = arrays.read_checkpoint(self.path)
        self.lost = loaded.lost
        return loaded.checkpoint

    def write_clients(self, clients: pa.Table) -> None:
        """Write the `clients` table, unless it exists."""
        if not (self.path / CLIENTS_FILE).is_file():
            with replacing(self.path / CLIENTS_FILE) as file:
                parquet_files.write_table(clients, file)
        if self._mirror is not None:
            self._mirror.push_clients()

    def append_round(
        self,
        tables: Mapping[str, pa.Table | Iterable[pa.Table]],
        checkpoint: Checkpoint,
        aggregate: arrays.RoundAggregate | None = None,
    ) -> None:
        """Record a finished round: its rows, the server's view, and the checkpoint that validates them.

        With a mirror, the push of the previous round must have succeeded, and the push of this round begins.

        Args:
            tables: the rows by name of the table; a table may come in blocks.
            checkpoint: the state of the run after the round.
            aggregate: the server's view of the round; None: not recorded.

        Raises:
            RunError: the directory cannot be written, or the push of the previous round failed.
        """
        part = part_of(self.path, checkpoint.round_number)
        failure = self._mirror.failure() if self._mirror is not None else None  # raised after this round is recorded
        if not (self.path / EXPERIMENT).is_file():
            raise RunError(f"{self.path}: the run directory was deleted during the run; rounds cannot be recorded")
        try:
            if part.exists():  # left by a session that died before writing its checkpoint
                shutil.rmtree(part)
            part.mkdir(parents=True)
        except OSError as error:
            raise cannot_write(part, error.strerror or str(error)) from None
        for name, table in tables.items():
            with replacing(part / f"{name}.parquet") as file:
                blocks = [table] if isinstance(table, pa.Table) else table
                parquet_files.write_blocks(blocks, SCHEMAS[name], file)
        # The checkpoint last: it validates the round, so a kill before it repeats the round.
        arrays.write_aggregate(self.path, checkpoint.round_number, aggregate)
        arrays.write_checkpoint(self.path, checkpoint, keep_last=not self.lost)
        self.lost = ""
        if failure is not None:
            raise failure
        if self._mirror is not None:
            self._mirror.begin_push()

    def begin_last_stage(self, round_number: int, participants: npt.NDArray[np.int64]) -> None:
        """Record this attempt at a round on disk, so that it survives any failure from now on.

        With a mirror it is also pushed, because another machine may resume the run.

        Args:
            round_number: the round.
            participants: `(p,)` sorted.
        """
        # Before the first question: a repeated round releases the same updates with fresh noise from the operating
        # system, so this attempt must be charged, too.
        add_attempt(self.path, ReleaseAttempt(round_number, participants.tolist()))
        if self._mirror is not None:
            self._mirror.push_attempts()

    def attempts_at(self, round_number: int) -> list[npt.NDArray[np.int64]]:
        """Return the participants of each attempt at a round that `begin_last_stage` recorded.

        Raises:
            RunError: clients were charged for the round (in rows without a checkpoint), but no attempt is recorded.
        """
        attempts = read_attempts(self.path).values()
        participant_lists = [
            np.array(attempt.participants, np.int64) for attempt in attempts if attempt.round_number == round_number
        ]
        if not participant_lists and self._charged(round_number):
            raise RunError(
                f"{self.path / ATTEMPTS}: lists no attempt at round {round_number}, but the rows in parts/ say that "
                "clients were charged for it; restore the file, or start again with another --out"
            )
        return participant_lists

    def later_attempts(self, round_number: int) -> list[npt.NDArray[np.int64]]:
        """Return the participants of attempts at later rounds, begun before the last checkpoints were lost."""
        attempts = read_attempts(self.path).values()
        return [np.array(attempt.participants, np.int64) for attempt in attempts if attempt.round_number > round_number]

    def _charged(self, round_number: int) -> bool:
        file = part_of(self.path, round_number) / "privacy.parquet"
        try:
            return file.is_file() and parquet_files.has_rows(file)
        except (OSError, pa.ArrowException) as error:
            raise damaged(self.path, "privacy", error) from None

    def finish(self) -> None:
        """Merge the rounds' parts into one file per table; the parts are deleted after the tables are on disk."""
        checkpoint = self.checkpoint()
        if checkpoint is None:
            return
        if self._mirror is not None:  # push the parts before they are deleted
            self._mirror.failure()
            self._mirror.push_rounds()
        if not self.lost:
            arrays.keep_checkpoint(
                self.path, copy=True
            )  # the previous checkpoint would need parts that are deleted below
        metadata = {MERGED_UP_TO: str(checkpoint.round_number).encode()}
        for name in SCHEMAS:
            if not has_table(self.path, name, checkpoint):
                continue
            parts = recorded_files(self.path, name, checkpoint)
            with replacing(self.path / f"{name}.parquet") as file:
                write_merged(file, parts, name, metadata)
        drop_moved_evaluations(self.path, metadata)
        # A kill between two tables or from here on loses nothing: parts up to a table's `MERGED_UP_TO` are ignored.
        shutil.rmtree(self.path / "parts", ignore_errors=True)
        if self._mirror is not None:
            self._mirror.push_tables()

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``: one flat object."""
        with replacing(self.path / SUMMARY) as file:
            file.write((json.dumps(summary, indent=2) + "\n").encode())
        if self._mirror is not None:
            self._mirror.push_summary()

    def push_log(self) -> None:
        """Push the last lines of the log to the mirror, if there is one; failures are ignored."""
        if self._mirror is not None:
            with contextlib.suppress(RunError):
                self._mirror.push_log()

    def table(self, name: str) -> pa.Table:
        """Return the rows of all finished rounds of a table, in the order of the rounds."""
        return read_table(self.path, name, self.checkpoint())


def is_empty(path: Path) -> bool:
    """Return whether `path` is a directory with nothing but leftovers of a run that was killed before it began."""
    leftovers = {f".{EXPERIMENT}.writing", LOCK, WRITER, MARK}
    return path.is_dir() and {entry.name for entry in path.iterdir()} <= leftovers


def changed_after(path: Path, round_number: int) -> list[str]:
    """Return the modules that had changed when the run was resumed after this round; mostly none.

    Args:
        path: the run directory.
        round_number: the last round before the run was resumed.

    Raises:
        RunError: the experiment cannot be read.
    """
    file = path / "experiment.yaml"
    try:
        stored = yaml.load(file.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # safe either way
        changes = (stored.get("provenance") or {}).get("changed_code") or []
        return [str(name) for entry in changes if entry["after_round"] == round_number for name in entry["changed"]]
    except (OSError, yaml.YAMLError, AttributeError, TypeError, KeyError, ValueError) as error:
        raise RunError(f"{file}: cannot be read: {reason(error)}") from None
