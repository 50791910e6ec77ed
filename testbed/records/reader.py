"""Reading runs back: pandas frames per table, the schedule that a run followed, and what went wrong in words."""

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
    import pandas as pd  # slow to import, and not everything that writes records reads them

_LONGEST_DETAIL = 100  # characters
_ORDER = ("aborted", "skipped")


class RunRecords:
    """One run's records; works on runs that are finished, stopped, or still going on.

    Args:
        path: the run's directory; raises `RunError` when it holds no run.
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
        """The value of a dotted key of the experiment; `default` where the key or its section is absent or None."""
        value: Any = self.experiment
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return default if value is None else value

    @property
    def label(self) -> str:
        """What tells this run from the others of its sweep; else the experiment's name."""
        return str(self.value("provenance.label") or self.experiment.get("name") or self.path.name)

    @property
    def point(self) -> int:
        """Which point of its sweep the run is, from 1; 0 when nothing says so (no sweep, or an earlier version)."""
        place = self.value("provenance.point")
        return place if isinstance(place, int) else 0

    def frame(self, table: str) -> "pd.DataFrame":
        """A table of `testbed.records.schemas.SCHEMAS`, or ``clients``."""
        if table == CLIENTS:
            return self.clients
        rows: pd.DataFrame = read_table(self.path, table, self._checkpoint).to_pandas()
        return rows

    @property
    def verifiable(self) -> bool:
        """Whether the merged tables have digests, against which reading checks them; runs of earlier versions do not.

        Files that are absent or cannot be read are passed over: who reads them says what is wrong.
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
        """One row per client asked in a stage; all of them, see `exchanges_in_stretches` for large populations."""
        return self.frame("exchanges")

    def exchanges_in_stretches(
        self, columns: Sequence[str] | None = None, *, keep: bool = True
    ) -> Iterator["pd.DataFrame"]:
        """`exchanges` in chunks of whole rounds, of about 10^6 rows unless a single round has more.

        Args:
            columns: those that are needed; a chunk has at least these, and ``round``.
            keep: few rows are read with all their columns and kept, for others that will ask for them.
        """
        if "exchanges" in self.__dict__ or (keep and self._few_exchanges):
            yield self.exchanges
            return
        wanted = None if columns is None else list(dict.fromkeys(("round", *columns)))
        for chunk in read_chunks(recorded_files(self.path, "exchanges", self._checkpoint), "exchanges", wanted):
            yield chunk.to_pandas()

    @cached_property
    def exchanges_of_participants(self) -> "pd.DataFrame":
        """The rows of `exchanges` of clients that were participants of that round, renumbered."""
        if self._few_exchanges:
            return self.exchanges[self._took_part(self.exchanges)].reset_index(drop=True)
        kept = []
        for chunk in read_chunks(recorded_files(self.path, "exchanges", self._checkpoint), "exchanges"):
            kept.append(chunk.filter(pa.array(self._took_part(chunk))))
        rows: pd.DataFrame = joined(kept).to_pandas()
        return rows

    def _took_part(self, rows: Any) -> npt.NDArray[np.bool_]:
        """`(m,)` whether the rows' clients were participants of their rounds."""
        if not len(rows) or self.participation.empty:
            return np.zeros(len(rows), np.bool_)
        span = 1 + max(int(np.max(rows["client"])), int(self.participation["client"].max()))

        def key(columns: Any) -> npt.NDArray[np.int64]:
            return np.asarray(columns["round"], np.int64) * span + np.asarray(columns["client"], np.int64)

        return np.isin(key(rows), key(self.participation))

    @cached_property
    def _few_exchanges(self) -> bool:
        """Whether `exchanges` may as well be read once and kept."""
        if "exchanges" in self.__dict__:
            return True
        try:
            files = recorded_files(self.path, "exchanges", self._checkpoint)
            return sum(int(pq.read_metadata(file).num_rows) for file in files) <= ROWS
        except (OSError, pa.ArrowException):
            return True  # damaged, or finished meanwhile: who reads it all knows what to do

    @cached_property
    def participation(self) -> "pd.DataFrame":
        """One row per participant and round."""
        return self.frame("participation")

    @cached_property
    def clients(self) -> "pd.DataFrame":
        """One row per client of the population; empty in runs of earlier versions, and with `records.clients: false`.

        Raises `RunError` when the table is damaged.
        """
        rows: pd.DataFrame = read_clients(self.path).to_pandas()
        return rows

    @cached_property
    def events(self) -> "pd.DataFrame":
        """Refusals, misbehaviour, restarts."""
        return self.frame("events")

    @property
    def why_stopped(self) -> str:
        """Why it ended before its last round and may not go on (a budget, a target); empty otherwise."""
        said = self.events.loc[self.events["kind"] == STOPPED, "detail"]
        return str(said.iloc[-1]) if len(said) else ""

    @property
    def has_misbehaviour(self) -> bool:
        """Whether a server or clients misbehave: then failed rounds and models that do not learn are the result."""
        adversary = self.experiment.get("adversary") or {}
        return bool(adversary.get("server") or adversary.get("clients"))

    def ledger_of_honest_clients(self) -> "pd.DataFrame":
        """The privacy ledger's rows of the honest clients: nobody protects dishonest ones from themselves."""
        rows, participants = self.frame("privacy"), self.participation
        dishonest = participants.loc[participants["dishonest"], "client"].unique()
        return rows[~rows["client"].isin(dishonest)]

    def aggregate(self, round_number: int) -> arrays.RoundAggregate | None:
        """What the server saw in a finished round; None: it did not complete, or it was not asked for."""
        if self._checkpoint is None or round_number > self._checkpoint.round_number:
            return None
        return arrays.read_aggregate(self.path, round_number)

    @property
    def model(self) -> npt.NDArray[np.float32] | None:
        """`(d,)` the global model after the last finished round."""
        return None if self._checkpoint is None else self._checkpoint.model

    @property
    def wall_s(self) -> float:
        """Wall-clock seconds that the run took."""
        return 0.0 if self._checkpoint is None else self._checkpoint.wall_s


def find_runs(path: Path) -> list[RunRecords]:
    """The runs at or below `path`, those of a sweep in its order, others in that of their directories.

    Raises `RunError` when there is none, or an experiment cannot be read.
    """
    path = Path(path)
    if not path.is_dir():
        raise RunError(f"{path}: no such directory")
    found = sorted(file.parent for file in path.rglob("experiment.yaml"))
    if not found:
        raise RunError(f"{path}: no runs here; `testbed run EXPERIMENT.yaml --out {path}` makes some")
    runs = [RunRecords(directory) for directory in found]
    return sorted(runs, key=lambda run: (run.path.parent, run.point))


def recorded_schedule(run: RunRecords) -> Schedule:
    """Who took part in which round, and who was offline or dropped out, at which stage.

    What counts is a client's first stage of a round in which it was offline or dropped out. A client that was away
    already when it was first asked, and did not take part, has no stage: it was away for the round, whatever stages
    another protocol has. Answers that came too late, and refusals, are the protocol's doing and not on the schedule.

    Args:
        run: the records, also those of a run that has not ended: its finished rounds. Raises `RunError` when
            they are damaged.
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
    throughout = offline & fates["asked_first"].to_numpy() & ~took_part
    names, named = np.unique(fates["stage"].astype(str).to_numpy(object), return_inverse=True)
    stage = np.concatenate([np.zeros(participants), np.where(throughout, 0, named + 1)]).astype(np.int16)
    fate = np.concatenate([np.full(participants, PARTICIPANT), np.where(offline, OFFLINE, DROPPED)]).astype(np.int8)
    order = np.lexsort((fate != PARTICIPANT, client, number))
    stages = ("", *map(str, names))
    return Schedule(number[order], client[order], stage[order], fate[order], stages, str(run.path))


def counted(rounds: Iterable[tuple[str, str]]) -> dict[str, int]:
    """How many rounds each reason has ended, by its name (what precedes the colon), the most frequent first.

    Args:
        rounds: outcome and reason of each.
    """
    names = Counter(_name(why) for outcome, why in rounds if outcome in _ORDER)
    return dict(sorted(names.items(), key=lambda item: (-item[1], item[0])))


def summed_up(rounds: Iterable[tuple[str, str]]) -> str:
    """E.g. ``3 aborted: 2 x below-threshold (8 of 9 needed shared their keys), 1 x refused``; empty: all completed.

    A reason with several details shows the first.

    Args:
        rounds: outcome and reason of each, in their order.
    """
    ended: dict[str, list[str]] = defaultdict(list)
    for outcome, why in rounds:
        if outcome in _ORDER:
            ended[outcome].append(why)
    parts = []
    for outcome in (name for name in _ORDER if name in ended):
        reasons = ended[outcome]
        each = [
            f"{count} x {name}{_detail([r for r in reasons if _name(r) == name])}"
            for name, count in counted((outcome, why) for why in reasons).items()
        ]
        parts.append(f"{len(reasons)} {outcome}: {', '.join(each)}")
    return "; ".join(parts)


def refusals_told(details: Iterable[str]) -> str:
    """E.g. ``3 refusals by clients: 2 x train.dimension, 1 x train.diverged``; empty: none.

    Args:
        details: of the events of this kind; a detail begins with the check's name and a colon.
    """
    checks = Counter(_name(detail) for detail in details)
    if not checks:
        return ""
    each = [f"{count} x {name}" for name, count in sorted(checks.items(), key=lambda item: (-item[1], item[0]))]
    count = checks.total()
    return f"{count} {'refusal' if count == 1 else 'refusals'} by clients: {', '.join(each)}"


def crashes_told(count: int) -> str:
    """E.g. ``13 crashes of clients' code``."""
    return f"{count} {'crash' if count == 1 else 'crashes'} of clients' code"


def behind_told(rounds: int, factor: float | None = None) -> str:
    """E.g. ``the machine could not keep up in 3 rounds, which took 1.80 times as long as links and devices say``."""
    said = f"the machine could not keep up in {rounds} {'round' if rounds == 1 else 'rounds'}"
    return said if factor is None else f"{said}, which took {factor:.2f} times as long as links and devices say"


def _name(why: str) -> str:
    return why.partition(":")[0].strip() or "no reason given"


def _detail(reasons: list[str]) -> str:
    details = list(dict.fromkeys(" ".join(why.partition(":")[2].split()) for why in reasons))
    first = next((detail for detail in details if detail), "")
    if not first:
        return ""
    shown = first if len(first) <= _LONGEST_DETAIL else f"{first[: _LONGEST_DETAIL - 1]}…"
    return f" ({shown})" if len(details) == 1 else f" (e.g. {shown})"
