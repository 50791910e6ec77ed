"""Reading of recorded runs: tables as pandas frames, the schedule of dropouts, and summaries of failures."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from testbed.emulation.traces.schedule import DROPPED, OFFLINE, PARTICIPANT, Schedule
from testbed.errors import RunError, reason
from testbed.files import parquet as parquet_files
from testbed.files import plain_yaml
from testbed.records import arrays
from testbed.records.clients import CLIENTS, read_clients
from testbed.records.clients import FILE as CLIENTS_FILE
from testbed.records.schemas import SCHEMAS
from testbed.records.tables import ROWS, STOPPED, joined, read_chunks, read_table, recorded_files
from testbed.records.writer import RunDirectory

if TYPE_CHECKING:
    import pandas as pd  # slow to import, and code that only writes records does not need it

_LONGEST_DETAIL = 100  # characters
_ORDER = ("aborted", "skipped")


class RunRecords:
    """One run's records; the run may be finished, stopped, or in progress.

    Args:
        path: the run's directory.

    Raises:
        RunError: the directory contains no run.

    Example:
        >>> from testbed import Experiment, RunRecords, run
        >>> experiment = Experiment(rounds=2, population=6, selection={"participants": 3})
        >>> records = RunRecords(run(experiment, out="runs/first", network="in-process"))
        >>> records.rounds["survivors"].tolist(), records.value("selection.participants")
        ([3, 3], 3)
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        if not (self.path / "experiment.yaml").is_file():
            raise RunError(f"{self.path}: no run here (no experiment.yaml)")
        self._checkpoint = RunDirectory(self.path).checkpoint()

    @cached_property
    def experiment(self) -> dict[str, Any]:
        """The resolved experiment as plain data, with `provenance` (versions, machine, the point of the sweep)."""
        try:
            return dict(plain_yaml.read(self.path / "experiment.yaml"))
        except (OSError, yaml.YAMLError, TypeError, ValueError, AttributeError, LookupError) as error:
            raise RunError(f"{self.path / 'experiment.yaml'}: cannot be read: {reason(error)}") from None

    def value(self, key: str, default: Any = None) -> Any:
        """Return the value of a dotted key of the experiment; `default` if the key or its section is absent or None."""
        value: Any = self.experiment
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return default if value is None else value

    @property
    def label(self) -> str:
        """The name that distinguishes this run in its sweep; otherwise the experiment's name."""
        return str(self.value("provenance.label") or self.experiment.get("name") or self.path.name)

    @property
    def point(self) -> int:
        """The number of the run's point in its sweep, from 1; 0 if not recorded (no sweep, or an earlier version)."""
        place = self.value("provenance.point")
        return place if isinstance(place, int) else 0

    def frame(self, table: str) -> "pd.DataFrame":
        """Return a table of `testbed.records.schemas.SCHEMAS`, or ``clients``."""
        if table == CLIENTS:
            return self.clients
        rows: pd.DataFrame = read_table(self.path, table, self._checkpoint).to_pandas()
        return rows

    @property
    def verifiable(self) -> bool:
        """Whether the merged tables have digests that reading verifies; runs of earlier versions have none.

        Missing or unreadable files are skipped: reading them reports the error.
        """
        for file in (CLIENTS_FILE, *(f"{name}.parquet" for name in SCHEMAS)):
            with contextlib.suppress(OSError):
                if not parquet_files.has_digest(self.path / file):
                    return False
        return True

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """One row per round."""
        return self.frame("rounds")

    @cached_property
    def exchanges(self) -> "pd.DataFrame":
        """One row per client asked in a stage, all in memory; see `exchanges_in_stretches` for large populations."""
        return self.frame("exchanges")

    def exchanges_in_stretches(
        self, columns: Sequence[str] | None = None, *, keep: bool = True
    ) -> Iterator["pd.DataFrame"]:
        """Yield `exchanges` in chunks of whole rounds, of about 10^6 rows unless a single round has more.

        Args:
            columns: the columns needed; a chunk has at least these, and ``round``.
            keep: whether a small table is read with all columns and cached for later calls.
        """
        if "exchanges" in self.__dict__ or (keep and self._few_exchanges):
            yield self.exchanges
            return
        columns_to_read = None if columns is None else list(dict.fromkeys(("round", *columns)))
        for chunk in read_chunks(
            recorded_files(self.path, "exchanges", self._checkpoint), "exchanges", columns_to_read
        ):
            yield chunk.to_pandas()

    @cached_property
    def exchanges_of_participants(self) -> "pd.DataFrame":
        """The rows of `exchanges` of clients that participated in the round, renumbered."""
        if self._few_exchanges:
            return self.exchanges[self._took_part(self.exchanges)].reset_index(drop=True)
        chunks = []
        for chunk in read_chunks(recorded_files(self.path, "exchanges", self._checkpoint), "exchanges"):
            chunks.append(chunk.filter(pa.array(self._took_part(chunk))))
        rows: pd.DataFrame = joined(chunks).to_pandas()
        return rows

    def _took_part(self, rows: Any) -> npt.NDArray[np.bool_]:
        """Return `(m,)` whether the rows' clients were participants of their rounds."""
        if not len(rows) or self.participation.empty:
            return np.zeros(len(rows), np.bool_)
        # One integer for each (round, client): `isin` over pairs of columns would be slow.
        span = 1 + max(int(np.max(rows["client"])), int(self.participation["client"].max()))

        def key(columns: Any) -> npt.NDArray[np.int64]:
            return np.asarray(columns["round"], np.int64) * span + np.asarray(columns["client"], np.int64)

        return np.isin(key(rows), key(self.participation))

    @cached_property
    def _few_exchanges(self) -> bool:
        """Whether `exchanges` is small enough to be read at once and cached."""
        if "exchanges" in self.__dict__:
            return True
        try:
            files = recorded_files(self.path, "exchanges", self._checkpoint)
            return sum(int(pq.read_metadata(file).num_rows) for file in files) <= ROWS
        except (OSError, pa.ArrowException):
            return True  # damaged, or finished meanwhile: reading the whole table handles both

    @cached_property
    def participation(self) -> "pd.DataFrame":
        """One row per participant and round."""
        return self.frame("participation")

    @cached_property
    def clients(self) -> "pd.DataFrame":
        """One row per client of the population; empty in runs of earlier versions and with `records.clients: false`.

        Raises:
            RunError: the table is damaged.
        """
        rows: pd.DataFrame = read_clients(self.path).to_pandas()
        return rows

    @cached_property
    def events(self) -> "pd.DataFrame":
        """Refusals, attacks, misbehaviour, restarts."""
        return self.frame("events")

    @property
    def why_stopped(self) -> str:
        """The reason for ending before the last round for good (a budget, a target); empty otherwise."""
        details = self.events.loc[self.events["kind"] == STOPPED, "detail"]
        return str(details.iloc[-1]) if len(details) else ""

    @property
    def has_misbehaviour(self) -> bool:
        """Whether a server or clients misbehave; failed rounds or models that do not learn are then a result."""
        adversary = self.experiment.get("adversary") or {}
        return bool(adversary.get("server") or adversary.get("clients"))

    def ledger_of_honest_clients(self) -> "pd.DataFrame":
        """Return the privacy ledger of the honest clients; dishonest clients have no guarantee."""
        rows, participants = self.frame("privacy"), self.participation
        dishonest = participants.loc[participants["dishonest"], "client"].unique()
        return rows[~rows["client"].isin(dishonest)]

    def aggregate(self, round_number: int) -> arrays.RoundAggregate | None:
        """Return the server's view of a finished round; None if the round did not complete or was not recorded."""
        if self._checkpoint is None or round_number > self._checkpoint.round_number:
            return None
        return arrays.read_aggregate(self.path, round_number)

    @property
    def model(self) -> npt.NDArray[np.float32] | None:
        """The global model after the last finished round, `(d,)`."""
        return None if self._checkpoint is None else self._checkpoint.model

    @property
    def wall_s(self) -> float:
        """Wall-clock seconds that the run took."""
        return 0.0 if self._checkpoint is None else self._checkpoint.wall_s


def find_runs(path: Path) -> list[RunRecords]:
    """Return the runs at or below `path`: points of a sweep in their order, other runs ordered by directory.

    Args:
        path: a run's directory, or a directory above it.

    Raises:
        RunError: there is no run, or an experiment cannot be read.

    Example:
        >>> from testbed import Experiment, find_runs, run
        >>> sweep = {"aggregation.protocol": ["plain", "secagg"]}
        >>> experiment = Experiment(rounds=1, population=6, selection={"participants": 3}, sweep=sweep)
        >>> directory = run(experiment, out="runs/compared", network="in-process")
        >>> [records.label for records in find_runs(directory)]
        ['plain', 'secagg']
    """
    path = Path(path)
    if not path.is_dir():
        raise RunError(f"{path}: no such directory")
    directories = sorted(file.parent for file in path.rglob("experiment.yaml"))
    if not directories:
        raise RunError(f"{path}: no runs here; start one with `testbed run EXPERIMENT.yaml --out {path}`")
    runs = [RunRecords(directory) for directory in directories]
    return sorted(runs, key=lambda run: (run.path.parent, run.point))


def recorded_schedule(run: RunRecords) -> Schedule:
    """Return the participants of each round, and the clients that were offline or dropped out, with the stage.

    For each client the first stage of a round counts in which it was offline or dropped out. A client that was offline
    at its first question and did not participate has no stage: it was offline for the whole round, and another protocol
    may have other stages. Late answers and refusals depend on the protocol and are not part of the schedule.

    Args:
        run: the records; of a run in progress, the finished rounds count.

    Raises:
        RunError: the records are damaged.
    """
    exchanges, participation = run.exchanges, run.participation
    asked_first = ~exchanges.duplicated(["round", "client"])  # rows are in the order in which the stages began
    fates = exchanges.assign(asked_first=asked_first)[exchanges["outcome"].isin(["offline", "dropped"])]
    fates = fates.drop_duplicates(["round", "client"])
    number = np.concatenate([participation["round"], fates["round"]]).astype(np.int64)
    client = np.concatenate([participation["client"], fates["client"]]).astype(np.int64)
    key = number * (client.max(initial=0) + 1) + client
    participants = len(participation)
    took_part = np.isin(key[participants:], key[:participants])
    offline = (fates["outcome"] == "offline").to_numpy()
    # Offline at the first question: no stage, as another protocol may have other stages.
    throughout = offline & fates["asked_first"].to_numpy() & ~took_part
    names, named = np.unique(fates["stage"].astype(str).to_numpy(object), return_inverse=True)
    stage = np.concatenate([np.zeros(participants), np.where(throughout, 0, named + 1)]).astype(np.int16)
    fate = np.concatenate([np.full(participants, PARTICIPANT), np.where(offline, OFFLINE, DROPPED)]).astype(np.int8)
    order = np.lexsort((fate != PARTICIPANT, client, number))
    stages = ("", *map(str, names))
    return Schedule(number[order], client[order], stage[order], fate[order], stages, str(run.path))


def counted(rounds: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the number of rounds that ended for each reason (the part before the colon), the most frequent first.

    Args:
        rounds: outcome and reason of each.
    """
    names = Counter(_name(why) for outcome, why in rounds if outcome in _ORDER)
    return dict(sorted(names.items(), key=lambda item: (-item[1], item[0])))


def format_end_reasons(rounds: Iterable[tuple[str, str]]) -> str:
    """Return the reasons of failed rounds as text; empty if all rounds completed.

    For example ``3 aborted: 2 x below-threshold (8 of 9 needed shared their keys), 1 x refused``. A reason with several
    details has the first of them.

    Args:
        rounds: outcome and reason of each, in their order.

    Example:
        >>> format_end_reasons([("aborted", "below-threshold: 8 of 9"), ("completed", "")])
        '1 aborted: 1 x below-threshold (8 of 9)'
    """
    ended: dict[str, list[str]] = defaultdict(list)
    for outcome, why in rounds:
        if outcome in _ORDER:
            ended[outcome].append(why)
    parts = []
    for outcome in (name for name in _ORDER if name in ended):
        reasons = ended[outcome]
        counts = [
            f"{count} x {name}{_detail([r for r in reasons if _name(r) == name])}"
            for name, count in counted((outcome, why) for why in reasons).items()
        ]
        parts.append(f"{len(reasons)} {outcome}: {', '.join(counts)}")
    return "; ".join(parts)


def format_refusals(details: Iterable[str]) -> str:
    """Return refusals as text; empty if none.

    For example ``3 refusals by clients: 2 x train.dimension-mismatch, 1 x train.diverged``.

    Args:
        details: of the events of this kind; a detail begins with the refusal code and a colon.
    """
    checks = Counter(_name(detail) for detail in details)
    if not checks:
        return ""
    counts = [f"{count} x {name}" for name, count in sorted(checks.items(), key=lambda item: (-item[1], item[0]))]
    count = checks.total()
    return f"{count} {'refusal' if count == 1 else 'refusals'} by clients: {', '.join(counts)}"


def format_crashes(count: int) -> str:
    """Return the number of crashes as text, e.g. ``13 crashes of clients' code``."""
    return f"{count} {'crash' if count == 1 else 'crashes'} of clients' code"


def format_delay(rounds: int, factor: float | None = None) -> str:
    """Return the delay of a live run by its machine as text.

    Args:
        rounds: number of rounds in which the machine could not keep up.
        factor: their duration over the duration due to links and devices.

    Example:
        >>> format_delay(3, 1.8)
        'the machine could not keep up in 3 rounds, which took 1.80 times as long as links and devices require'
    """
    text = f"the machine could not keep up in {rounds} {'round' if rounds == 1 else 'rounds'}"
    return text if factor is None else f"{text}, which took {factor:.2f} times as long as links and devices require"


def _name(why: str) -> str:
    return why.partition(":")[0].strip() or "no reason given"


def _detail(reasons: list[str]) -> str:
    details = list(dict.fromkeys(" ".join(why.partition(":")[2].split()) for why in reasons))
    first = next((detail for detail in details if detail), "")
    if not first:
        return ""
    shown = first if len(first) <= _LONGEST_DETAIL else f"{first[: _LONGEST_DETAIL - 1]}…"
    return f" ({shown})" if len(details) == 1 else f" (e.g. {shown})"
