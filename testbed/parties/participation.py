"""Limits on the frequency and spacing of participation, enforced by the clients themselves, and the clients' memory.

A client counts a round from the moment that it begins to train. Aggregation gets nothing of its data without an update
of the round (`testbed.training.trained_update`), so the rounds whose sums include its update are among the counted
ones. The client cannot know which sums include it, as a malicious server may lie about that.

A client must remember these rounds even if its host dies or the run is resumed. Its decision is therefore written
to a file in the run's directory before its answer leaves the host (`ParticipationLog.sync`). Every process appends to
its own file, and reads all files when it starts. Checksums detect modified entries, and a run continues only if no
client has forgotten a round that is in the records (`check_remembered`).
"""

import os
import secrets
import tempfile
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from testbed.arrays import Ids
from testbed.errors import Refusal, RunError
from testbed.workload.client_states import FOLDER

_SUFFIX = ".participation"
# Little-endian on every machine: a run may be resumed on another one.
_ENTRY = np.dtype([("client", "<i8"), ("value", "<i8"), ("kind", "<i4"), ("checksum", "<u4")])
_CHECKED = 20  # bytes of an entry that the CRC-32 after them is of
_KINDS = {"round": 0, "bin": 1, "mate": 2, "batch": 3}


class ParticipationLog:
    """The rounds in which clients have begun to train, their bins, and the batches that they have pinned.

    Threads may share the log, as long as each client belongs to one thread.

    Args:
        directory: the run's directory; None: a temporary one, deleted with the object.

    Raises:
        RunError: the clients' memory cannot be read.
    """

    def __init__(self, directory: Path | None) -> None:
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="testbed-participation-")
            directory = Path(self._temporary.name)
        self._folder = directory / FOLDER
        self._file: int | None = None
        self._unsaved = False
        self._lock = threading.Lock()
        self._rounds: dict[int, list[int]] = {}
        self._bins: dict[int, int] = {}
        self._batches: dict[int, frozenset[int]] = {}
        for path in _files(directory):
            self._read(path)

    def rounds(self, client: int) -> list[int]:
        """Return the rounds in which the client has begun to train, ascending."""
        # A repeated round is logged once more each time.
        return sorted(set(self._rounds.get(client, [])))

    def trains(self, client: int, round_number: int) -> None:
        """Record that the client begins to train in this round."""
        self._rounds.setdefault(client, []).append(round_number)
        self._append(client, "round", round_number)

    def bin(self, client: int) -> int | None:
        """Return the bin that the client has chosen; None: none yet."""
        return self._bins.get(client)

    def thrown(self, client: int, number: int) -> None:
        """Record the bin that the client has chosen."""
        self._bins[client] = number
        self._append(client, "bin", number)

    def batch(self, client: int) -> frozenset[int] | None:
        """Return the members of the batch that the client has pinned; None: none yet."""
        return self._batches.get(client)

    def pins(self, client: int, members: frozenset[int]) -> None:
        """Record the members of the client's batch."""
        self._batches[client] = members
        for mate in sorted(members):
            self._append(client, "mate", mate)
        # Last: without it, as after the death of the process in between, nothing counts as pinned.
        self._append(client, "batch", len(members))

    def sync(self) -> None:
        """Write all records to disk; raises `RunError`."""
        with self._lock:
            if not self._unsaved or self._file is None:
                return
            try:
                os.fsync(self._file)
            except OSError as error:
                raise self._unwritable(error) from None
            self._unsaved = False

    def _append(self, client: int, kind: Literal["round", "bin", "mate", "batch"], value: int) -> None:
        entry = np.array([(client, value, _KINDS[kind], 0)], _ENTRY).tobytes()[:_CHECKED]
        entry += zlib.crc32(entry).to_bytes(4, "little")
        with self._lock:
            try:
                if self._file is None:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    # A new file per process: only its last entry can be cut off, and only by the death of its process.
                    name = self._folder / f"{secrets.token_hex(8)}{_SUFFIX}"
                    self._file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o666)
                if os.write(self._file, entry) != len(entry):
                    raise OSError("no space left")
            except OSError as error:
                self._close()  # nothing is ever appended to part of an entry
                raise self._unwritable(error) from None
            self._unsaved = True

    def _read(self, path: Path) -> None:
        # By file: the last batch of a process that died may lack members.
        mates: dict[int, set[int]] = {}
        for client, value, kind, _ in _entries(path).tolist():
            if kind == _KINDS["bin"]:
                self._bins[client] = value
            elif kind == _KINDS["mate"]:
                mates.setdefault(client, set()).add(value)
            elif kind == _KINDS["batch"]:
                self._batches[client] = frozenset(mates.pop(client, ()))
            else:
                self._rounds.setdefault(client, []).append(value)

    def _unwritable(self, error: OSError) -> RunError:
        return RunError(
            f"{self._folder}: cannot write: {error.strerror or error}; earlier records are intact, rerun with --resume"
        )

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self._close()


def check_remembered(directory: Path, in_sums: Ids) -> None:
    """Raise `RunError` if clients have forgotten a round: their memory in a run's directory is damaged or gone.

    Args:
        directory: the run's directory.
        in_sums: client numbers, each as often as a recorded sum has its update.
    """
    parts = [entries[entries["kind"] == _KINDS["round"]] for entries in map(_entries, _files(directory))]
    # A repeated round has several entries, but counts once.
    rounds = np.unique(np.concatenate([np.zeros(0, _ENTRY), *parts])[["client", "value"]])["client"]
    clients, sums = np.unique(in_sums, return_counts=True)
    remembered = np.searchsorted(rounds, clients, side="right") - np.searchsorted(rounds, clients)
    if (remembered < sums).any():
        first = int(np.argmax(remembered < sums))
        raise _lost(
            directory / FOLDER,
            f"client {clients[first]} remembers {remembered[first]} rounds, but is in {sums[first]} sums",
        )


def check_pinned(directory: Path, in_sums: Ids) -> None:
    """Raise `RunError` if a client has forgotten its batch.

    Args:
        directory: the run's directory.
        in_sums: client numbers with an update in a recorded sum.
    """
    log = ParticipationLog(directory)
    forgotten = [client for client in np.unique(in_sums).tolist() if log.batch(client) is None]
    if forgotten:
        raise _lost(directory / FOLDER, f"client {forgotten[0]} is in a sum, but has pinned no batch")


def _files(directory: Path) -> Iterator[Path]:
    yield from sorted((directory / FOLDER).glob(f"*{_SUFFIX}"))


def _entries(path: Path) -> Any:
    """Return the entries of a file, `_ENTRY`; raises `RunError` if an entry has been modified."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _lost(path, error.strerror or str(error)) from None
    whole = len(content) - len(content) % _ENTRY.itemsize  # the last entry of a process that died may be cut off
    entries = np.frombuffer(content[:whole], _ENTRY)
    for number, (begin, checksum) in enumerate(zip(range(0, whole, _ENTRY.itemsize), entries["checksum"], strict=True)):
        if zlib.crc32(content[begin : begin + _CHECKED]) != checksum:
            raise _lost(path, f"entry {number + 1} has changed")
    return entries


def _lost(path: Path, why: str) -> RunError:
    return RunError(
        f"{path}: the clients' memory of their participation is lost ({why}), and the run cannot continue without it; "
        "restore it from a copy, or start again with another --out"
    )


class Pattern(Protocol):
    """The protocol of `testbed.privacy.participation_pattern.ParticipationPattern`, which documents the members."""

    @property
    def min_separation(self) -> int: ...

    @property
    def max_participations(self) -> int | None: ...

    @property
    def fixed_cycle(self) -> bool: ...


@dataclass(frozen=True)
class OwnParticipation:
    """The limits that every client puts on its own rounds, without knowledge of other clients.

    Attributes:
        pattern: pattern of the rounds in which a client trains.
        log: the clients' memory.
    """

    pattern: Pattern
    log: ParticipationLog

    def begin(self, client: int, number: int) -> None:
        """Record that the client begins to train in this round; raises `Refusal` if the pattern does not allow it."""
        # The round itself is left out: a round that a stop of the host or the run interrupted is repeated.
        had = [other for other in self.log.rounds(client) if other != number]
        separation, most = self.pattern.min_separation, self.pattern.max_participations
        if had:
            # Later rounds count as well: a server that runs ahead with round numbers gains nothing by a host's death.
            nearest = min(had, key=lambda other: (abs(number - other), -other))
            since = f"round {number}, and this client trained in {nearest}"
            if abs(number - nearest) < separation:
                raise Refusal("train.too-early", f"{since}: at least {separation} apart")
            if self.pattern.fixed_cycle and (number - nearest) % separation:
                raise Refusal("train.out-of-cycle", f"{since}: only every {separation} rounds from there")
            if most is not None and len(had) >= most:
                raise Refusal("train.too-often", f"{since}: {len(had)} times, and at most {most}")
        # Before training: a client whose update is in a sum has always logged the round.
        self.log.trains(client, number)
