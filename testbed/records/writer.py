"""Writing a run's directory: append-only, a round at a time, resumable.

While a run goes on, each finished round is a folder of small Parquet files under ``parts/``; ``checkpoint.npz`` names
the last finished round and holds the model after it. Both are written to a temporary name and renamed, the
checkpoint last, so a run that is killed at any moment loses at most the round it was in. The checkpoint before is kept
(`checkpoints`).

`finish` merges the parts into one file per table. Each of these says in its own metadata up to which round it is
merged: what lies in parts up to that round is not read any more, so a kill between two tables, or while the parts
are being deleted, neither loses nor doubles a row, and a finished run can be resumed.

A directory that is the local copy of a URI (see `mirror`) has a `Mirror`: what is written here is pushed there.
"""

import contextlib
import json
import re
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import yaml

from testbed.errors import RunError
from testbed.files import parquet as parquet_files
from testbed.files.atomic import atomic_write
from testbed.records import aggregates, attempts, checkpoints
from testbed.records.checkpoints import Checkpoint, cannot_write
from testbed.records.chunks import damaged, joined, write_merged
from testbed.records.lock import LOCK, WRITER
from testbed.records.tables import OPTIONAL_TABLES, SCHEMAS, with_later_columns
from testbed.records.uploads import EXPERIMENT, MARK, SUMMARY, Mirror


class _Dumper(yaml.SafeDumper):
    """Quotes strings such as 1e-3, which `testbed.experiment` would read as numbers."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[.0-9]+[eE][-+]?\d+$"), list("-+.0123456789")
)

MERGED_UP_TO = b"testbed.merged_up_to_round"


def _replacing(path: Path) -> AbstractContextManager[IO[bytes]]:
    return atomic_write(path, lambda reason: cannot_write(path, reason))


class RunDirectory:
    """One run's directory, open for writing.

    Args:
        path: the directory.

    Attributes:
        lost: what is wrong with the last checkpoint, in whose place `checkpoint` has returned the one before; empty
            where nothing is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost = ""

    @cached_property
    def _mirror(self) -> Mirror | None:
        return Mirror.of(self.path)

    @classmethod
    def create(cls, path: Path, experiment: Mapping[str, Any]) -> "RunDirectory":
        """A new run; raises `RunError` when `path` already holds one or is not an empty directory."""
        if path.exists() and not is_empty(path):
            what = "already holds a run" if (path / EXPERIMENT).exists() else "is there and is not an empty directory"
            raise RunError(f"{path}: {what}; give another --out, or --resume to continue it")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{path}: cannot make the directory: {error.strerror}") from None
        directory = cls(path)
        directory.replace_experiment(experiment)
        return directory

    def replace_experiment(self, experiment: Mapping[str, Any]) -> None:
        """Write the experiment, wholly or not at all; raises `RunError` where it cannot be written."""
        with _replacing(self.path / EXPERIMENT) as file:
            file.write(yaml.dump(dict(experiment), Dumper=_Dumper, sort_keys=False, allow_unicode=True).encode())
        if self._mirror is not None:
            self._mirror.push_experiment()

    @classmethod
    def reopen(cls, path: Path) -> "RunDirectory":
        """An existing run, to resume it; raises `RunError` when there is none."""
        if not (path / EXPERIMENT).is_file():
            raise RunError(f"{path}: no run to resume here (no {EXPERIMENT}); leave out --resume to start one")
        return cls(path)

    def checkpoint(self) -> Checkpoint | None:
        """The last checkpoint (should it be lost, the one before), or None before the first round has ended.

        Raises `RunError` where rounds have been recorded and there is none.
        """
        found = checkpoints.read(self.path)
        self.lost = found.lost
        return found.checkpoint

    def append_round(
        self,
        tables: Mapping[str, pa.Table],
        checkpoint: Checkpoint,
        aggregate: aggregates.RoundAggregate | None = None,
    ) -> None:
        """Record a finished round: its rows (and what the server saw), then the checkpoint that makes them count.

        With a mirror, the round before must have been pushed by now, and this one's push begins.
        """
        part = part_of(self.path, checkpoint.round_number)
        failure = self._mirror.failure() if self._mirror is not None else None  # raised when this round is recorded
        if not (self.path / EXPERIMENT).is_file():
            raise RunError(f"{self.path}: the run directory has gone while the run went on; nothing can be recorded")
        try:
            if part.exists():  # of a session that died before its checkpoint
                shutil.rmtree(part)
            part.mkdir(parents=True)
        except OSError as error:
            raise cannot_write(part, error.strerror or str(error)) from None
        for name, table in tables.items():
            with _replacing(part / f"{name}.parquet") as file:
                parquet_files.write_table(table, file)
        aggregates.write(self.path, checkpoint.round_number, aggregate)
        checkpoints.write(self.path, checkpoint, keep_last=not self.lost)
        self.lost = ""
        if failure is not None:
            raise failure
        if self._mirror is not None:
            self._mirror.begin_push()

    def begin_last_stage(self, round_number: int, participants: npt.NDArray[np.int64]) -> None:
        """Make sure that this attempt at a round is known of, whatever happens to the run from now on.

        With a mirror it is known there, too: another machine may be the one that goes on.
        """
        attempts.add(self.path, attempts.Attempt(round_number, participants.tolist()))
        if self._mirror is not None:
            self._mirror.push_attempts()

    def attempts_at(self, round_number: int) -> list[npt.NDArray[np.int64]]:
        """The participants of each attempt at a round that `begin_last_stage` was told of.

        Raises `RunError` where that round has been charged before, in rows that do not count, and no attempt is known.
        """
        known = attempts.read(self.path).values()
        found = [np.array(one.participants, np.int64) for one in known if one.round_number == round_number]
        if not found and self._charged(round_number):
            raise RunError(
                f"{self.path / attempts.FILE}: names no attempt at round {round_number}, whose rows in parts/ say that "
                "clients were charged for one; restore the file, or start again with another --out"
            )
        return found

    def later_attempts(self, round_number: int) -> list[npt.NDArray[np.int64]]:
        """The same of all later rounds: they were begun, and the checkpoints since then are lost."""
        known = attempts.read(self.path).values()
        return [np.array(one.participants, np.int64) for one in known if one.round_number > round_number]

    def _charged(self, round_number: int) -> bool:
        file = part_of(self.path, round_number) / "privacy.parquet"
        try:
            return file.is_file() and parquet_files.has_rows(file)
        except (OSError, pa.ArrowException) as error:
            raise damaged(self.path, "privacy", error) from None

    def finish(self) -> None:
        """Merge the rounds' parts into one file per table; the parts go away once the tables are on disk."""
        checkpoint = self.checkpoint()
        if checkpoint is None:
            return
        if self._mirror is not None:  # rounds in parts, before these go away
            self._mirror.failure()
            self._mirror.push_rounds()
        if not self.lost:
            checkpoints.keep(self.path, copy=True)  # the parts that one before it would need go away
        metadata = {MERGED_UP_TO: str(checkpoint.round_number).encode()}
        for name in SCHEMAS:
            if not is_kept(self.path, name, checkpoint):
                continue
            parts = recorded_files(self.path, name, checkpoint)
            with _replacing(self.path / f"{name}.parquet") as file:
                write_merged(file, parts, name, metadata)
        shutil.rmtree(self.path / "parts", ignore_errors=True)
        if self._mirror is not None:
            self._mirror.push_tables()

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``: one flat object."""
        with _replacing(self.path / SUMMARY) as file:
            file.write((json.dumps(summary, indent=2) + "\n").encode())
        if self._mirror is not None:
            self._mirror.push_summary()

    def push_log(self) -> None:
        """Let the mirror, if there is one, have the log's last lines; that it cannot is no reason to fail."""
        if self._mirror is not None:
            with contextlib.suppress(RunError):
                self._mirror.push_log()

    def table(self, name: str) -> pa.Table:
        """All finished rounds' rows of a table, in the order of the rounds."""
        return read_table(self.path, name, self.checkpoint())


def is_empty(path: Path) -> bool:
    """Whether `path` is a directory that holds at most what a run leaves that was killed before it began."""
    leftovers = {f".{EXPERIMENT}.writing", LOCK, WRITER, MARK}
    return path.is_dir() and {entry.name for entry in path.iterdir()} <= leftovers


def is_kept(path: Path, name: str, checkpoint: Checkpoint | None) -> bool:
    """Whether a run has a table at all (`OPTIONAL_TABLES`): its last round, or what is merged, has a file for it."""
    last = checkpoint.round_number if checkpoint is not None else 0
    file = f"{name}.parquet"  # parts first: they go only once the merged table is there
    return name not in OPTIONAL_TABLES or (part_of(path, last) / file).is_file() or (path / file).is_file()


def recorded_files(path: Path, name: str, checkpoint: Checkpoint | None) -> list[Path]:
    """The files that hold a table's rows, in the order of the rounds; raises `RunError` for a damaged merged one."""
    if not is_kept(path, name, checkpoint):
        return []
    merged = path / f"{name}.parquet"
    last = checkpoint.round_number if checkpoint is not None else 0
    covered = merged_up_to(merged) if merged.is_file() else 0
    parts = [part_of(path, number) / f"{name}.parquet" for number in range(covered + 1, last + 1)]
    return [merged, *parts] if merged.is_file() else parts


def read_table(path: Path, name: str, checkpoint: Checkpoint | None) -> pa.Table:
    """Merged rows, then the parts of those rounds that the checkpoint vouches for and that are not merged yet.

    Raises `RunError` when a file is damaged, or a finished round is in neither.
    """
    if not is_kept(path, name, checkpoint):
        return SCHEMAS[name].empty_table()
    last = checkpoint.round_number if checkpoint is not None else 0
    merged = path / f"{name}.parquet"
    while True:
        covered, tables = 0, [SCHEMAS[name].empty_table()]
        try:
            if merged.is_file():
                covered = merged_up_to(merged)
                tables.append(_read(merged, name))
            for number in range(covered + 1, last + 1):
                tables.append(_read(part_of(path, number) / f"{name}.parquet", name))
        except (OSError, pa.ArrowException) as error:
            if merged.is_file() and covered < merged_up_to(merged):
                continue  # the run has been finished meanwhile, and the part has gone into the table
            raise damaged(path, name, error) from None
        return joined(tables)


def _read(file: Path, name: str) -> pa.Table:
    return with_later_columns(parquet_files.read_table(file, SCHEMAS[name]))


def part_of(path: Path, round_number: int) -> Path:
    """The folder of one round's rows while the run goes on."""
    return path / "parts" / f"round-{round_number:06d}"


def merged_up_to(path: Path) -> int:
    """Up to which round a table of a finished run is merged; raises `RunError` when it is no such table."""
    try:
        return int((parquet_files.read_schema(path).metadata or {})[MERGED_UP_TO])
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise RunError(f"{path}: not a table of a finished run, or damaged ({type(error).__name__})") from None
