"""Where a run stands after its last finished round, in ``checkpoint.npz``; and the one before, should that be lost.

A checkpoint makes a round count. So one that is missing or damaged never means that nothing has been recorded: the one
before stands in (the rounds after it are run again, and what they have released is charged, see `attempts`), and where
there is none either, a run that has recorded rounds does not go on.
"""

import contextlib
import io
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from testbed.errors import RunError
from testbed.files.atomic import atomic_write
from testbed.records.arrays import ERRORS, Arrays

CHECKPOINT = "checkpoint.npz"
PREVIOUS = "checkpoint-previous.npz"
_MEMORY = "memory/"  # what the selection protocol's arrays are called in a checkpoint, before their names
_DAMAGE = (TypeError, *ERRORS)


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
class Found:
    """What a run directory holds.

    Attributes:
        checkpoint: None: no round has been recorded.
        lost: what is wrong with the last checkpoint, in whose place the one before stands; empty: nothing.
    """

    checkpoint: Checkpoint | None
    lost: str = ""


def read(path: Path) -> Found:
    """The last checkpoint of the run in a directory, or in its place the one before.

    Raises:
        RunError: both are missing or damaged, and rounds have been recorded.
    """
    try:
        return Found(_load(path / CHECKPOINT))
    except FileNotFoundError:
        lost, whole = f"{CHECKPOINT} is missing", "restore it"
    except _DAMAGE as error:
        lost, whole = f"damaged checkpoint ({error})", "put an intact one in its place"
    try:
        return Found(_load(path / PREVIOUS), lost)
    except FileNotFoundError:
        pass
    except _DAMAGE as error:
        lost += f", and so is the one before ({error})"
    recorded = _rounds_recorded(path)
    if lost.endswith("missing") and recorded < 2:  # killed in the middle of recording round 1: it did not count yet
        return Found(None)
    raise RunError(
        f"{path / CHECKPOINT}: {lost}, and there is none before it; round {recorded} was reached, so nothing goes on "
        f"without: {whole} from a copy, or start again with another --out, which does not know what this run released"
    )


def stamp(path: Path) -> Stamp | None:
    """As `read`, of a run whose model need not be read; None: no round has been recorded."""
    for name in (CHECKPOINT, PREVIOUS):
        with contextlib.suppress(*_DAMAGE), Arrays(path / name) as stored:
            return Stamp(int(stored["round_number"]), float(stored["now_s"]), float(stored["wall_s"]))
    found = read(path).checkpoint  # says what is wrong
    return None if found is None else Stamp(found.round_number, found.now_s, found.wall_s)


def restored(path: Path) -> Stamp | None:
    """As `stamp`, of a directory that nobody else writes to: one that stands in for a lost one takes its place."""
    if read(path).lost:
        shutil.copyfile(path / PREVIOUS, path / f".{CHECKPOINT}.writing")
        os.replace(path / f".{CHECKPOINT}.writing", path / CHECKPOINT)
    return stamp(path)


def write(path: Path, checkpoint: Checkpoint, *, keep_last: bool) -> None:
    """Put a checkpoint in its place, on disk; `keep_last`: the last one becomes the one before, in case it is lost."""
    memory: dict[str, Any] = {_MEMORY + name: array for name, array in checkpoint.memory.items()}
    stored = io.BytesIO()  # first in memory: a zip file that a full disk cuts off complains when it is collected
    np.savez(
        stored,
        round_number=checkpoint.round_number,
        now_s=checkpoint.now_s,
        model=checkpoint.model,
        participations=checkpoint.participations,
        wall_s=checkpoint.wall_s,
        **memory,
    )
    if keep_last:
        keep(path)
    with atomic_write(path / CHECKPOINT, lambda why: cannot_write(path / CHECKPOINT, why)) as file:
        file.write(stored.getbuffer())


def keep(path: Path, *, copy: bool = False) -> None:
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


def _load(file: Path | IO[bytes]) -> Checkpoint:
    with Arrays(file) as stored:
        memory = {name.removeprefix(_MEMORY): stored[name] for name in stored.names if name.startswith(_MEMORY)}
        return Checkpoint(
            int(stored["round_number"]),
            float(stored["now_s"]),
            stored["model"],
            stored["participations"],
            float(stored["wall_s"]),
            memory,
        )


def _rounds_recorded(path: Path) -> int:
    """A round that was reached for sure: of a part, or, for the tables of a finished run, any beyond the first."""
    parts = [int(part.name.removeprefix("round-")) for part in path.glob("parts/round-*") if part.name[6:].isdigit()]
    merged = 2 if (path / "rounds.parquet").is_file() else 0
    return max([merged, *parts])
