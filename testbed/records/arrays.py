"""Arrays of a run in ``.npz`` files: its checkpoint, and the server's view of rounds.

``checkpoint.npz`` is the state of a run after its last finished round, and validates that round. A missing or damaged
checkpoint therefore never means that nothing has been recorded: the previous checkpoint takes its place (later rounds
are repeated, and their releases are charged, see `writer`), and without a previous one a run with recorded rounds
cannot be resumed.

``aggregates/round-000123.npz``, one for each completed round if the experiment asks for it (`records.aggregates`), has
the server's view of the updates: the model at the beginning of the round and the mean from the aggregation. It takes
12 bytes per parameter. The table ``participation`` has the clients in the mean.

No file takes more memory than it has bytes on disk, unlike with `numpy.load`.
"""

import contextlib
import io
import math
import os
import re
import shutil
import zipfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from testbed.errors import RunError
from testbed.files import limits
from testbed.files.atomic import atomic_write

ERRORS = (OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile)
"""Errors that reading `Arrays` raises: from the system, and for a damaged file."""

_LONGEST_HEADER = 10_000
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Arrays:
    """The arrays in a file by name, each read on access; a context manager.

    Args:
        source: the file's path, or the file, open for reading.

    Raises:
        OSError, ValueError, zipfile.BadZipFile: see `ERRORS`.
    """

    def __init__(self, source: Path | IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(source)
        members = self._zip.infolist()
        self._members = {member.filename.removesuffix(".npy"): member for member in members}
        # `numpy.savez` does not compress: a compressed member is damage, and a kilobyte could unpack to terabytes.
        if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members):
            raise ValueError("a compressed array")
        file = self._zip.fp
        assert file is not None
        size = file.seek(0, 2)
        # Members may also share bytes of the file: each read would allocate them again.
        if size > limits.ARRAYS_BYTES or sum(member.file_size for member in members) > size:
            raise ValueError("arrays larger than the file")

    def __enter__(self) -> "Arrays":
        return self

    def __exit__(self, *error: Any) -> None:
        self._zip.close()

    @property
    def names(self) -> list[str]:
        """Names in the order of the file."""
        return list(self._members)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        member = self._members[name]
        with self._zip.open(member) as file:
            version = np.lib.format.read_magic(file)
            if version not in _HEADERS:
                raise ValueError("an array of an unknown version")
            shape, by_column, kind = _HEADERS[version](file, max_header_size=_LONGEST_HEADER)
            content = file.read()  # no more than the member's size, which is no more than the file's
        # `numpy.load` would allocate the header's size first, and unpickle objects, which runs code from the file.
        if kind.hasobject or math.prod(shape) * kind.itemsize != len(content):
            raise ValueError("an array that does not match its header")
        if by_column:
            return np.frombuffer(content, kind).reshape(shape[::-1]).T.copy(order="F")
        # Copied: an array over `bytes` cannot be written to.
        return np.frombuffer(content, kind).reshape(shape).copy()


CHECKPOINT = "checkpoint.npz"
PREVIOUS = "checkpoint-previous.npz"
_MEMORY = "memory/"  # prefix of the selection protocol's arrays in a checkpoint


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after a round.

    Attributes:
        round_number: the last finished round (0: none).
        now_s: virtual seconds.
        model: `(d,)` float32 after that round.
        participations: `(n,)` int64 rounds for which each client was selected.
        wall_s: wall-clock seconds so far, over all sessions of the run.
        memory: state of the selection protocol, arrays by name.
    """

    round_number: int
    now_s: float
    model: npt.NDArray[np.float32]
    participations: npt.NDArray[np.int64]
    wall_s: float
    memory: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Stamp:
    """Identification of a checkpoint within its run: its round, virtual and wall-clock seconds."""

    round_number: int
    now_s: float
    wall_s: float


@dataclass(frozen=True)
class LoadedCheckpoint:
    """The checkpoint in a run directory.

    Attributes:
        checkpoint: None: no round has been recorded.
        lost: why the last checkpoint is unusable, if `checkpoint` is the previous one; empty: it is usable.
    """

    checkpoint: Checkpoint | None
    lost: str = ""


def read_checkpoint(path: Path) -> LoadedCheckpoint:
    """Return the last checkpoint of the run in a directory, or the previous one in its place.

    Raises:
        RunError: both are missing or damaged, and rounds have been recorded.
    """
    try:
        return LoadedCheckpoint(_load(path / CHECKPOINT))
    except FileNotFoundError:
        lost, whole = f"{CHECKPOINT} is missing", "restore it"
    except ERRORS as error:
        lost, whole = f"damaged checkpoint ({error})", "put an intact one in its place"
    try:
        return LoadedCheckpoint(_load(path / PREVIOUS), lost)
    except FileNotFoundError:
        pass
    except ERRORS as error:
        lost += f", and so is the one before ({error})"
    recorded = _rounds_recorded(path)
    if lost.endswith("missing") and recorded < 2:  # killed while recording round 1, which did not count yet
        return LoadedCheckpoint(None)
    raise RunError(
        f"{path / CHECKPOINT}: {lost}, and there is no previous one; round {recorded} was reached, so the run cannot "
        f"be resumed without it: {whole} from a copy, or start again with another --out, "
        "which does not account for the releases of this run"
    )


def stamp(path: Path) -> Stamp | None:
    """Return the stamp of a run's checkpoint without reading its model; None: no round has been recorded.

    Raises:
        RunError: as `read_checkpoint`.
    """
    for name in (CHECKPOINT, PREVIOUS):
        with contextlib.suppress(*ERRORS), Arrays(path / name) as stored:
            return _stamp(stored)
    checkpoint = read_checkpoint(path).checkpoint  # raises an error that explains the damage
    return None if checkpoint is None else Stamp(checkpoint.round_number, checkpoint.now_s, checkpoint.wall_s)


def stamp_of(checkpoint: Path | bytes) -> Stamp | None:
    """Return the stamp of a checkpoint file.

    Args:
        checkpoint: its content, or its path; None is returned if the path does not exist.

    Raises:
        RunError: the checkpoint is damaged.
    """
    try:
        with Arrays(io.BytesIO(checkpoint) if isinstance(checkpoint, bytes) else checkpoint) as stored:
            return _stamp(stored)
    except FileNotFoundError:
        return None
    except ERRORS as error:
        where = "the checkpoint at the URI" if isinstance(checkpoint, bytes) else str(checkpoint)
        advice = "restore it, or start again with another --out"
        raise RunError(f"{where}: damaged checkpoint ({error}); {advice}") from None


def restored(path: Path) -> Stamp | None:
    """Return the stamp as `stamp` does, after putting the previous checkpoint in the place of a lost one.

    Only for a directory to which no other process writes.
    """
    if read_checkpoint(path).lost:
        # Under another name first: a kill while copying must not leave a torn checkpoint.
        shutil.copyfile(path / PREVIOUS, path / f".{CHECKPOINT}.writing")
        os.replace(path / f".{CHECKPOINT}.writing", path / CHECKPOINT)
    return stamp(path)


def write_checkpoint(path: Path, checkpoint: Checkpoint, *, keep_last: bool) -> None:
    """Write a checkpoint to disk.

    Args:
        path: the run directory.
        checkpoint: the new checkpoint.
        keep_last: whether the last checkpoint becomes the previous one, in case the new one is lost.
    """
    if keep_last:
        keep_checkpoint(path)
    plain = {name: value for name, value in vars(checkpoint).items() if name != "memory"}
    _save(path / CHECKPOINT, plain | {_MEMORY + name: array for name, array in checkpoint.memory.items()})


def keep_checkpoint(path: Path, *, copy: bool = False) -> None:
    """Make the last checkpoint the previous one, too; do nothing without a checkpoint.

    Args:
        path: the run directory.
        copy: whether to copy the file, so that damage to one file does not affect the other.
    """
    last, before = path / CHECKPOINT, path / PREVIOUS
    temporary = path / f".{PREVIOUS}.writing"
    try:
        temporary.unlink(missing_ok=True)
        if not last.exists():
            return
        with contextlib.suppress(OSError):  # a file system without links
            if not copy:
                os.link(last, temporary)  # the file is never modified, only replaced
        if not temporary.exists():
            shutil.copyfile(last, temporary)
        os.replace(temporary, before)
        temporary.unlink(missing_ok=True)  # renaming does nothing if both names are the same file
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise cannot_write(before, error.strerror or str(error)) from None


def cannot_write(path: Path, why: str) -> RunError:
    """Return the error for a file that cannot be written.

    Args:
        path: of the file.
        why: the reason.
    """
    return RunError(f"{path}: cannot write: {why}; earlier records are intact, rerun with --resume")


def replacing(path: Path) -> AbstractContextManager[IO[bytes]]:
    """Open a file of a run for writing; see `atomic_write`.

    Raises:
        RunError: as `cannot_write`.
    """
    return atomic_write(path, lambda why: cannot_write(path, why))


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    stored = io.BytesIO()  # first in memory: a zip file truncated by a full disk raises errors when it is collected
    np.savez(stored, **arrays)  # uncompressed: a compressor sees noise
    with replacing(path) as file:
        file.write(stored.getbuffer())


def _stamp(stored: Arrays) -> Stamp:
    return Stamp(int(stored["round_number"]), float(stored["now_s"]), float(stored["wall_s"]))


def _load(file: Path) -> Checkpoint:
    with Arrays(file) as stored:
        memory = {name.removeprefix(_MEMORY): stored[name] for name in stored.names if name.startswith(_MEMORY)}
        at, model, participations = _stamp(stored), stored["model"], stored["participations"]
    return Checkpoint(at.round_number, at.now_s, model, participations, at.wall_s, memory)


def _rounds_recorded(path: Path) -> int:
    """Return a lower bound of the rounds recorded: the latest part, or 2 if the run has merged tables."""
    parts = [int(part.name.removeprefix("round-")) for part in path.glob("parts/round-*") if part.name[6:].isdigit()]
    merged = 2 if (path / "rounds.parquet").is_file() else 0
    return max([merged, *parts])


_AGGREGATES = "aggregates"
_AGGREGATE = re.compile(rf"{_AGGREGATES}/round-(\d{{6,}})\.npz")


@dataclass(frozen=True)
class RoundAggregate:
    """The server's view of a completed round.

    Attributes:
        model: `(d,)` float32 at the start of the round.
        mean: `(d,)` float64, the weighted mean of the survivors' updates.
        weight: sum of the survivors' weights.
    """

    model: npt.NDArray[np.float32]
    mean: npt.NDArray[np.float64]
    weight: float


def _aggregate_name(round_number: int) -> str:
    """Return the name of a round's file in the run directory."""
    return f"{_AGGREGATES}/round-{round_number:06d}.npz"


def round_of_aggregate(name: str) -> int | None:
    """Return the round of an aggregate's file by its name; None for another file."""
    match = _AGGREGATE.fullmatch(name)
    return int(match[1]) if match else None


def aggregate_files(path: Path) -> list[str]:
    """Return the names of aggregates in a run directory, in the order of the rounds."""
    names = (file.relative_to(path).as_posix() for file in path.glob(f"{_AGGREGATES}/*.npz"))
    return sorted(name for name in names if round_of_aggregate(name) is not None)


def write_aggregate(path: Path, round_number: int, aggregate: RoundAggregate | None) -> None:
    """Write a round's aggregate into a run directory, or delete the file of an earlier attempt.

    Args:
        path: the run directory.
        round_number: the round.
        aggregate: None: this round has none.

    Raises:
        RunError: the file cannot be written.
    """
    file_path = path / _aggregate_name(round_number)
    try:
        if aggregate is None:
            file_path.unlink(missing_ok=True)
            return
        file_path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(file_path, error.strerror or str(error)) from None
    _save(file_path, vars(aggregate))


def read_aggregate(path: Path, round_number: int) -> RoundAggregate | None:
    """Return a round's aggregate; None if there is none.

    Args:
        path: the run directory.
        round_number: the round.

    Raises:
        RunError: the file is damaged.
    """
    file = path / _aggregate_name(round_number)
    try:
        with Arrays(file) as stored:
            return RoundAggregate(stored["model"], stored["mean"], float(stored["weight"]))
    except FileNotFoundError:
        return None
    except ERRORS as error:
        raise RunError(f"{file}: damaged ({type(error).__name__}); run the experiment again") from None
