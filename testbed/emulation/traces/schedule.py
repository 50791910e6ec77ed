"""Schedules: participants of each round, and clients that are away or drop out in a stage.

A schedule is recorded from a run (`testbed.records.reader`) or written by hand, as CSV or Parquet with the columns
``round, client, stage, fate``. Blank lines and lines that begin with ``#`` are skipped::

    round,client,stage,fate
    1,7,,participant
    1,7,secagg/masked-input,dropped
    2,3,,offline

Client 7 participates in round 1 and drops out when it should send its masked input; client 3 is away in round 2. All
other clients stay online.

Fates:

- ``participant``: participated in the round. No stage. Only a selection that replays participants reads these rows;
- ``offline``: not reachable from this stage on, until the round is over; without a stage, for the whole round;
- ``dropped``: is asked in this stage, and drops out before it begins to answer.

A client has at most one row ``participant`` and one other row in a round.
"""

import csv
import io
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from testbed.arrays import Ids
from testbed.emulation.traces.text_files import reading, shown
from testbed.errors import TraceError, reason
from testbed.files import limits
from testbed.files import parquet as parquet_files
from testbed.files.atomic import atomic_write
from testbed.messages import MOST_CLIENTS

COLUMNS = ("round", "client", "stage", "fate")
FATES = ("participant", "offline", "dropped")
PARTICIPANT, OFFLINE, DROPPED = range(3)
_LARGEST = {"round": 10_000_000, "client": MOST_CLIENTS}  # of an experiment
_LONGEST_NAME = 200
_BATCH = 65_536

Row = tuple[Any, Any, Any, Any]


@dataclass(frozen=True, eq=False)
class Schedule:
    """Rows sorted by (round, client), with a client's participation before its fate.

    Attributes:
        round: `(m,)` int64, from 1.
        client: `(m,)` int64.
        stage: `(m,)` int16 indices into `stages`; that of the empty name if the row has no stage.
        fate: `(m,)` int8: `PARTICIPANT`, `OFFLINE` or `DROPPED`.
        stages: the names of the stages, the empty name first.
        source: origin of the schedule; begins the lines of errors.
    """

    round: npt.NDArray[np.int64]
    client: npt.NDArray[np.int64]
    stage: npt.NDArray[np.int16]
    fate: npt.NDArray[np.int8]
    stages: tuple[str, ...] = ("",)
    source: str = "schedule"

    def __len__(self) -> int:
        return len(self.round)

    @property
    def last_round(self) -> int:
        """The last round of the schedule; 0 if the schedule is empty."""
        return int(self.round.max(initial=0))

    @classmethod
    def from_rows(cls, rows: Iterable[Row], where: str = "schedule") -> "Schedule":
        """Return the schedule with these rows, in any order.

        Args:
            rows: (round, client, stage, fate) each; numbers may be text.
            where: name of the source in errors.

        Raises:
            TraceError: with the number (from 1) of the first invalid row.
        """
        reading = _Reading(where)
        for row in rows:
            reading.add(row)
        return reading.schedule()

    @classmethod
    def read(cls, path: Path) -> "Schedule":
        """Read the schedule in a ``.csv`` or ``.parquet`` file; raise `TraceError` with one line if it is invalid."""
        path = Path(path)
        rows = _reader(path)
        try:
            with reading(path, f"a schedule in CSV begins with {','.join(COLUMNS)}"):
                return cls.from_rows(rows(path), str(path))
        except pa.ArrowException as error:
            raise TraceError(f"{path}: not a Parquet file, or truncated: {reason(error)}") from None

    def write(self, path: Path) -> None:
        """Write a ``.csv`` or ``.parquet`` file under a temporary name, and rename it when it is complete.

        Raises:
            TraceError: another suffix, or the file cannot be written.
        """
        path = Path(path)
        _reader(path)
        with atomic_write(path, lambda reason: TraceError(f"{path}: cannot be written: {reason}")) as file:
            (self._write_csv if path.suffix == ".csv" else self._write_parquet)(file)

    def rows(self) -> Iterator[tuple[int, int, str, str]]:
        """Yield (round, client, stage, fate) of each row."""
        for start in range(0, len(self), _BATCH):
            part = slice(start, start + _BATCH)
            columns = [column[part].tolist() for column in (self.round, self.client, self.stage, self.fate)]
            for number, client, stage, fate in zip(*columns, strict=True):
                yield number, client, self.stages[stage], FATES[fate]

    def participants(self, round_number: int) -> npt.NDArray[np.int64]:
        """Return the recorded participants of a round, sorted."""
        start, end = np.searchsorted(self.round, (round_number, round_number + 1))
        participants: Ids = self.client[start:end][self.fate[start:end] == PARTICIPANT]
        return participants

    def check_population(self, population: int) -> None:
        """Raise `TraceError` for the first client beyond a population of this size."""
        beyond = np.flatnonzero(self.client >= population)
        if len(beyond):
            client, number = int(self.client[beyond[0]]), int(self.round[beyond[0]])
            raise TraceError(
                f"{self.source}: client {client} in round {number}: the population has clients 0 to {population - 1}; "
                "replay the schedule with the population that it is of"
            )

    def _write_csv(self, file: IO[bytes]) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(self.rows())
        # Or the wrapper would close the file, which `atomic_write` still has to rename.
        text.detach()

    def _write_parquet(self, file: IO[bytes]) -> None:
        def words(codes: npt.NDArray[Any], names: tuple[str, ...]) -> pa.DictionaryArray:
            return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int16()), pa.array(names, pa.string()))

        columns = [self.round, self.client, words(self.stage, self.stages), words(self.fate, FATES)]
        parquet_files.write_table(pa.table(columns, names=list(COLUMNS)), file)


class _Reading:
    """A builder of a schedule from single rows, with a few bytes of memory per row."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._round, self._client = array("q"), array("q")
        self._stage, self._fate = array("h"), array("b")
        self._stages = {"": 0}

    def error(self, row: int, problem: str) -> TraceError:
        return TraceError(f"{self._where}: row {row}: {problem}")

    def add(self, row: Row) -> None:
        """Add the next row; raise `TraceError` if the row is invalid."""
        number, client, stage, fate = row
        at = len(self._round) + 1
        self._round.append(self._whole(at, "round", number, 1))
        self._client.append(self._whole(at, "client", client, 0))
        stage = "" if stage is None else str(stage).strip()
        fate = "" if fate is None else str(fate).strip()
        if fate not in FATES:
            raise self.error(at, f"unknown fate {shown(fate)}; allowed: {', '.join(FATES)}")
        if len(stage) > _LONGEST_NAME or not stage.isprintable():
            raise self.error(at, f"{shown(stage)} cannot be the name of a stage")
        if fate == "participant" and stage:
            raise self.error(at, f"a participant has no stage, not {shown(stage)}; leave the column empty")
        if fate == "dropped" and not stage:
            raise self.error(at, "dropped at no stage; name it, or write 'offline' for the whole round")
        if len(self._stages) > 1000 and stage not in self._stages:
            raise self.error(at, "more than 1000 different stages; is this a schedule?")
        self._stage.append(self._stages.setdefault(stage, len(self._stages)))
        self._fate.append(FATES.index(fate))

    def _whole(self, row: int, column: str, value: object, least: int) -> int:
        text = str(value).strip()
        try:
            number = int(text)
        except ValueError:
            raise self.error(row, f"{column} {shown(text)} is not a whole number") from None
        if not least <= number <= _LARGEST[column]:
            raise self.error(row, f"{column} {shown(text)}; it must be from {least} to {_LARGEST[column]}")
        return number

    def schedule(self) -> Schedule:
        """Return the schedule of all rows; raise `TraceError` if a client has two fates in a round."""
        number, client = (np.array(column, np.int64) for column in (self._round, self._client))
        stage, fate = np.array(self._stage, np.int16), np.array(self._fate, np.int8)
        order = np.lexsort((fate != PARTICIPANT, client, number))  # stable: equal rows stay in the file's order
        keys = (number[order], client[order], (fate != PARTICIPANT)[order])
        repeats = np.flatnonzero(np.logical_and.reduce([key[1:] == key[:-1] for key in keys])) + 1
        if len(repeats):
            place = repeats[np.argmin(order[repeats])]
            row, before = order[place], order[place - 1]
            fate_text = "takes part" if fate[row] == PARTICIPANT else f"is {FATES[fate[before]]}"
            raise self.error(
                int(row) + 1,
                f"client {client[row]} {fate_text} in round {number[row]} already (row {before + 1}); remove one",
            )
        return Schedule(number[order], client[order], stage[order], fate[order], tuple(self._stages), self._where)


def _reader(path: Path) -> Callable[[Path], Iterator[Row]]:
    try:
        return {".csv": _csv_rows, ".parquet": _parquet_rows}[path.suffix]
    except KeyError:
        raise TraceError(f"{path}: a schedule is a file that ends in .csv or .parquet") from None


def _csv_rows(path: Path) -> Iterator[Row]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = (line for line in limits.lines(file, limits.TRACE_BYTES) if line.strip() and not line.startswith("#"))
        lines = csv.reader(rows, strict=True)
        names = tuple(name.strip() for name in next(lines, []))
        _check_columns(path, names)
        order = [names.index(name) for name in COLUMNS]
        for row, cells in enumerate(lines, start=1):
            if len(cells) != len(COLUMNS):
                raise TraceError(f"{path}: row {row}: {len(cells)} values, not {len(COLUMNS)}: {','.join(COLUMNS)}")
            number, client, stage, fate = (cells[place] for place in order)
            yield number, client, stage, fate


def _parquet_rows(path: Path) -> Iterator[Row]:
    parquet_files.verified(path)
    with parquet_files.opened(path) as file:
        parquet_files.check_rows(file)
        _check_columns(path, tuple(file.schema_arrow.names))
        for batch in file.iter_batches(_BATCH, columns=list(COLUMNS)):
            yield from zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)


def _check_columns(path: Path, names: tuple[str, ...]) -> None:
    if sorted(names) != sorted(COLUMNS):
        present = ", ".join(map(shown, names[:8])) or "none (an empty file?)"
        raise TraceError(f"{path}: the columns must be {','.join(COLUMNS)}; found {present}")
