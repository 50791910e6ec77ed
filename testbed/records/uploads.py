"""Bringing what a run records to the URI that its directory mirrors, so that what lies there is always consistent.

Order is all: the files of a round, then the checkpoint that makes them count; merged tables, then the summary, then
the rounds' parts go. A push cut off at any moment leaves what a kill leaves in a directory (see `writer`).

A round's push runs while the next round does. `.mirrored` in the run directory remembers up to which checkpoint both
places are the same, and what the one at the URI looked like: when it has changed since, another machine writes there.
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

MARK = ".mirror"  # in the directory of a run or sweep: where it is mirrored
EXPERIMENT, SUMMARY, ATTEMPTS = "experiment.yaml", "summary.json", "attempts.json"
TABLES = tuple(f"{name}.parquet" for name in SCHEMAS)
_PART = re.compile(rf"parts/round-(\d{{6,}})/({'|'.join(SCHEMAS)})\.parquet")
_MEMORY = ".mirrored"
_LOG_EVERY_S = 30.0  # an object cannot be appended to: the log goes as a whole, and not with every round


@dataclass(frozen=True)
class Memory:
    """What a run directory knows of its mirror.

    Attributes:
        same: the last checkpoint that both places held; None: none yet.
        pending: another one that may be there: ours, cut off before this was written, or the one we will replace.
        seen: what the checkpoint at the URI looked like when it was `same`.
    """

    same: Stamp | None = None
    pending: Stamp | None = None
    seen: Stored | None = None


def round_of(name: str) -> int | None:
    """The round of a part by its name in the run directory; None when it is no part."""
    found = _PART.fullmatch(name)
    return int(found[1]) if found else None


def tables_in(files: Iterable[str]) -> list[str]:
    """The merged tables that a run has, or will have, of which these are the files, by their names in its directory."""
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
        """The mirror of a run directory that has one: the mark is in it, or, for a sweep, in the one above."""
        for directory in (path, path.parent):
            mark = directory / MARK
            if mark.is_file():
                try:
                    uri = json.loads(limits.whole(mark, limits.SMALL_JSON_BYTES))["uri"]
                except (OSError, ValueError, KeyError, TypeError) as error:
                    raise RunError(f"{mark}: cannot be read ({error}); give the URI again as --out") from None
                return cls(path, Store(uri).below(path.relative_to(directory).as_posix()))
        return None

    def memory(self) -> Memory | None:
        """What was remembered; None when nothing of this run has ever been at the URI."""
        try:
            plain = json.loads(limits.whole(self.path / _MEMORY, limits.SMALL_JSON_BYTES))
            same, pending = (Stamp(**plain[name]) if plain[name] else None for name in ("same", "pending"))
            return Memory(same, pending, Stored(**plain["seen"]) if plain["seen"] else None)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            return Memory()  # damaged: it only saves work

    def remember(self, memory: Memory) -> None:
        """Keep `memory` in the run directory."""
        file = self.path / _MEMORY
        with atomic_write(file, lambda why: RunError(f"{file}: cannot write: {why}; rerun with --resume")) as open_file:
            open_file.write(json.dumps(asdict(memory)).encode())

    def push_experiment(self, former: bytes | None = None) -> None:
        """Push the experiment: of a new run, or what this run has recorded of itself since.

        Args:
            former: the bytes that the file of this run had before; None: it is new.

        Raises:
            RunError: another run has begun there meanwhile.
        """
        if self.store.info(EXPERIMENT) is not None:
            try:
                there = self.store.read(EXPERIMENT, limits.YAML_BYTES)
                if there not in (former, (self.path / EXPERIMENT).read_bytes()):
                    raise RunError(f"{self.store.shown}: another machine has begun a run here; give another --out")
            except FileNotFoundError:
                pass  # gone again
        self.store.put(EXPERIMENT, self.path / EXPERIMENT)
        self.remember(Memory())

    def begin_push(self) -> None:
        """Begin to bring the rounds up to the checkpoint to the URI, while the caller goes on; `failure` waits."""
        self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="mirror")
        self._pushing = self._pool.submit(self.push_rounds)

    def failure(self) -> RunError | None:
        """Wait until a push that has begun is done, and return what went wrong with it."""
        pushing, self._pushing = self._pushing, None
        try:
            if pushing is not None:
                pushing.result()
        except RunError as error:
            return error
        return None

    def push_rounds(self) -> None:
        """Bring the rounds up to the checkpoint to the URI, and the checkpoint; does nothing when they are there.

        Raises `RunError` when it cannot, or another machine writes there.
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
        self._put(names)
        memory = replace(self._check_alone(memory, stamp), pending=stamp)
        self.remember(memory)
        self.store.put(CHECKPOINT, self.path / CHECKPOINT)
        self.remember(Memory(stamp, None, self.store.info(CHECKPOINT)))

    def push_tables(self) -> None:
        """Bring the merged tables to the URI; the checkpoint is there already (`push_rounds`)."""
        self._check_alone(self.memory() or Memory(), stamp_of(self.path / CHECKPOINT))
        self._put(name for name in TABLES if (self.path / name).is_file())
        self.push_clients()

    def push_clients(self) -> None:
        """Bring the `clients` table to the URI, unless it is there: it never changes."""
        if (self.path / CLIENTS_FILE).is_file() and self.store.info(CLIENTS_FILE) is None:
            self._put([CLIENTS_FILE])

    def push_summary(self) -> None:
        """Bring summary and log to the URI; when the tables are merged the rounds' parts are deleted there."""
        self._put(name for name in (SUMMARY, LOG) if (self.path / name).is_file())
        if not (self.path / "parts").exists() and (self.path / SUMMARY).is_file():
            self.store.delete_below("parts")

    def push_attempts(self) -> None:
        """Bring the attempts at rounds to the URI; they are there when this returns."""
        self._put([ATTEMPTS])

    def push_log(self) -> None:
        """Bring the log to the URI as it is now."""
        self._put([LOG] if (self.path / LOG).is_file() else [])

    def parts(self) -> list[str]:
        """The names of the rounds' files in the run directory."""
        names = (file.relative_to(self.path).as_posix() for file in self.path.glob("parts/round-*/*.parquet"))
        return sorted(name for name in names if round_of(name) is not None)

    def _put(self, names: Iterable[str]) -> None:
        thread_map(lambda name: self.store.put(name, self.path / name), names)

    def _check_alone(self, memory: Memory, own: Stamp | None) -> Memory:
        """Raise `RunError` when the checkpoint at the URI is not one that we put there; what is known of it now.

        Object stores have no locks: two machines that write within the same moment are not noticed in that moment,
        but by the one that comes second the next time.
        """
        seen = self.store.info(CHECKPOINT)
        if seen == memory.seen:
            return memory
        try:
            there = stamp_of(self.store.read(CHECKPOINT))
        except FileNotFoundError:
            there = None
        if there is not None and there in (memory.same, memory.pending, own):
            return replace(memory, seen=seen) if there == memory.same else memory
        what = "has gone" if there is None else f"is of round {there.round_number} and not of this run"
        raise RunError(
            f"{self.store.shown}: the checkpoint there {what}: another machine writes to this URI; "
            "end one of the two, and rerun with --resume"
        )
