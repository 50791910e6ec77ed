"""The state of runs, read from their directories: running, killed or finished.

All files may be read in the middle of a write. Large data (exchanges, models) are not read at all. Of the parts of a
running run, only non-empty ones are read. The outcomes of its rounds come from the log.
"""

import contextlib
import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import yaml

from testbed.errors import RunError, reason
from testbed.files import parquet as parquet_files
from testbed.files import plain_yaml
from testbed.records.arrays import ERRORS, stamp
from testbed.records.former_codes import current_detail, current_kind
from testbed.records.locks import LOCK, WRITER, is_held
from testbed.records.log import RunLog
from testbed.records.mirror import local_copy_for_reading
from testbed.records.reader import format_end_reasons
from testbed.records.tables import MERGED_UP_TO, part_of, stopped
from testbed.records.uploads import MARK
from testbed.records.vocabulary import privacy_caveats
from testbed.running.observers.pace import in_lanes

State = Literal["finished", "running", "interrupted", "unclear"]
ENDS = ("run-ended", "run-failed", "run-stopped")
_RECENT_ROUNDS = 20  # number of rounds for the mean duration of a round
_LAST_EVENTS = 5
_TRIES = 3  # attempts to read files that are being merged or replaced


@dataclass(frozen=True)
class RunStatus:
    """The state of one run.

    Attributes:
        path: its directory.
        label: its name among the runs of its sweep.
        state: finished; running (a process holds the lock); interrupted (no process holds it, rounds are missing);
            unclear (cannot be determined here: a copy of a remote run, or a file system without locks).
        ending: how it last ended: run-ended, run-failed, run-stopped, or empty (it is running, or was killed).
        error: the error of a failed run, or the known cause of a stop.
        selection: its selection protocol.
        aggregation: its aggregation protocol.
        population: number of clients.
        point: position in its sweep, from 1; None if not recorded.
        points: number of points of its sweep; None if not recorded.
        rounds: total number of rounds.
        rounds_done: number of recorded rounds.
        outcomes: number of recorded rounds by outcome.
        clock: virtual or wall.
        now_s: seconds of the run's clock.
        wall_s: wall-clock seconds of its rounds.
        round_s: mean wall-clock seconds of the latest rounds, or None.
        accuracy: the last measured accuracy; None if not measured.
        accuracy_round: round of that measurement; None if not measured.
        host_restarts: number of hosts that died and were replaced.
        coordinator_restarts: number of coordinators that died and were replaced.
        poisoned: clients that killed their hosts and were left out.
        excluded: clients that are left out of all later rounds because of proven misbehaviour.
        refusals: number of recorded refusals.
        crashes: number of recorded crashes of clients' code.
        behind_rounds: number of rounds of a live run in which the machine could not keep up.
        reasons: summary of the reasons why rounds did not complete; empty if all did.
        stopped: why it ended before its last round and may not continue; empty otherwise.
        privacy_caveats: limits of the epsilon of a run with a privacy ledger.
        seen_s: seconds since the last change of log or checkpoint, or None.
        events: the last entries of its log except rounds, and the last round.
    """

    path: Path
    label: str
    state: State
    ending: str
    error: str
    selection: str
    aggregation: str
    population: int
    point: int | None
    points: int | None
    rounds: int
    rounds_done: int
    outcomes: Mapping[str, int]
    clock: str
    now_s: float
    wall_s: float
    round_s: float | None
    accuracy: float | None
    accuracy_round: int | None
    host_restarts: int
    coordinator_restarts: int
    poisoned: Sequence[int]
    excluded: Sequence[int]
    refusals: int
    crashes: int
    behind_rounds: int
    reasons: str
    stopped: str
    privacy_caveats: Sequence[str]
    seen_s: float | None
    events: Sequence[Mapping[str, Any]]

    @property
    def left_s(self) -> float | None:
        """Wall-clock seconds that the missing rounds will take; None before the first."""
        return None if self.round_s is None else (self.rounds - self.rounds_done) * self.round_s


@dataclass(frozen=True)
class RunsAt:
    """How the runs at or below one directory stand.

    Attributes:
        where: the directory, or its URI, as it was given.
        runs: in the order of their sweep.
        is_run: whether the directory is itself a run.
    """

    where: str
    runs: Sequence[RunStatus]
    is_run: bool

    @property
    def not_started(self) -> int:
        """Points of a sweep that have no directory yet; 0 when nothing says how many there are."""
        points = max((run.points or 0 for run in self.runs), default=0)
        return 0 if self.is_run or len({run.path.parent for run in self.runs}) > 1 else max(0, points - len(self.runs))

    @property
    def left_s(self) -> float | None:
        """Wall-clock seconds until all points have ended, if those that run go on; None where nothing runs or is known.

        A point that has not started is taken to have the mean length of those that have.
        """
        running = [run.left_s for run in self.runs if run.state == "running"]
        lengths = [run.rounds * run.round_s for run in self.runs if run.round_s is not None]
        if not running or not lengths:
            return None
        mean_s = sum(lengths) / len(lengths)
        interrupted = [run.left_s for run in self.runs if run.state == "interrupted"]
        waiting = [*(mean_s if left_s is None else left_s for left_s in interrupted), *([mean_s] * self.not_started)]
        return in_lanes([mean_s if left_s is None else left_s for left_s in running], waiting, len(running))

    @property
    def may_be_running(self) -> bool:
        """Whether somebody runs them, or may do so."""
        return any(run.state in ("running", "unclear") for run in self.runs)


def runs_at(directories: Sequence[str]) -> list[RunsAt]:
    """Return the state of the runs at or below directories or URIs.

    Args:
        directories: directories or URIs.

    Raises:
        RunError: there is no run, or a run is damaged.
    """
    groups = []
    for where in directories:
        directory = local_copy_for_reading(where)
        groups.append(RunsAt(where, statuses(directory), (directory / "experiment.yaml").is_file()))
    return groups


def plain(groups: Sequence[RunsAt]) -> dict[str, Any]:
    """Return all information as plain data: ``runs``, ``points_not_started``, and ``left_s`` until all runs have ended.

    Args:
        groups: the runs at each place.
    """
    runs = [run for group in groups for run in group.runs]
    rows = [dataclasses.asdict(run) | {"path": str(run.path), "left_s": run.left_s} for run in runs]
    left = [group.left_s for group in groups if group.left_s is not None]
    return {
        "runs": rows,
        "points_not_started": sum(group.not_started for group in groups),
        "left_s": max(left) if left else None,
    }


def statuses(directory: Path) -> list[RunStatus]:
    """Return the state of the runs at or below `directory`, in the order of their sweep.

    Args:
        directory: a run's or a sweep's directory.

    Raises:
        RunError: there is no run, or a run is damaged.
    """
    return in_order(status(path) for path in run_directories(directory))


def in_order(runs: Iterable[RunStatus]) -> list[RunStatus]:
    """Return runs in the order of their sweep.

    Args:
        runs: the runs.
    """
    return sorted(runs, key=lambda run: (run.path.parent, run.point or 0, run.path.name))


def run_directories(directory: Path) -> list[Path]:
    """Return the directories of the runs at or below `directory`; raises `RunError` if there is none."""
    directories = []
    for where, folders, files in os.walk(directory):
        if "experiment.yaml" in files:
            directories.append(Path(where))
            folders.clear()  # a run's own are not searched: there may be one for every round
    if not directories:
        what = "no runs here" if directory.is_dir() else "no such directory"
        raise RunError(f"{directory}: {what}; `testbed run EXPERIMENT.yaml --out {directory}` makes some")
    return directories


def status(path: Path) -> RunStatus:
    """Return the state of the run in the directory `path`.

    Args:
        path: the run's directory.

    Raises:
        RunError: there is no run, or it is damaged.
    """
    # The run goes on while its files are read: a part may be merged, or a file replaced, between two reads.
    for left in reversed(range(_TRIES)):
        try:
            return _status(path)
        except FileNotFoundError as error:  # it has been merged, or finished, since the checkpoint was read
            if not left:
                raise RunError(f"{path}: no run, or one that is damaged: {error.filename}: no such file") from None
        except (OSError, pa.ArrowException, yaml.YAMLError, *ERRORS) as error:
            if not left:
                raise RunError(f"{path}: damaged: {reason(error)}") from None
    raise AssertionError


def _status(path: Path) -> RunStatus:
    experiment = _experiment(path)
    log = RunLog(path).read()
    done, now_s, wall_s = _checkpoint(path)
    rounds = _rounds(path, done, log)
    events = _events(path, done)
    restarts = Counter(str(event["party"]).partition(":")[0] for event in events if event["kind"] == "restart")
    logged = Counter(str(entry["event"]) for entry in log)
    measured = [row for row in rounds if row.get("accuracy") is not None]
    why = stopped(path, done) if done < experiment["rounds"] else ""
    complete = (
        (done >= experiment["rounds"] or why != "")
        and not (path / "parts").exists()
        and (path / "summary.json").is_file()
    )
    ending: dict[str, Any] = next((entry for entry in reversed(log) if str(entry["event"]).startswith("run-")), {})
    ended = ending.get("event") in ENDS
    shown = [entry for entry in log if entry["event"] != "round-ended" or entry is log[-1]]
    places: dict[str, Any] = next((entry for entry in reversed(log) if "points" in entry), {})
    return RunStatus(
        path=path,
        label=str((experiment.get("provenance") or {}).get("label") or experiment.get("name") or path.name),
        state="finished" if complete else _state(path, ended),
        ending=str(ending["event"]) if ended else "",
        error=str(ending.get("error", "")) if ended else "",
        selection=_protocol(experiment, "selection"),
        aggregation=_protocol(experiment, "aggregation"),
        population=int(experiment["population"]),
        point=places.get("point"),
        points=places.get("points"),
        rounds=int(experiment["rounds"]),
        rounds_done=done,
        outcomes=dict(Counter(str(row["outcome"]) for row in rounds)),
        clock=str((experiment.get("time") or {}).get("clock", "virtual")),
        now_s=now_s,
        wall_s=wall_s,
        round_s=_round_s(log, done, wall_s),
        accuracy=measured[-1]["accuracy"] if measured else None,
        accuracy_round=measured[-1]["round"] if measured else None,
        host_restarts=max(restarts["host"], logged["host-restarted"]),  # the log knows at once, the table for ever
        coordinator_restarts=max(restarts["coordinator"], logged["coordinator-restarted"]),
        poisoned=_clients(events, "quarantined"),
        excluded=_clients(events, "excluded"),
        refusals=sum(event["kind"] == "refusal" for event in events),
        crashes=sum(event["kind"] == "crash" for event in events),
        behind_rounds=len({event["round"] for event in events if event["kind"] == "behind-schedule"}),
        reasons=format_end_reasons(
            (str(row["outcome"]), current_detail(str(row.get("reason") or ""))) for row in rounds
        ),
        stopped=why,
        privacy_caveats=privacy_caveats(experiment) if _keeps_ledger(path, done) else [],
        seen_s=_seen_s(path, log),
        events=shown[-_LAST_EVENTS:],
    )


def _clients(events: Sequence[Mapping[str, Any]], kind: str) -> list[int]:
    """Return the clients with an event of this kind, sorted."""
    return sorted({int(event["party"].removeprefix("client:")) for event in events if event["kind"] == kind})


def _keeps_ledger(path: Path, done: int) -> bool:
    """Return whether an epsilon is recorded: the table is merged, or a part of the last round."""
    file = "privacy.parquet"
    return (path / file).is_file() or (part_of(path, done) / file).is_file()


def _experiment(path: Path) -> dict[str, Any]:
    content = plain_yaml.read(path / "experiment.yaml")
    if not isinstance(content, dict):
        raise ValueError("experiment.yaml is not an experiment")
    return content


def _protocol(experiment: Mapping[str, Any], section: str) -> str:
    settings = experiment.get(section)
    return str(settings.get("protocol", "")) if isinstance(settings, Mapping) else str(settings)


def _state(path: Path, ended: bool) -> State:
    locks = [is_held(path, name) for name in (LOCK, WRITER)]
    if True in locks:
        return "running"
    # The copy of a remote run, or a file system without locks: nobody here can say whether a process still writes.
    elsewhere = any((folder / MARK).exists() for folder in (path, path.parent))
    if ended or not (elsewhere or None in locks):
        return "interrupted"
    return "unclear"


def _checkpoint(path: Path) -> tuple[int, float, float]:
    """Return rounds, seconds of the run's clock and wall-clock seconds; the model is not read."""
    checkpoint = stamp(path)
    return (0, 0.0, 0.0) if checkpoint is None else (checkpoint.round_number, checkpoint.now_s, checkpoint.wall_s)


def _rounds(path: Path, done: int, log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the needed columns of the rounds up to `done`: from the table, then the log, then missing parts."""
    columns = ["round", "outcome", "reason", "accuracy"]
    rows: dict[int, dict[str, Any]] = {}
    for entry in log:
        if entry["event"] == "round-ended" and isinstance(entry.get("round"), int) and "accuracy" in entry:
            rows[entry["round"]] = {name: entry.get(name) for name in columns}
    merged = path / "rounds.parquet"
    if merged.is_file():
        rows |= {
            row["round"]: row for row in parquet_files.read_table(merged, columns=columns, as_objects=True).to_pylist()
        }
    # Parts only for rounds that neither the table nor the log has: reading thousands of parts takes long.
    for number in range(1, done + 1):
        if number not in rows:
            part = part_of(path, number) / "rounds.parquet"
            (rows[number],) = parquet_files.read_table(part, columns=columns, as_objects=True).to_pylist()
    return [rows[number] for number in range(1, done + 1)]


def _events(path: Path, done: int) -> list[dict[str, Any]]:
    """Return round, party and kind of all recorded events; only parts with rows, as their footers say, are read."""
    columns = ["round", "party", "kind"]
    merged, events, last = path / "events.parquet", [], 0
    if merged.is_file():
        table = parquet_files.read_table(merged, columns=columns, as_objects=True)
        last = int((table.schema.metadata or {}).get(MERGED_UP_TO, 0))
        events += table.to_pylist()
    for number in range(last + 1, done + 1):
        part = part_of(path, number) / "events.parquet"
        # By the footer: most rounds have no events, and a long run has thousands of parts.
        if parquet_files.has_rows(part):
            events += parquet_files.read_table(part, columns=columns, as_objects=True).to_pylist()
    return [event | {"kind": current_kind(event["kind"])} for event in events]


def _round_s(log: Sequence[Mapping[str, Any]], done: int, wall_s: float) -> float | None:
    recent = [entry["wall_s"] for entry in log if entry["event"] == "round-ended" and entry.get("wall_s") is not None]
    # Only the latest rounds: the first ones also fill caches, and a resumed run may be on another machine.
    recent = recent[-_RECENT_ROUNDS:]
    if recent:
        return float(sum(recent)) / len(recent)
    return wall_s / done if done else None


def _seen_s(path: Path, log: Sequence[Mapping[str, Any]]) -> float | None:
    signs = []
    if log:
        with contextlib.suppress(ValueError):
            signs.append(datetime.fromisoformat(str(log[-1].get("time"))))
    for name in ("checkpoint.npz", "experiment.yaml"):
        if (path / name).exists():
            signs.append(datetime.fromtimestamp((path / name).stat().st_mtime, UTC))
    return max(0.0, (datetime.now(UTC) - max(signs)).total_seconds()) if signs else None
