"""Writing a run's directory: append-only, a round at a time, resumable, by one process at a time.

While a run goes on, each finished round is a folder of small Parquet files under ``parts/``; ``checkpoint.npz`` names
the last finished round and holds the model after it. Both are written to a temporary name and renamed, the
checkpoint last, so a run that is killed at any moment loses at most the round it was in. The checkpoint before is kept
(see `arrays`).

`finish` merges the parts into one file per table. Each of these says in its own metadata up to which round it is
merged: what lies in parts up to that round is not read any more, so a kill between two tables, or while the parts
are being deleted, neither loses nor doubles a row, and a finished run can be resumed.

Where noise comes from the operating system, a round that is run again releases the same updates under fresh noise. So
before the first question of the last aggregation stage, the participants are written to disk (`ReleaseAttempt`).
An attempt at a round that is not on record is charged when the round is run again.
Attempts are kept from the last recorded round on, as the URI that a directory mirrors may be a round behind: whoever
goes on from there runs that round again, too.

A directory that is the local copy of a URI (see `mirror`) has a `Mirror`: what is written here is pushed there.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import yaml

from testbed.errors import RunError, reason
from testbed.files import limits
from testbed.files import parquet as parquet_files
from testbed.files.atomic import atomic_write
from testbed.records import arrays
from testbed.records.arrays import Checkpoint, cannot_write, replacing
from testbed.records.clients import FILE as CLIENTS_FILE
from testbed.records.last_evaluations import drop_moved_evaluations
from testbed.records.schemas import SCHEMAS
from testbed.records.tables import MERGED_UP_TO, damaged, is_kept, part_of, read_table, recorded_files, write_merged
from testbed.records.uploads import ATTEMPTS, EXPERIMENT, MARK, SUMMARY, Mirror

LOCK = ".lock"  # of the process that drives the run
WRITER = ".writer"  # of the one that writes its records
_TRIES, _BETWEEN_S = 10, 0.01  # somebody who only looks (`is_held`) is gone by then


@contextlib.contextmanager
def run_lock(path: Path, name: str = LOCK) -> Iterator[None]:
    """Hold the run directory `path` by its lock file `name`; raises `RunError` when another process does."""
    try:
        descriptor = os.open(path / name, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror}") from None
    try:
        if not _taken(descriptor):
            raise RunError(f"{path}: in use by another run; wait for it to end, or give another --out")
        yield
    finally:
        os.close(descriptor)  # gives the lock back; the file stays, because removing it would race with another run


def _taken(descriptor: int) -> bool:
    """Take the lock, if nobody has it."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN_S)
        except OSError:
            return True  # a file system without locks (some cluster ones): better to run unguarded than not at all
        else:
            return True
    return False


def is_held(path: Path, name: str = LOCK) -> bool | None:
    """Whether a process holds the run directory `path`; None when its file system cannot tell.

    Looks for an instant only, and shares the lock with others who look: it keeps nobody from running.
    """
    try:
        descriptor = os.open(path / name, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


@dataclass(frozen=True)
class ReleaseAttempt:
    """One attempt at a round that reached the last stage.

    Attributes:
        round_number: the round.
        participants: its participants, sorted.
    """

    round_number: int
    participants: list[int]


def read_attempts(path: Path) -> dict[str, ReleaseAttempt]:
    """The attempts of the run in a directory, by names that are each attempt's own; none where there is no file.

    Raises:
        RunError: the file is damaged: what it said was released, and must not be forgotten.
    """
    file = path / ATTEMPTS
    try:
        return decoded_attempts(limits.whole(file, limits.ATTEMPTS_BYTES), str(file))
    except FileNotFoundError:
        return {}
    except limits.TooLarge as why:
        raise RunError(f"{file}: {why}, so that it cannot be what a run wrote; put back what was there") from None
    except OSError as error:
        raise RunError(f"{file}: cannot read: {error.strerror}") from None


def decoded_attempts(stored: bytes, where: str) -> dict[str, ReleaseAttempt]:
    """The attempts in the bytes of a file; raises as `read` does."""
    try:
        return {
            str(name): ReleaseAttempt(int(entry["round_number"]), list(map(int, entry["participants"])))
            for name, entry in json.loads(stored).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(
            f"{where}: damaged ({type(error).__name__}), and it says whose privacy was spent; start again with another "
            "--out"
        ) from None


def write_attempts(path: Path, attempts: Mapping[str, ReleaseAttempt]) -> None:
    """Put the file in its place, all of it on disk; raises `RunError` when it cannot."""
    file = path / ATTEMPTS
    with atomic_write(file, lambda why: RunError(f"{file}: cannot write: {why}; rerun with --resume")) as open_file:
        open_file.write(json.dumps({name: vars(attempt) for name, attempt in attempts.items()}).encode())
    with contextlib.suppress(OSError):  # a file system that cannot: the file is in its place, its name may not last
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def add_attempt(path: Path, attempt: ReleaseAttempt) -> None:
    """Keep one more attempt, and of the others those that still matter; raises as `read` and `write` do."""
    kept = {
        name: other for name, other in read_attempts(path).items() if other.round_number >= attempt.round_number - 1
    }
    write_attempts(path, kept | {secrets.token_hex(8): attempt})


def unite_attempts(path: Path, others: Mapping[str, ReleaseAttempt]) -> None:
    """Add what another copy of the same run knows of; raises as `read` and `write` do."""
    here = read_attempts(path)
    if not others.keys() <= here.keys():
        write_attempts(path, {**here, **others})


class _Dumper(yaml.SafeDumper):
    """Quotes strings such as 1e-3, which `testbed.experiment` would read as numbers."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[.0-9]+[eE][-+]?\d+$"), list("-+.0123456789")
)


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
        file = self.path / EXPERIMENT
        former = file.read_bytes() if file.is_file() else None
        with replacing(file) as new:
            new.write(yaml.dump(dict(experiment), Dumper=_Dumper, sort_keys=False, allow_unicode=True).encode())
        if self._mirror is not None:
            self._mirror.push_experiment(former)

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
        found = arrays.read_checkpoint(self.path)
        self.lost = found.lost
        return found.checkpoint

    def write_clients(self, clients: pa.Table) -> None:
        """Write the `clients` table, unless it is there already."""
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
        """Record a finished round: its rows (and what the server saw), then the checkpoint that makes them count.

        The rows of a table may come in blocks, one after the other.

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
            with replacing(part / f"{name}.parquet") as file:
                blocks = [table] if isinstance(table, pa.Table) else table
                parquet_files.write_blocks(blocks, SCHEMAS[name], file)
        arrays.write_aggregate(self.path, checkpoint.round_number, aggregate)
        arrays.write_checkpoint(self.path, checkpoint, keep_last=not self.lost)
        self.lost = ""
        if failure is not None:
            raise failure
        if self._mirror is not None:
            self._mirror.begin_push()

    def begin_last_stage(self, round_number: int, participants: npt.NDArray[np.int64]) -> None:
        """Make sure that this attempt at a round is known of, whatever happens to the run from now on.

        With a mirror it is known there, too: another machine may be the one that goes on.
        """
        add_attempt(self.path, ReleaseAttempt(round_number, participants.tolist()))
        if self._mirror is not None:
            self._mirror.push_attempts()

    def attempts_at(self, round_number: int) -> list[npt.NDArray[np.int64]]:
        """The participants of each attempt at a round that `begin_last_stage` was told of.

        Raises `RunError` where that round has been charged before, in rows that do not count, and no attempt is known.
        """
        known = read_attempts(self.path).values()
        found = [np.array(one.participants, np.int64) for one in known if one.round_number == round_number]
        if not found and self._charged(round_number):
            raise RunError(
                f"{self.path / ATTEMPTS}: names no attempt at round {round_number}, whose rows in parts/ say that "
                "clients were charged for one; restore the file, or start again with another --out"
            )
        return found

    def later_attempts(self, round_number: int) -> list[npt.NDArray[np.int64]]:
        """The same of all later rounds: they were begun, and the checkpoints since then are lost."""
        known = read_attempts(self.path).values()
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
            arrays.keep_checkpoint(self.path, copy=True)  # the parts that one before it would need go away
        metadata = {MERGED_UP_TO: str(checkpoint.round_number).encode()}
        for name in SCHEMAS:
            if not is_kept(self.path, name, checkpoint):
                continue
            parts = recorded_files(self.path, name, checkpoint)
            with replacing(self.path / f"{name}.parquet") as file:
                write_merged(file, parts, name, metadata)
        drop_moved_evaluations(self.path, metadata)
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


def changed_after(path: Path, round_number: int) -> list[str]:
    """The modules with which the run at `path` was resumed after this round, and that had changed; mostly none."""
    file = path / "experiment.yaml"
    try:
        stored = yaml.load(file.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # safe either way
        changes = (stored.get("provenance") or {}).get("changed_code") or []
        return [str(name) for entry in changes if entry["after_round"] == round_number for name in entry["changed"]]
    except (OSError, yaml.YAMLError, AttributeError, TypeError, KeyError, ValueError) as error:
        raise RunError(f"{file}: cannot be read: {reason(error)}") from None
