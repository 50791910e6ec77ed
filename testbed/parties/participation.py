"""How often, and how close together, clients take part: they insist on it themselves, whatever a server asks.

A client counts from the moment that it begins to train. Without an update of the round no aggregation gets anything of
its data (`testbed.training.trained_update`), so the rounds whose sums it is in are among those; whether a sum has it in
the end it could only be told by the server, who may lie.

It has to know in which rounds that was, also after the host that it lived on has died, and in a run that goes on. So
what it has decided is in a file of the run's directory before its answer leaves the host (`ParticipationLog.sync`).
Every process appends to a file of its own, and reads those of all when it begins. An entry that has changed since is
noticed by its checksum, and a run goes on only if nobody has forgotten a round that the records have
(`check_remembered`).

A round that was under way when a host or a run stopped is repeated, so a client begins one number again. All other
numbers that it knows count, higher ones too: a server that runs ahead with its numbers gains nothing by a host that
dies.
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
_ENTRY = np.dtype([("client", "<i8"), ("value", "<i8"), ("kind", "<i4"), ("checksum", "<u4")])
_CHECKED = 20  # bytes of an entry that the CRC-32 after them is of
_KINDS = {"round": 0, "bin": 1}


class ParticipationLog:
    """The rounds in which clients have begun to train, and the bins that they have thrown themselves into.

    Threads may share it, as each client is one thread's.

    Args:
        directory: the run's; None: a temporary one, which goes with the object.

    Raises:
        RunError: what clients remember cannot be read.
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
        for path in _files(directory):
            self._read(path)

    def rounds(self, client: int) -> list[int]:
        """The rounds in which it has begun to train, ascending."""
        return sorted(set(self._rounds.get(client, [])))

    def trains(self, client: int, round_number: int) -> None:
        """It begins to train in this round."""
        self._rounds.setdefault(client, []).append(round_number)
        self._append(client, "round", round_number)

    def bin(self, client: int) -> int | None:
        """The bin that it has thrown itself into; None: it has not yet."""
        return self._bins.get(client)

    def thrown(self, client: int, number: int) -> None:
        """It has thrown itself into this bin."""
        self._bins[client] = number
        self._append(client, "bin", number)

    def sync(self) -> None:
        """All of that is on disk when this returns; raises `RunError`."""
        with self._lock:
            if not self._unsaved or self._file is None:
                return
            try:
                os.fsync(self._file)
            except OSError as error:
                raise self._unwritable(error) from None
            self._unsaved = False

    def _append(self, client: int, kind: Literal["round", "bin"], value: int) -> None:
        entry = np.array([(client, value, _KINDS[kind], 0)], _ENTRY).tobytes()[:_CHECKED]
        entry += zlib.crc32(entry).to_bytes(4, "little")
        with self._lock:
            try:
                if self._file is None:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    name = self._folder / f"{secrets.token_hex(8)}{_SUFFIX}"
                    self._file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o666)
                if os.write(self._file, entry) != len(entry):
                    raise OSError("no space left")
            except OSError as error:
                self._close()  # nothing is ever appended to part of an entry
                raise self._unwritable(error) from None
            self._unsaved = True

    def _read(self, path: Path) -> None:
        for client, value, kind, _ in _entries(path).tolist():
            if kind == _KINDS["bin"]:
                self._bins[client] = value
            else:
                self._rounds.setdefault(client, []).append(value)

    def _unwritable(self, error: OSError) -> RunError:
        return RunError(
            f"{self._folder}: cannot write: {error.strerror or error}; what was recorded before is intact, rerun with "
            "--resume"
        )

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self._close()


def check_remembered(directory: Path, in_sums: Ids) -> None:
    """Raise `RunError` where clients have forgotten a round: their memory in a run's directory is damaged, or gone.

    Args:
        directory: the run's.
        in_sums: client numbers, each as often as a recorded sum has its update.
    """
    parts = [entries[entries["kind"] == _KINDS["round"]] for entries in map(_entries, _files(directory))]
    rounds = np.unique(np.concatenate([np.zeros(0, _ENTRY), *parts])[["client", "value"]])["client"]
    clients, wanted = np.unique(in_sums, return_counts=True)
    known = np.searchsorted(rounds, clients, side="right") - np.searchsorted(rounds, clients)
    if (known < wanted).any():
        first = int(np.argmax(known < wanted))
        raise _lost(
            directory / FOLDER,
            f"client {clients[first]} knows of {known[first]} rounds, and is in {wanted[first]} sums",
        )


def _files(directory: Path) -> Iterator[Path]:
    yield from sorted((directory / FOLDER).glob(f"*{_SUFFIX}"))


def _entries(path: Path) -> Any:
    """The entries of a file, `_ENTRY`; raises `RunError` where one is not as it was written."""
    try:
        found = path.read_bytes()
    except OSError as error:
        raise _lost(path, error.strerror or str(error)) from None
    whole = len(found) - len(found) % _ENTRY.itemsize  # the last entry of a process that died may be cut off
    entries = np.frombuffer(found[:whole], _ENTRY)
    for number, (begin, checksum) in enumerate(zip(range(0, whole, _ENTRY.itemsize), entries["checksum"], strict=True)):
        if zlib.crc32(found[begin : begin + _CHECKED]) != checksum:
            raise _lost(path, f"entry {number + 1} has changed")
    return entries


def _lost(path: Path, why: str) -> RunError:
    return RunError(
        f"{path}: what clients remember of their participation is lost ({why}), and nothing goes on without; restore "
        "it from a copy, or start again with another --out"
    )


class Pattern(Protocol):
    """`testbed.privacy.participation_pattern.ParticipationPattern`, which says what these are."""

    @property
    def min_separation(self) -> int: ...

    @property
    def max_participations(self) -> int | None: ...

    @property
    def fixed_cycle(self) -> bool: ...


@dataclass(frozen=True)
class OwnParticipation:
    """What every client insists on about its own rounds; of others' it knows nothing.

    Attributes:
        pattern: of the rounds in which it trains.
        log: what clients remember.
    """

    pattern: Pattern
    log: ParticipationLog

    def begin(self, client: int, number: int) -> None:
        """The client begins to train in this round, and remembers; raises `Refusal` where it is not to."""
        had = [other for other in self.log.rounds(client) if other != number]
        separation, most = self.pattern.min_separation, self.pattern.max_participations
        if had:
            nearest = min(had, key=lambda other: (abs(number - other), -other))
            since = f"round {number}, and this client trained in {nearest}"
            if abs(number - nearest) < separation:
                raise Refusal("train.too-early", f"{since}: at least {separation} apart")
            if self.pattern.fixed_cycle and (number - nearest) % separation:
                raise Refusal("train.out-of-cycle", f"{since}: only every {separation} rounds from there")
            if most is not None and len(had) >= most:
                raise Refusal("train.too-often", f"{since}: {len(had)} times, and at most {most}")
        self.log.trains(client, number)
