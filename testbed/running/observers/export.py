"""Observers that write each round of each run elsewhere, once: the base of CSV, TensorBoard, MLflow and W&B.

The rows come from the records, not from the events: a round counts once its checkpoint is written. Rounds recorded
while no observer was attached are therefore exported later, and exported rounds are not written again. The exporter
asks its destination for the last exported round (`opened`); a killed process can have written at most one row more.
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
"""The columns of a round: see `recorded`."""

Row = Mapping[str, Any]


class Exporter(Observer, ABC):
    """Observer that writes each recorded round once; a subclass defines where to.

    A subclass defines `opened` and `write`, and calls ``super().__init__()`` if it has an ``__init__``. Several
    runs may be open at the same time; no two calls overlap.

    Attributes:
        needs: packages that must be installed, beyond the testbed's own.

    Example:
        >>> from testbed import Experiment, Exporter, run
        >>> class Survivors(Exporter):
        ...     def opened(self, run):
        ...         return 0  # nothing is exported yet
        ...     def write(self, run, row):
        ...         print(row["round"], row["survivors"])
        >>> experiment = Experiment(rounds=2, population=6, selection={"participants": 3})
        >>> _ = run(experiment, out="runs/exported", network="in-process", observer=Survivors())
        1 3
        2 3
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._written: dict[Path, int] = {}
        self._epsilon: dict[Path, float | None] = {}

    @abstractmethod
    def opened(self, run: PlannedRun) -> int:
        """Prepare for the rounds of a run; return the last round that is exported already, or 0."""

    @abstractmethod
    def write(self, run: PlannedRun, row: Row) -> None:
        """Write a round: a value for each of `COLUMNS`, None for missing values."""

    def closed(self, run: PlannedRun, summary: Mapping[str, Any] | None) -> None:
        """Finish: the run has ended with this summary, or (None) was stopped and may be resumed."""

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
            epsilons = [value for value in (self._epsilon[run.path], row["epsilon_max"]) if value is not None]
            epsilon = max(epsilons, default=None)
            self.write(run, row | {"epsilon_max": epsilon})
            self._epsilon[run.path], self._written[run.path] = epsilon, row["round"]

    def _close(self, run: PlannedRun, summary: Mapping[str, Any] | None) -> None:
        if self._written.pop(run.path, None) is not None:
            self.closed(run, summary)


def initialised(observer: Observer) -> bool:
    """Return whether `Exporter.__init__` has been called; a derived class may forget the call."""
    return not isinstance(observer, Exporter) or hasattr(observer, "_written")


def recorded(path: Path, after: int) -> Iterator[dict[str, Any]]:
    """Yield the recorded rounds of a run after round `after`, up to its checkpoint.

    `COLUMNS`: number, outcome and reason; `time_s`, seconds of the run's clock at the round's end; `round_s`, duration
    of the round in seconds; numbers of clients; bytes of all exchanges; the server's work; accuracy (a share) and loss,
    if evaluated; `epsilon_max` of the honest clients charged in the round, if noise is added.

    Args:
        path: the run's directory.
        after: the last round to leave out.
    """
    # Only rounds that the checkpoint validates: later rows may be repeated after a crash.
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
            dishonest = {entry["client"] for entry in took_part if entry["dishonest"]}
        epsilons = [entry["epsilon"] for entry in charged if entry["client"] not in dishonest]
        yield {name: row.get(name) for name in COLUMNS} | {"epsilon_max": max(epsilons, default=None)}


def _rows(
    path: Path, table: str, number: int, merged: dict[str, dict[int, list[dict[str, Any]]]]
) -> list[dict[str, Any]]:
    """Return a round's rows: from its part, or from the merged table, which is then read once."""
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
        for record in frame.to_dict("records"):
            merged[table].setdefault(int(record["round"]), []).append({str(k): value for k, value in record.items()})
    return merged[table].get(number, [])


def _epsilon_until(path: Path, last: int) -> float | None:
    """Return the largest epsilon of the honest clients up to a round; None if there is none."""
    if not last:
        return None
    rows = RunRecords(path).ledger_of_honest_clients()
    rows = rows[rows["round"] <= last]
    return None if rows.empty else float(rows["epsilon"].max())


def numbers(row: Row) -> dict[str, float]:
    """Return the numeric columns of a round for plots, and `completed` (1 or 0).

    Args:
        row: a row of `recorded`.
    """
    values = {name: row[name] for name in COLUMNS if name not in ("round", "outcome", "reason")}
    return {"completed": float(row["outcome"] == "completed")} | {
        name: float(value) for name, value in values.items() if value is not None
    }


def plain(run: PlannedRun) -> dict[str, Any]:
    """Return the experiment that a run has recorded, with its provenance."""
    return RunRecords(run.path).experiment


def identity(run: PlannedRun) -> str:
    """Return 12 hexadecimal digits that identify a run; they stay the same when it is resumed or moved."""
    provenance = plain(run).get("provenance") or {}
    run_id = provenance.get("id")
    if run_id:
        return str(run_id)[:12]
    fields = [run.label, provenance.get("started"), provenance.get("sweep"), run.simulation_seed]  # earlier versions'
    return hashlib.sha256(json.dumps(fields, default=str).encode()).hexdigest()[:12]


def place_of(run: PlannedRun, directory: str | None, beside: str) -> Path:
    """Return the path of an exporter's files.

    Args:
        run: the run.
        directory: directory for the files of all runs, with one name per run; None: the run's directory.
        beside: name in the run's directory.
    """
    return run.path / beside if directory is None else Path(directory) / f"{file_name(run.label)}-{identity(run)}"
