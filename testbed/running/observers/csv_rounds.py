"""``csv``: a row per round, on disk as soon as the round is recorded."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from testbed.display import csv_cell
from testbed.errors import RunError
from testbed.running.observers.export import COLUMNS, Exporter, Row, place_of
from testbed.running.preparation import PlannedRun


class CsvRounds(Exporter):
    """Appends each round to ``rounds.csv`` in the run's directory.

    Args:
        directory: where the files go instead, one a run.
    """

    def __init__(self, directory: str | None = None) -> None:
        super().__init__()
        self._directory = directory

    def opened(self, run: PlannedRun) -> int:
        file = self._file(run)
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or not file.stat().st_size:
            file.write_text(_line(COLUMNS))
            return 0
        data = file.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]  # a killed process may leave half a line
        rows = list(csv.reader(io.StringIO(whole.decode(), newline="")))
        if not rows or rows[0] != list(COLUMNS):
            raise RunError(f"{file}: has other columns than these rounds; move it away")
        with file.open("r+b") as opened:
            opened.truncate(len(whole))
        return int(rows[-1][0]) if len(rows) > 1 else 0

    def write(self, run: PlannedRun, row: Row) -> None:
        with self._file(run).open("a") as file:
            file.write(_line([csv_cell(row[name]) for name in COLUMNS]))

    def _file(self, run: PlannedRun) -> Path:
        place = place_of(run, self._directory, "rounds.csv")
        return place if self._directory is None else place.with_name(f"{place.name}.csv")


def _line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
