"""Uploads of a run's records to the URI that its directory mirrors, always in a consistent order.

The files of a round are pushed before the checkpoint that validates them; merged tables before the summary; then the
rounds' parts are deleted. An interrupted push leaves the same state as a kill leaves in a directory (see `writer`).

A round is pushed while the next round runs. `.mirrored` in the run directory stores the checkpoint up to which both
places are equal, and size and time of the checkpoint at the URI: if these have changed, another machine writes there.
"""

import json
import re
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from testbed.errors import RunError
from testbed.files import limits
from testbed.files.atomic import atomic_write
from testbed.records.arrays import CHECKPOINT, Stamp, aggregate_files, round_of_aggregate, stamp_of
from testbed.records.clients import FILE as CLIENTS_FILE
from testbed.records.log import FILE as LOG
from testbed.records.schemas import OPTIONAL_TABLES, SCHEMAS
from testbed.records.store import Store, Stored, thread_map

MARK = ".mirror"  # file in the directory of a run or sweep with the URI of its mirror
EXPERIMENT, SUMMARY, ATTEMPTS = "experiment.yaml", "summary.json", "attempts.json"
TABLES = tuple(f"{name}.parquet" for name in SCHEMAS)
_PART = re.compile(rf"parts/round-(\d{{6,}})/({'|'.join(SCHEMAS)})\.parquet")
_MEMORY = ".mirrored"
_LOG_EVERY_S = 30.0  # objects cannot be appended to: the whole log is pushed, therefore not in every round


@dataclass(frozen=True)
class Memory:
    """The state of the mirror as a run directory knows it.

    Attributes:
        same: the last checkpoint that both places had; None: none yet.
        pending: another checkpoint that the URI may have: ours, if interrupted before this was written, or the
            checkpoint that we are about to replace.
        seen: size and time of the checkpoint at the URI when it was `same`.
    """

    same: Stamp | None = None
    pending: Stamp | None = None
    seen: Stored | None = None


def round_of(name: str) -> int | None:
    """Return the round of a part by its name in the run directory; None if the file is not a part."""
    match = _PART.fullmatch(name)
    return int(match[1]) if match else None


def tables_in(files: Iterable[str]) -> list[str]:
    """Return the names of the merged tables that a run with these files has or will have."""
    there = {name.rpartition("/")[2] for name in files}
    return [name for name in TABLES if name in there or name.removesuffix(".parquet") not in OPTIONAL_TABLES]


class Mirror:
    """A run directory and its copy at a URI.

    Args:
        path: the run directory.
        store: the directory of the same run at the URI.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self.path = path
        self.store = store
        self._pool: ThreadPoolExecutor | None = None
        self._pushing: Future[None] | None = None
        self._log_pushed = time.monotonic()

    @classmethod
    def of(cls, path: Path) -> "Mirror | None":
        """Return the mirror of a run directory, marked there or (for a sweep) one level above; None without a mark."""
        for directory in (path, path.parent):
            mark = directory / MARK
            if mark.is_file():
                try:
                    uri = json.loads(limits.whole(mark, limits.SMALL_JSON_BYTES))["uri"]
                except (OSError, ValueError, KeyError, TypeError) as error:
                    raise RunError(f"{mark}: cannot be read ({error}); give the URI to --out again") from None
                return cls(path, Store(uri).below(path.relative_to(directory).as_posix()))
        return None

    def memory(self) -> Memory | None:
        """Return the stored state; None if nothing of this run has ever been at the URI."""
        try:
            plain = json.loads(limits.whole(self.path / _MEMORY, limits.SMALL_JSON_BYTES))
            same, pending = (Stamp(**plain[name]) if plain[name] else None for name in ("same", "pending"))
            return Memory(same, pending, Stored(**plain["seen"]) if plain["seen"] else None)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            return Memory()  # damaged: the state only saves transfers

    def remember(self, memory: Memory) -> None:
        """Store `memory` in the run directory."""
        file = self.path / _MEMORY
        with atomic_write(file, lambda why: RunError(f"{file}: cannot write: {why}; rerun with --resume")) as open_file:
            open_file.write(json.dumps(asdict(memory)).encode())

    def push_experiment(self, former: bytes | None = None) -> None:
        """Push the experiment of a new run, or a later version of it with more provenance.

        Args:
            former: the former content of this run's file; None: the run is new.

        Raises:
            RunError: another run has begun there meanwhile.
        """
        if self.store.info(EXPERIMENT) is not None:
            try:
                there = self.store.read(EXPERIMENT, limits.YAML_BYTES)
                if there not in (former, (self.path / EXPERIMENT).read_bytes()):
                    raise RunError(f"{self.store.shown}: another machine has begun a run there; give another --out")
            except FileNotFoundError:
                pass  # deleted meanwhile
        self.store.put(EXPERIMENT, self.path / EXPERIMENT)
        self.remember(Memory())

    def begin_push(self) -> None:
        """Begin to push the rounds up to the checkpoint in the background; `failure` waits for the end."""
        # One thread: pushes of two rounds must not overtake each other.
        self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="mirror")
        self._pushing = self._pool.submit(self.push_rounds)

    def failure(self) -> RunError | None:
        """Wait until the background push ends, and return its error, if any."""
        pushing, self._pushing = self._pushing, None
        try:
            if pushing is not None:
                pushing.result()
        except RunError as error:
            return error
        return None

    def push_rounds(self) -> None:
        """Push the rounds up to the checkpoint, then the checkpoint; do nothing if they are at the URI.

        Raises:
            RunError: the push fails, or another machine writes there.
        """
        stamp, memory = stamp_of(self.path / CHECKPOINT), self.memory() or Memory()
        if stamp is None or stamp == memory.same:
            return
        self._check_alone(memory, stamp)
        after = memory.same.round_number if memory.same is not None else 0
        names = [name for name in self.parts() if after < (round_of(name) or 0) <= stamp.round_number]
        names += [n for n in aggregate_files(self.path) if after < (round_of_aggregate(n) or 0) <= stamp.round_number]
        if time.monotonic() - self._log_pushed > _LOG_EVERY_S and (self.path / LOG).is_file():
            names.append(LOG)
            self._log_pushed = time.monotonic()
        # Rows first, the checkpoint last: an interrupted push leaves the URI at the former round.
        self._put(names)
        # Checked again: another machine may have pushed while the rows were on their way.
        memory = replace(self._check_alone(memory, stamp), pending=stamp)
        self.remember(memory)
        self.store.put(CHECKPOINT, self.path / CHECKPOINT)
        self.remember(Memory(stamp, None, self.store.info(CHECKPOINT)))

    def push_tables(self) -> None:
        """Push the merged tables; `push_rounds` has pushed the checkpoint."""
        self._check_alone(self.memory() or Memory(), stamp_of(self.path / CHECKPOINT))
        self._put(name for name in TABLES if (self.path / name).is_file())
        self.push_clients()

    def push_clients(self) -> None:
        """Push the `clients` table, which never changes, unless it is at the URI."""
        if (self.path / CLIENTS_FILE).is_file() and self.store.info(CLIENTS_FILE) is None:
            self._put([CLIENTS_FILE])

    def push_summary(self) -> None:
        """Push summary and log; if the tables are merged, delete the rounds' parts at the URI."""
        self._put(name for name in (SUMMARY, LOG) if (self.path / name).is_file())
        # Only after the tables and the summary are there: readers take either parts or tables.
        if not (self.path / "parts").exists() and (self.path / SUMMARY).is_file():
            self.store.delete_below("parts")

    def push_attempts(self) -> None:
        """Push the attempts at rounds; they are at the URI when this returns."""
        self._put([ATTEMPTS])

    def push_log(self) -> None:
        """Push the log as it is now."""
        self._put([LOG] if (self.path / LOG).is_file() else [])

    def parts(self) -> list[str]:
        """Return the names of the rounds' files in the run directory."""
        names = (file.relative_to(self.path).as_posix() for file in self.path.glob("parts/round-*/*.parquet"))
        return sorted(name for name in names if round_of(name) is not None)

    def _put(self, names: Iterable[str]) -> None:
        thread_map(lambda name: self.store.put(name, self.path / name), names)

    def _check_alone(self, memory: Memory, own: Stamp | None) -> Memory:
        """Return the current state of the mirror.

        Object stores have no locks: if two machines write at the same moment, the second to write notices at its next
        push.

        Raises:
            RunError: the checkpoint at the URI is not ours.
        """
        remote_info = self.store.info(CHECKPOINT)
        if remote_info == memory.seen:
            return memory
        try:
            remote = stamp_of(self.store.read(CHECKPOINT))
        except FileNotFoundError:
            remote = None
        if remote is not None and remote in (memory.same, memory.pending, own):
            return replace(memory, seen=remote_info) if remote == memory.same else memory
        state = "was deleted" if remote is None else f"is of round {remote.round_number} and not of this run"
        raise RunError(
            f"{self.store.shown}: the checkpoint there {state}: another machine writes to this URI; "
            "end one of the two runs, then rerun with --resume"
        )
