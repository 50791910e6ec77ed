"""Records at a URI: synchronisation with a local copy.

Runs write to the local copy, and `RunDirectory` pushes new records to the URI (see `uploads`). If the copy and the URI
differ, the later checkpoint wins, run by run; if the round is the same, the URI wins. At most a round is lost: one that
was not pushed before another machine resumed the run. If a run was removed from the URI or replaced by another run, its
copy is not deleted but archived in the cache.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from testbed.errors import ExperimentError, RunError
from testbed.files import limits
from testbed.files.atomic import atomic_write
from testbed.files.names import inside, path_or_uri
from testbed.records.arrays import CHECKPOINT, PREVIOUS, Stamp, aggregate_files, restored, round_of_aggregate, stamp_of
from testbed.records.attempts import decoded_attempts, unite_attempts
from testbed.records.clients import FILE as CLIENTS_FILE
from testbed.records.locks import LOCK, WRITER, run_lock
from testbed.records.log import FILE as LOG
from testbed.records.reader import RunRecords, find_runs
from testbed.records.store import Store, Stored, thread_map
from testbed.records.tables import merged_up_to
from testbed.records.uploads import (
    ATTEMPTS,
    EXPERIMENT,
    MARK,
    SUMMARY,
    TABLES,
    Memory,
    Mirror,
    round_of,
    tables_in,
)

_RUNS_AT_A_TIME = 4
_ATTEMPTS = 5  # a run in progress on another machine may change while it is read
_PASSING = re.compile(r"(.*/)?\.([^/]*\.writing|probe-[0-9a-f]+)")


def local_staging_dir(out: str | Path) -> Path:
    """Return a local directory for a run or sweep with records that belong at `out`.

    A path is returned unchanged. For a URI the local copy is returned, after synchronising both: the copy has all
    records of the URI, and records that a killed session had not pushed are pushed. `RunDirectory` will push new
    records.

    Args:
        out: a directory, or a URI of any pyarrow filesystem.

    Raises:
        ExperimentError: pyarrow does not support the URI, or it contains a secret.
        RunError: the URI cannot be reached or written (no such bucket, no credentials), contains other files than runs,
            or the copy is in use by a run in progress.
    """
    place = _place(out)
    if isinstance(place, Path):
        return place
    store = Store(place)
    store.probe()
    copy = _copy(store)
    with _alone(copy):
        listing = store.files()
        store.delete_abandoned(listing)
        listed = {name: info for name, info in listing.items() if not _PASSING.fullmatch(name)}
        runs = {name for name in _runs(listed) if "/" not in name}
        if listed and not runs:
            raise RunError(f"{store.shown}: is not empty and contains no run; give another --out")
        _mark(copy, store)
        _sync(copy, store, runs | _local_runs(copy), listed, push=True)
    return copy


def local_copy_for_reading(where: str | Path) -> Path:
    """Return a local directory with the runs at or below `where`, for reading.

    A path is returned unchanged. For a URI the local copy is returned, after updating it; nothing is written to the
    URI. A run in progress on this machine is not updated, because it is ahead of the URI.

    Raises:
        ExperimentError: as `local_staging_dir`.
        RunError: the URI cannot be reached or read, or there is no run.
    """
    place = _place(where)
    if isinstance(place, Path):
        return place
    store = Store(place)
    copy = _copy(store)
    with _alone(copy):
        listed = store.files()
        runs = _runs(listed) | _local_runs(copy)
        _sync(copy, store, runs, listed, push=False)
        if not _local_runs(copy):
            raise RunError(
                f"{store.shown}: no runs here; start one with `testbed run EXPERIMENT.yaml --out {store.shown}`"
            )
        _mark(copy, store)
    return copy


def _place(where: str | Path) -> str | Path:
    try:
        return path_or_uri(where)
    except ValueError as error:
        raise ExperimentError(str(error)) from None


def _copy(store: Store) -> Path:
    """Return the directory of the local copy: a readable name and a digest that makes it unique."""
    cache = os.environ.get("XDG_CACHE_HOME", "")  # the XDG specification says to ignore a relative path
    root = Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache"
    readable = re.sub(r"[^A-Za-z0-9._=,+-]+", "-", store.shown.partition("://")[2]).strip("-.")[-60:]
    digest = hashlib.sha256(store.uri.encode()).hexdigest()[:12]
    copy = root / "sortition-testbed" / f"{readable}-{digest}"
    try:
        copy.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{copy}: cannot create the directory: {error.strerror}; check XDG_CACHE_HOME") from None
    return copy


@contextlib.contextmanager
def _alone(copy: Path) -> Iterator[None]:
    """Let one process at a time synchronise a copy with its URI; others wait and then have less to do."""
    with open(copy.with_name(f"{copy.name}.lock"), "wb") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _mark(copy: Path, store: Store) -> None:
    with atomic_write(copy / MARK, lambda why: RunError(f"{copy / MARK}: cannot write: {why}")) as file:
        file.write(json.dumps({"uri": store.uri}).encode())


def _runs(names: Iterable[str]) -> set[str]:
    """Return the directories among these files that contain a run: "" or "label" or deeper."""
    return {name.removesuffix(EXPERIMENT).rstrip("/") for name in names if PurePosixPath(name).name == EXPERIMENT}


def _local_runs(copy: Path) -> set[str]:
    return _runs(file.relative_to(copy).as_posix() for file in copy.rglob(EXPERIMENT))


def _sync(copy: Path, store: Store, runs: set[str], listed: dict[str, Stored], *, push: bool) -> None:
    with ThreadPoolExecutor(_RUNS_AT_A_TIME) as pool:
        futures = []
        for run in sorted(runs):
            start = f"{run}/" if run else ""
            files = {name.removeprefix(start): info for name, info in listed.items() if name.startswith(start)}
            run_sync = _RunSync(inside(copy, run, store.shown) if run else copy, store.below(run), copy)
            futures.append(pool.submit(run_sync.sync, files, push=push))
        for run_done in futures:
            run_done.result()


class _RemoteChanged(Exception):
    """The run at the URI changed while it was read."""


class _RunSync:
    """Synchronisation of one run between its directory in the local copy and the URI."""

    def __init__(self, path: Path, store: Store, copy: Path) -> None:
        self.path, self.store, self.copy = path, store, copy
        self.mirror = Mirror(path, store)

    def sync(self, files: dict[str, Stored], *, push: bool) -> None:
        """Bring both places to the same state.

        Args:
            files: files of the run at the URI.
            push: whether to write to the URI. Otherwise only the copy is updated, and not while its run is in progress.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as locks:
            try:
                for name in (LOCK, WRITER):
                    locks.enter_context(run_lock(self.path, name))
            except RunError:
                if push:
                    raise
                return
            for attempt in range(_ATTEMPTS):
                listed = files if attempt == 0 else self.store.files()
                try:
                    self._sync_files(listed, push=push)
                    if ATTEMPTS in listed:  # attempts of both places count, regardless of the checkpoints
                        remote_attempts = self.store.read(ATTEMPTS, limits.ATTEMPTS_BYTES)
                        unite_attempts(self.path, decoded_attempts(remote_attempts, f"{self.store.shown}/{ATTEMPTS}"))
                    return
                except (_RemoteChanged, FileNotFoundError):
                    continue
        raise RunError(f"{self.store.shown}: cannot be read: files are missing, or the run there changes too fast")

    def _sync_files(self, files: dict[str, Stored], *, push: bool) -> None:
        memory, has_local = self.mirror.memory(), (self.path / EXPERIMENT).is_file()
        if has_local and EXPERIMENT not in files and memory is None:  # created here and never pushed
            if push:
                self.mirror.push_experiment()
                self.mirror.push_rounds()
            return
        if has_local and (EXPERIMENT not in files or self._other_experiment()):
            self._archive()
            has_local = False
        if EXPERIMENT not in files:
            return
        memory = memory if has_local and memory is not None else Memory()
        remote_info = self.store.info(CHECKPOINT)
        local, remote = None, memory.same
        try:
            local = restored(self.path) if has_local else None
        except RunError:
            if remote_info is None:  # the URI has no checkpoint either
                raise
        fresh = self.path / f".{CHECKPOINT}.fresh"
        if remote_info is None:
            remote = None
        elif remote_info != memory.seen or remote is None:
            self.store.copy_to(CHECKPOINT, fresh)
            remote = stamp_of(fresh)
        try:
            if remote is not None and _round(remote) >= _round(local) and remote != local:
                self._pull(memory, remote, remote_info, fresh)
            elif _round(remote) < _round(local):
                same = memory.same if _round(memory.same) <= _round(remote) else None
                # Before the push: `Mirror` refuses to replace a checkpoint that it does not know as its own.
                self.mirror.remember(Memory(same, remote, None))
                if push:
                    self._push()
            else:
                self._same(files, Memory(remote, None, remote_info), push=push)
        finally:
            fresh.unlink(missing_ok=True)

    def _push(self) -> None:
        """Push the records of this machine to the URI."""
        self.mirror.push_rounds()
        if not (self.path / "parts").exists():
            self.mirror.push_tables()
            if (self.path / SUMMARY).is_file():
                self.mirror.push_summary()

    def _same(self, files: dict[str, Stored], memory: Memory, *, push: bool) -> None:
        """Exchange merged tables and summaries when both places have the same rounds."""
        if not (self.path / EXPERIMENT).is_file():
            self.store.copy_to(EXPERIMENT, self.path / EXPERIMENT)
        self._copy_clients(files)
        self.mirror.remember(memory)
        parts_there = any(round_of(name) for name in files)
        if memory.same is None:
            return
        if (self.path / "parts").exists():
            if not parts_there and set(tables_in([*files, *self.mirror.parts()])) <= set(files):
                self._pull_merged(files, memory.same)
                shutil.rmtree(self.path / "parts", ignore_errors=True)
        elif push and (parts_there or SUMMARY not in files):
            self._push()
        if SUMMARY in files and not (self.path / SUMMARY).is_file():
            self.store.copy_to(SUMMARY, self.path / SUMMARY)

    def _pull(self, memory: Memory, there: Stamp, seen: Stored | None, fresh: Path) -> None:
        """Update the directory to the URI: first rows, then the checkpoint, then delete superfluous files."""
        files = self.store.files()  # listed after the checkpoint was read, so all its rounds are included
        if not (self.path / EXPERIMENT).is_file():
            self.store.copy_to(EXPERIMENT, self.path / EXPERIMENT)
        if not fresh.is_file():
            self.store.copy_to(CHECKPOINT, fresh)
            if stamp_of(fresh) != there:
                raise _RemoteChanged
        self._copy_clients(files)
        covered = self._pull_merged(files, there)
        same_round = _round(memory.same)
        parts_to_keep = {name for name in files if covered < (round_of(name) or 0) <= there.round_number}
        if len(parts_to_keep) < len(tables_in(parts_to_keep)) * (there.round_number - covered):
            raise _RemoteChanged  # finished meanwhile: the parts were merged into the tables
        thread_map(
            self._copy,
            [name for name in parts_to_keep if (round_of(name) or 0) > same_round or not self._has(name, files[name])],
        )
        remote_aggregates = {name for name in files if 0 < (round_of_aggregate(name) or 0) <= there.round_number}
        thread_map(
            self._copy,
            [n for n in remote_aggregates if (round_of_aggregate(n) or 0) > same_round or not self._has(n, files[n])],
        )
        (self.path / PREVIOUS).unlink(missing_ok=True)  # may belong to rounds that another machine replaced
        os.replace(fresh, self.path / CHECKPOINT)
        self.mirror.remember(Memory(there, None, seen))
        for name in {*aggregate_files(self.path)} - remote_aggregates:
            (self.path / name).unlink(missing_ok=True)
        for name in (*self.mirror.parts(), *TABLES, SUMMARY):
            if name not in parts_to_keep and (name not in files or round_of(name) is not None):
                (self.path / name).unlink(missing_ok=True)
        if not parts_to_keep:
            shutil.rmtree(self.path / "parts", ignore_errors=True)

    def _pull_merged(self, files: dict[str, Stored], there: Stamp) -> int:
        """Copy merged tables, summary and log; return the round up to which all tables are merged."""
        names = [name for name in (*TABLES, SUMMARY) if name in files]
        if LOG in files and not ((log := self.path / LOG).is_file() and log.stat().st_size >= files[LOG].size):
            names.append(LOG)
        thread_map(self._copy, names)
        merged = [merged_up_to(self.path / name) if name in files else 0 for name in tables_in(files)]
        # The run there has gone on since its checkpoint was read; its tables do not fit that checkpoint.
        if max(merged) > there.round_number:
            raise _RemoteChanged
        return min(merged)

    def _copy_clients(self, files: dict[str, Stored]) -> None:
        """Copy the `clients` table if it is missing; it never changes."""
        if CLIENTS_FILE in files and not self._has(CLIENTS_FILE, files[CLIENTS_FILE]):
            self._copy(CLIENTS_FILE)

    def _copy(self, name: str) -> None:
        self.store.copy_to(name, inside(self.path, name, self.store.shown))

    def _other_experiment(self) -> bool:
        """Return whether the URI has another run than the copy."""
        here = limits.whole(self.path / EXPERIMENT, limits.YAML_BYTES)
        return self.store.read(EXPERIMENT, limits.YAML_BYTES) != here

    def _has(self, name: str, info: Stored) -> bool:
        file = self.path / name
        return file.is_file() and file.stat().st_size == info.size

    def _archive(self) -> None:
        """Move the copy's run to an archive in the cache, to make room for the run at the URI."""
        aside = self.copy.with_name(f"{self.copy.name}.aside") / f"{self.path.name}-{secrets.token_hex(4)}"
        aside.mkdir(parents=True)
        entries = [entry for entry in self.path.iterdir() if entry.name not in (MARK, LOCK, WRITER)]
        for entry in sorted(entries, key=lambda entry: entry.name == EXPERIMENT):  # killed before: it begins again
            entry.rename(aside / entry.name)


def _round(stamp: Stamp | None) -> int:
    return stamp.round_number if stamp is not None else 0


def runs_below(directories: Sequence[str | Path]) -> list[RunRecords]:
    """Return the runs at or below the directories (or URIs), without duplicates.

    Raises:
        RunError: a directory contains no run.
    """
    by_path = {
        run.path.resolve(): run for directory in directories for run in find_runs(local_copy_for_reading(directory))
    }
    return list(by_path.values())
