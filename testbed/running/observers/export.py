"""Observers that write each round of each run somewhere, once: the base of CSV, TensorBoard, MLflow and W&B.

What is written comes from the records, not from what is told on the way: a round counts once its checkpoint is there.
So nothing is missing that was recorded while nobody was looking, and what is there already is not written again. Where
it stopped is asked of the place itself (`opened`), which a killed process cannot have left behind by more than a row.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from testbed.engine.federation import RunProgress
from testbed.files import parquet as parquet_files
from testbed.files.names import file_name
from testbed.records import RunRecords, arrays
from testbed.records.tables import part_of
from testbed.running.observers.contract import Observer
from testbed.running.preparation import PlannedRun

COLUMNS = (
    "round", "outcome", "reason", "time_s", "round_s", "candidates", "participants", "survivors", "bytes_down",
    "bytes_up", "server_compute_s", "behind_s", "accuracy", "loss", "epsilon_max",
)  # fmt: skip
"""What there is of a round: see `recorded`."""

Row = Mapping[str, Any]


class Exporter(Observer, ABC):
    """Writes each recorded round once: derive from it, and say where to.

    Several runs may be open at the same time; no two calls overlap.

    Attributes:
        needs: packages that must be installed, beyond the testbed's own.
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._written: dict[Path, int] = {}
        self._epsilon: dict[Path, float | None] = {}

    @abstractmethod
    def opened(self, run: PlannedRun) -> int:
        """Make ready for the rounds of a run; returns the last round that is there already, 0 for none."""

    @abstractmethod
    def write(self, run: PlannedRun, row: Row) -> None:
        """Write a round: a value for each of `COLUMNS`, None for what there is not."""

    def closed(self, run: PlannedRun, summary: Mapping[str, Any] | None) -> None:
        """All is written: the run has ended with this summary, or (None) was stopped and may be resumed."""

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        for run in runs:
            if run.complete:
                self.ended(run, json.loads((run.path / "summary.json").read_text()))

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        self._catch_up(run)

    def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
        if progress.outcome:
            self._catch_up(run)

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        self._catch_up(run)
        self._close(run, summary)

    def stopped(self, run: PlannedRun) -> None:
        self._catch_up(run)
        self._close(run, None)

    def _catch_up(self, run: PlannedRun) -> None:
        if run.path not in self._written:
            last = self.opened(run)
            rounds = run.point.experiment.rounds
            if not isinstance(last, int) or not 0 <= last <= rounds:
                raise ValueError(f"opened returned {last!r}: should be the last round that is there, 0 to {rounds}")
            self._epsilon[run.path] = _epsilon_until(run.path, last)
            self._written[run.path] = last
        for row in recorded(run.path, self._written[run.path]):
            known = [value for value in (self._epsilon[run.path], row["epsilon_max"]) if value is not None]
            epsilon = max(known, default=None)
            self.write(run, row | {"epsilon_max": epsilon})
            self._epsilon[run.path], self._written[run.path] = epsilon, row["round"]

    def _close(self, run: PlannedRun, summary: Mapping[str, Any] | None) -> None:
        if self._written.pop(run.path, None) is not None:
            self.closed(run, summary)


def initialised(observer: Observer) -> bool:
    """Whether `Exporter.__init__` has been called, which a class derived from it may forget."""
    return not isinstance(observer, Exporter) or hasattr(observer, "_written")


def recorded(path: Path, after: int) -> Iterator[dict[str, Any]]:
    """The recorded rounds after round `after` of the run in the directory `path`, as far as its checkpoint vouches.

    `COLUMNS`: number, outcome and reason; `time_s`, when the round ended by the run's clock; `round_s`, what it took;
    how many clients; bytes of all exchanges; the server's work; accuracy (a share) and loss where evaluated;
    `epsilon_max` of the honest clients charged in it, where noise is added.
    """
    stamp = arrays.stamp(path)
    last = 0 if stamp is None else stamp.round_number
    merged: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for number in range(after + 1, last + 1):
        (row,) = _rows(path, "rounds", number, merged)
        row |= {"time_s": row["ended_s"], "round_s": row["ended_s"] - row["started_s"]}
        charged = _rows(path, "privacy", number, merged)
        dishonest = set()
        if charged:
            took_part = _rows(path, "participation", number, merged)
            dishonest = {one["client"] for one in took_part if one["dishonest"]}
        epsilons = [one["epsilon"] for one in charged if one["client"] not in dishonest]
        yield {name: row.get(name) for name in COLUMNS} | {"epsilon_max": max(epsilons, default=None)}


def _rows(
    path: Path, table: str, number: int, merged: dict[str, dict[int, list[dict[str, Any]]]]
) -> list[dict[str, Any]]:
    """A round's rows: from its part, or from the merged table, which is then read once."""
    if table not in merged:
        part = part_of(path, number)
        try:
            rows: list[dict[str, Any]] = parquet_files.read_table(part / f"{table}.parquet").to_pylist()
            return rows
        except FileNotFoundError:
            if part.is_dir():
                return []  # a table that this run does not keep
        frame = RunRecords(path).frame(table)
        frame = frame.astype(object).where(frame.notna(), None)
        merged[table] = {}
        for one in frame.to_dict("records"):
            merged[table].setdefault(int(one["round"]), []).append({str(key): value for key, value in one.items()})
    return merged[table].get(number, [])


def _epsilon_until(path: Path, last: int) -> float | None:
    """The largest epsilon up to a round, of the honest clients; None: there is none."""
    if not last:
        return None
    rows = RunRecords(path).ledger_of_honest_clients()
    rows = rows[rows["round"] <= last]
    return None if rows.empty else float(rows["epsilon"].max())


def numbers(row: Row) -> dict[str, float]:
    """What of a round can be drawn: its numbers, but for its own, and whether it completed (1) or not (0)."""
    found = {name: row[name] for name in COLUMNS if name not in ("round", "outcome", "reason")}
    return {"completed": float(row["outcome"] == "completed")} | {
        name: float(value) for name, value in found.items() if value is not None
    }


def plain(run: PlannedRun) -> dict[str, Any]:
    """The experiment that a run has recorded, with its provenance."""
    return RunRecords(run.path).experiment


def identity(run: PlannedRun) -> str:
    """What tells a run from all others, however often it is resumed and wherever it is moved: 12 hexadecimal digits."""
    provenance = plain(run).get("provenance") or {}
    known = provenance.get("id")
    if known:
        return str(known)[:12]
    said = [run.label, provenance.get("started"), provenance.get("sweep"), run.simulation_seed]  # earlier versions'
    return hashlib.sha256(json.dumps(said, default=str).encode()).hexdigest()[:12]


def place_of(run: PlannedRun, directory: str | None, beside: str) -> Path:
    """Where an exporter's files go: `beside` in the run's directory, or a name of the run's own in a given one."""
    return run.path / beside if directory is None else Path(directory) / f"{file_name(run.label)}-{identity(run)}"
