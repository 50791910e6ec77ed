"""What a run keeps as arrays, in ``.npz`` files: where it stands, and what the server saw.

``checkpoint.npz`` says where a run stands after its last finished round, and makes that round count. So one that is
missing or damaged never means that nothing has been recorded: the one before stands in (the rounds after it are run
again, and what they have released is charged, see `writer`), and where there is none either, a run that has recorded
rounds does not go on.

``aggregates/round-000123.npz``, one for each completed round that an experiment asks for (`records.aggregates`), has
what the server sees of the updates: the model that the round began with and the mean that the aggregation gave. It is
written as the tables are: under a temporary name, then renamed, all before the checkpoint that makes the round count.
It is 12 bytes a parameter, uncompressed (the numbers are noise to a compressor). Who was in the mean stands in the
table ``participation``.

No file is larger in memory than on disk. `numpy.load` makes room for what an array's header says, and unpacks what is
packed, before it looks at the data: a file of a kilobyte can ask for terabytes. What `numpy.savez` writes is not
packed, so here a member that is, or whose header does not say just the bytes that follow it, is damage. Pickled objects
are refused, as `allow_pickle=False` does.
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
"""What reading `Arrays` raises: of the system, and when a file is damaged."""

_LONGEST_HEADER = 10_000
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Arrays:
    """The arrays in a file, by their names, each read when it is asked for; a context manager.

    Args:
        source: the file's path, or the file, open for reading; raises `ERRORS`.
    """

    def __init__(self, source: Path | IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(source)
        members = self._zip.infolist()
        self._members = {member.filename.removesuffix(".npy"): member for member in members}
        if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members):
            raise ValueError("a packed array")
        file = self._zip.fp
        assert file is not None
        size = file.seek(0, 2)
        if size > limits.ARRAYS_BYTES or sum(member.file_size for member in members) > size:
            raise ValueError("more bytes of arrays than there are in the file")

    def __enter__(self) -> "Arrays":
        return self

    def __exit__(self, *error: Any) -> None:
        self._zip.close()

    @property
    def names(self) -> list[str]:
        """In the order of the file."""
        return list(self._members)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        member = self._members[name]
        with self._zip.open(member) as file:
            version = np.lib.format.read_magic(file)
            if version not in _HEADERS:
                raise ValueError("an array of another version")
            shape, by_column, kind = _HEADERS[version](file, max_header_size=_LONGEST_HEADER)
            content = file.read()  # no more than the member's size, which is no more than the file's
        if kind.hasobject or math.prod(shape) * kind.itemsize != len(content):
            raise ValueError("an array of other bytes than its header says")
        if by_column:
            return np.frombuffer(content, kind).reshape(shape[::-1]).T.copy(order="F")
        return np.frombuffer(content, kind).reshape(shape).copy()


CHECKPOINT = "checkpoint.npz"
PREVIOUS = "checkpoint-previous.npz"
_MEMORY = "memory/"  # what the selection protocol's arrays are called in a checkpoint, before their names


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands after a round.

    Attributes:
        round_number: the last finished round (0: none).
        now_s: virtual seconds.
        model: `(d,)` float32 after that round.
        participations: `(n,)` int64 rounds for which each client was selected.
        wall_s: wall-clock seconds spent so far, over all sessions of the run.
        memory: what the selection protocol keeps from round to round, arrays by name.
    """

    round_number: int
    now_s: float
    model: npt.NDArray[np.float32]
    participations: npt.NDArray[np.int64]
    wall_s: float
    memory: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Stamp:
    """What tells a checkpoint from all others of its run: its round, virtual and wall-clock seconds."""

    round_number: int
    now_s: float
    wall_s: float


@dataclass(frozen=True)
class LoadedCheckpoint:
    """What a run directory holds.

    Attributes:
        checkpoint: None: no round has been recorded.
        lost: what is wrong with the last checkpoint, in whose place the one before stands; empty: nothing.
    """

    checkpoint: Checkpoint | None
    lost: str = ""


def read_checkpoint(path: Path) -> LoadedCheckpoint:
    """The last checkpoint of the run in a directory, or in its place the one before.

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
    if lost.endswith("missing") and recorded < 2:  # killed in the middle of recording round 1: it did not count yet
        return LoadedCheckpoint(None)
    raise RunError(
        f"{path / CHECKPOINT}: {lost}, and there is none before it; round {recorded} was reached, so the run cannot be "
        f"resumed without it: {whole} from a copy, or start again with another --out, "
        "which does not know what this run released"
    )


def stamp(path: Path) -> Stamp | None:
    """As `read_checkpoint`, of a run whose model need not be read; None: no round has been recorded."""
    for name in (CHECKPOINT, PREVIOUS):
        with contextlib.suppress(*ERRORS), Arrays(path / name) as stored:
            return _stamp(stored)
    found = read_checkpoint(path).checkpoint  # says what is wrong
    return None if found is None else Stamp(found.round_number, found.now_s, found.wall_s)


def stamp_of(checkpoint: Path | bytes) -> Stamp | None:
    """The stamp of a checkpoint file (its path, which need not exist, or its bytes); raises `RunError` when damaged."""
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
    """As `stamp`, of a directory that nobody else writes to: one that stands in for a lost one takes its place."""
    if read_checkpoint(path).lost:
        shutil.copyfile(path / PREVIOUS, path / f".{CHECKPOINT}.writing")
        os.replace(path / f".{CHECKPOINT}.writing", path / CHECKPOINT)
    return stamp(path)


def write_checkpoint(path: Path, checkpoint: Checkpoint, *, keep_last: bool) -> None:
    """Put a checkpoint in its place, on disk; `keep_last`: the last one becomes the one before, in case it is lost."""
    if keep_last:
        keep_checkpoint(path)
    plain = {name: value for name, value in vars(checkpoint).items() if name != "memory"}
    _save(path / CHECKPOINT, plain | {_MEMORY + name: array for name, array in checkpoint.memory.items()})


def keep_checkpoint(path: Path, *, copy: bool = False) -> None:
    """Let the last checkpoint be the one before, too; does nothing where there is none.

    Args:
        path: the directory.
        copy: the last one stays in its place, so that what damages one file must not damage both.
    """
    last, before = path / CHECKPOINT, path / PREVIOUS
    temporary = path / f".{PREVIOUS}.writing"
    try:
        temporary.unlink(missing_ok=True)
        if not last.exists():
            return
        with contextlib.suppress(OSError):  # of a file system without links
            if not copy:
                os.link(last, temporary)  # the file is never written again, but replaced
        if not temporary.exists():
            shutil.copyfile(last, temporary)
        os.replace(temporary, before)
        temporary.unlink(missing_ok=True)  # of two names of one file, renaming one to the other does nothing
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise cannot_write(before, error.strerror or str(error)) from None


def cannot_write(path: Path, why: str) -> RunError:
    """The error of a file that cannot be written."""
    return RunError(f"{path}: cannot write: {why}; what was recorded before is intact, rerun with --resume")


def replacing(path: Path) -> AbstractContextManager[IO[bytes]]:
    """A file of a run, open to be written; see `atomic_write`. Raises `cannot_write`."""
    return atomic_write(path, lambda why: cannot_write(path, why))


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    stored = io.BytesIO()  # first in memory: a zip file that a full disk cuts off complains when it is collected
    np.savez(stored, **arrays)
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
    """A round that was reached for sure: of a part, or, for the tables of a finished run, any beyond the first."""
    parts = [int(part.name.removeprefix("round-")) for part in path.glob("parts/round-*") if part.name[6:].isdigit()]
    merged = 2 if (path / "rounds.parquet").is_file() else 0
    return max([merged, *parts])


_AGGREGATES = "aggregates"
_AGGREGATE = re.compile(rf"{_AGGREGATES}/round-(\d{{6,}})\.npz")


@dataclass(frozen=True)
class RoundAggregate:
    """A completed round as the server sees it.

    Attributes:
        model: `(d,)` float32 at the start of the round.
        mean: `(d,)` float64, the weighted mean of the survivors' updates.
        weight: sum of the survivors' weights.
    """

    model: npt.NDArray[np.float32]
    mean: npt.NDArray[np.float64]
    weight: float


def _aggregate_name(round_number: int) -> str:
    """The name of a round's file in the run directory."""
    return f"{_AGGREGATES}/round-{round_number:06d}.npz"


def round_of_aggregate(name: str) -> int | None:
    """The round of such a file by its name; None when it is another file."""
    found = _AGGREGATE.fullmatch(name)
    return int(found[1]) if found else None


def aggregate_files(path: Path) -> list[str]:
    """The names of such files in a run directory, in the order of the rounds."""
    names = (file.relative_to(path).as_posix() for file in path.glob(f"{_AGGREGATES}/*.npz"))
    return sorted(name for name in names if round_of_aggregate(name) is not None)


def write_aggregate(path: Path, round_number: int, aggregate: RoundAggregate | None) -> None:
    """Write a round's file into a run directory; None: this round has none, nor one of a session that died in it."""
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
    """A round's file in a run directory; None when there is none. Raises `RunError` when it is damaged."""
    file = path / _aggregate_name(round_number)
    try:
        with Arrays(file) as stored:
            return RoundAggregate(stored["model"], stored["mean"], float(stored["weight"]))
    except FileNotFoundError:
        return None
    except ERRORS as error:
        raise RunError(f"{file}: damaged ({type(error).__name__}); run the experiment again") from None
