"""Reading runs back: pandas frames per table, and the runs below a directory."""

import contextlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from testbed.errors import RunError, reason
from testbed.files import parquet as parquet_files
from testbed.files import plain_yaml
from testbed.records import aggregates
from testbed.records.chunks import ROWS, joined, read_chunks
from testbed.records.tables import SCHEMAS
from testbed.records.writer import RunDirectory, read_table, recorded_files

if TYPE_CHECKING:
    import pandas as pd  # slow to import, and not everything that writes records reads them


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

    @property
    def label(self) -> str:
        """What tells this run from the others of its sweep; else the experiment's name."""
        provenance = self.experiment.get("provenance") or {}
        return str(provenance.get("label") or self.experiment.get("name") or self.path.name)

    def frame(self, table: str) -> "pd.DataFrame":
        """A table of `testbed.records.tables.SCHEMAS`."""
        rows: pd.DataFrame = read_table(self.path, table, self._checkpoint).to_pandas()
        return rows

    @property
    def verifiable(self) -> bool:
        """Whether the merged tables have digests, against which reading checks them; runs of earlier versions do not.

        Files that are absent or cannot be read are passed over: who reads them says what is wrong.
        """
        for name in SCHEMAS:
            with contextlib.suppress(OSError):
                if not parquet_files.has_digest(self.path / f"{name}.parquet"):
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

    def exchanges_in_stretches(self, columns: Sequence[str] | None = None) -> Iterator["pd.DataFrame"]:
        """`exchanges` in chunks of whole rounds, of about 10^6 rows unless a single round has more.

        Args:
            columns: those that are needed; a chunk has at least these, and ``round``.
        """
        if self._few_exchanges:
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
    def events(self) -> "pd.DataFrame":
        """Refusals, misbehaviour, restarts."""
        return self.frame("events")

    def aggregate(self, round_number: int) -> aggregates.RoundAggregate | None:
        """What the server saw in a finished round; None: it did not complete, or it was not asked for."""
        if self._checkpoint is None or round_number > self._checkpoint.round_number:
            return None
        return aggregates.read(self.path, round_number)

    @property
    def model(self) -> npt.NDArray[np.float32] | None:
        """`(d,)` the global model after the last finished round."""
        return None if self._checkpoint is None else self._checkpoint.model

    @property
    def wall_s(self) -> float:
        """Wall-clock seconds that the run took."""
        return 0.0 if self._checkpoint is None else self._checkpoint.wall_s


def find_runs(path: Path) -> list[RunRecords]:
    """The runs at or below `path`, in the order of their directories; raises `RunError` when there is none."""
    path = Path(path)
    if not path.is_dir():
        raise RunError(f"{path}: no such directory")
    found = sorted(file.parent for file in path.rglob("experiment.yaml"))
    if not found:
        raise RunError(f"{path}: no runs here; `testbed run EXPERIMENT.yaml --out {path}` makes some")
    return [RunRecords(directory) for directory in found]
