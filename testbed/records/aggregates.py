"""What the server sees of the updates in a round, recorded where an experiment asks for it (`records.aggregates`).

One file for each completed round that is asked for, ``aggregates/round-000123.npz``: the model that the round began
with and the mean that the aggregation gave. It is written as the tables are: under a temporary name, then renamed, all
before the checkpoint that makes the round count. It is 12 bytes a parameter, uncompressed (the numbers are noise to a
compressor). Who was in the mean stands in the table ``participation``.
"""

import io
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.errors import RunError
from testbed.files.atomic import atomic_write
from testbed.records.arrays import ERRORS, Arrays

_FOLDER = "aggregates"
_FILE = re.compile(rf"{_FOLDER}/round-(\d{{6,}})\.npz")


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


def name_of(round_number: int) -> str:
    """The name of a round's file in the run directory."""
    return f"{_FOLDER}/round-{round_number:06d}.npz"


def round_of_aggregate(name: str) -> int | None:
    """The round of such a file by its name; None when it is another file."""
    found = _FILE.fullmatch(name)
    return int(found[1]) if found else None


def names_in(path: Path) -> list[str]:
    """The names of such files in a run directory, in the order of the rounds."""
    names = (file.relative_to(path).as_posix() for file in path.glob(f"{_FOLDER}/*.npz"))
    return sorted(name for name in names if round_of_aggregate(name) is not None)


def write(path: Path, round_number: int, aggregate: RoundAggregate | None) -> None:
    """Write a round's file into a run directory; None: this round has none, nor one of a session that died in it."""
    file_path = path / name_of(round_number)
    try:
        if aggregate is None:
            file_path.unlink(missing_ok=True)
            return
        file_path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise _cannot_write(file_path, error.strerror or str(error)) from None
    stored = io.BytesIO()  # first in memory: a zip file that a full disk cuts off complains when it is collected
    np.savez(stored, model=aggregate.model, mean=aggregate.mean, weight=aggregate.weight)
    with atomic_write(file_path, lambda why: _cannot_write(file_path, why)) as file:
        file.write(stored.getbuffer())


def read(path: Path, round_number: int) -> RoundAggregate | None:
    """A round's file in a run directory; None when there is none. Raises `RunError` when it is damaged."""
    file = path / name_of(round_number)
    try:
        with Arrays(file) as stored:
            return RoundAggregate(stored["model"], stored["mean"], float(stored["weight"]))
    except FileNotFoundError:
        return None
    except (TypeError, *ERRORS) as error:
        raise RunError(f"{file}: damaged ({type(error).__name__}); run the experiment again") from None


def _cannot_write(path: Path, why: str) -> RunError:
    return RunError(f"{path}: cannot write: {why}; what was recorded before is intact, rerun with --resume")
