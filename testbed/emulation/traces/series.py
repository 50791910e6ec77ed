"""Traces of one number over time: bandwidth in Mbit/s, latency in ms, loss as a probability. One text file per trace.

Two columns, separated by white space or a comma: seconds, and the number. Empty lines and lines that begin with ``#``
are skipped (row numbers in messages count every line); a file that ends in ``.gz`` is unpacked::

    0.0     2.5
    1.0     1.5
    2.0     3.0

The user states the meaning of a row (`Rows`), because files do not:

- ``until-next``: the number holds from its time until the time of the next row; the last number for the median step of
  its file;
- ``interval-before``: the number was measured since the row before; the first number for the median step. Loggers write
  in this way ("bytes since the last line"), and Pensieve's simulator (`sim/fixed_env.py`) reads its files of two
  columns in this way: Norway, FCC, Oboe, Puffer.

Then the trace begins again. The first time, or the beginning of its interval, becomes 0. Rows with equal times become
one row with their mean, and are counted.

The files of `testbed trace convert` begin with lines that name the kind, and the end of the last row::

    # testbed trace: bandwidth, seconds and Mbit/s, each row until the next
    # period_s: 120.5
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from testbed.arrays import Floats, Ids
from testbed.emulation.traces.interval_files import row_error
from testbed.emulation.traces.text_files import is_number, shown, text_lines
from testbed.errors import TraceError
from testbed.files.atomic import atomic_write

Rows = Literal["until-next", "interval-before"]

# Far beyond any link and any trace, but small enough that sums of bytes stay finite.
_FARTHEST_S = 1e12
_NO_TRACES = ("readme", "license", "licence")
_HEAD, _PERIOD = re.compile(r"#\s*testbed trace:\s*(\w+)"), re.compile(r"#\s*period_s:\s*(\S+)\s*")
ROWS_NOTE = (
    "each row was taken to hold until the next; if it was measured since the row before, as in Pensieve's files "
    "(Norway, FCC, Oboe, Puffer), say {}"
)
"""Note on bandwidth files whose rows have no stated meaning; `{}` is the way to state it."""
CONVERTER = "`testbed trace convert --kind {}` reads other formats"


@dataclass(frozen=True)
class Kind:
    """A kind of traced quantity.

    Attributes:
        name: name of the kind, also for ``--kind``.
        quantity: name of the number, for messages.
        unit: unit of the numbers in files.
        most: largest accepted number.
    """

    name: str
    quantity: str
    unit: str
    most: float

    @property
    def needed(self) -> str:
        """The required format of a line, for messages."""
        return f"each line needs two numbers, seconds and {self.unit}; {CONVERTER.format(self.name)}"


BANDWIDTH = Kind("bandwidth", "rate", "Mbit/s", 1e9)
LATENCY = Kind("latency", "latency", "ms", 1e9)
LOSS = Kind("loss", "loss", "probability", 1.0)
KINDS = {kind.name: kind for kind in (BANDWIDTH, LATENCY, LOSS)}


@dataclass(frozen=True, eq=False)
class Steps:
    """One trace.

    Attributes:
        time_s: `(m,)` float64 seconds, ascending from 0, at which each step begins.
        value: `(m,)` float64, in the kind's unit.
        period_s: seconds after which the trace begins again, later than the last step.
        repeated: number of rows with the time of the row before; they are part of its mean.
        says_rows: whether the file states the meaning of its rows, as those of `testbed trace convert` do.
    """

    time_s: Floats
    value: Floats
    period_s: float
    repeated: int = 0
    says_rows: bool = False


@dataclass(frozen=True, eq=False)
class RateSeries:
    """The traces of a file or folder.

    Attributes:
        kind: kind of the traces.
        names: names of the files, in the order of the traces.
        steps: the traces.
    """

    kind: Kind
    names: tuple[str, ...]
    steps: tuple[Steps, ...]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def offsets(self) -> Ids:
        """`(k + 1,)` int64; trace j has the steps `offsets[j]:offsets[j + 1]` of the joined arrays."""
        return np.append(0, np.cumsum([len(steps.time_s) for steps in self.steps])).astype(np.int64)

    @property
    def time_s(self) -> Floats:
        """`(steps,)` seconds, all traces joined."""
        return np.concatenate([steps.time_s for steps in self.steps])

    @property
    def value(self) -> Floats:
        """`(steps,)` numbers in the kind's unit, all traces joined."""
        return np.concatenate([steps.value for steps in self.steps])

    @property
    def period_s(self) -> Floats:
        """`(k,)` periods in seconds."""
        return np.array([steps.period_s for steps in self.steps])

    @property
    def repeated(self) -> Ids:
        """`(k,)` int64 rows of each file with the time of the row before."""
        return np.array([steps.repeated for steps in self.steps], np.int64)

    @property
    def needs_rows(self) -> bool:
        """Whether the user must state the meaning of rows: rates often refer to the time before, unstated by files."""
        return self.kind is BANDWIDTH and not all(steps.says_rows for steps in self.steps)


def steps_from_rows(where: str, times: Floats, values: Floats, rows: Rows, first_s: float | None = None) -> Steps:
    """Return the steps that rows describe.

    Args:
        where: the source, for messages.
        times: `(m,)` seconds, never descending.
        values: `(m,)`.
        rows: the meaning of a row.
        first_s: length of the first row's interval in seconds, if it is known (``interval-before``).

    Raises:
        TraceError: a single row, so that the length of its interval is unknown, or times too close to tell apart.

    Example:
        >>> steps_from_rows("a", np.array([10.0, 11.0]), np.array([2.5, 1.5]), "until-next")
        Steps(time_s=array([0., 1.]), value=array([2.5, 1.5]), period_s=2.0, repeated=0, says_rows=False)
    """
    begins = np.flatnonzero(np.append(True, np.diff(times) > 0))
    repeated = len(times) - len(begins)
    if repeated:
        # The mean: loggers write two rows in some seconds, and a step of no length has no rate.
        values = np.add.reduceat(values, begins) / np.diff(np.append(begins, len(values)))
        times = times[begins]
    if len(times) == 1 and first_s is None:
        content = f"{repeated + 1} rows with one time" if repeated else "a single row"
        raise TraceError(f"{where}: {content}; a trace needs two times, to say how long a number holds")
    time_s = times - times[0]
    # The median: one long pause of the logger must not stretch the last row.
    step_s = float(np.median(np.diff(time_s))) if first_s is None else first_s
    period_s = float(time_s[-1] + step_s)
    if rows == "interval-before":
        time_s = np.append(0.0, time_s[:-1] + step_s)
    if not (np.diff(time_s) > 0).all() or not time_s[-1] < period_s:
        raise TraceError(f"{where}: times from {times[0]} to {times[-1]} too close for float64 to tell apart")
    return Steps(time_s, values, period_s, repeated)


def read_series(path: Path, kind: Kind, rows: Rows = "until-next") -> RateSeries:
    """Read the trace in a file, or the traces in a directory, sorted by file name.

    In a directory, subdirectories, hidden files, readmes and licences are skipped; every other file must be a trace.

    Args:
        path: the file or directory.
        kind: kind of the traces.
        rows: the meaning of a row; files of `testbed trace convert` are ``until-next``.

    Raises:
        TraceError: one line with file and row: no such file, no traces in the directory, not text, a line without two
            numbers, an invalid number, NaN, a time before that of the row above, a single row, or a file of another
            kind.
    """
    path = Path(path)
    files = series_files(path, kind)
    return RateSeries(kind, tuple(file.name for file in files), tuple(_read_file(file, kind, rows) for file in files))


def series_files(path: Path, kind: Kind) -> list[Path]:
    """Return the files that `read_series` reads, in the order of its traces.

    Args:
        path: the file or directory.
        kind: kind of the traces, for messages.

    Raises:
        TraceError: the directory cannot be read or has no such files.
    """
    if not path.is_dir():
        return [path]
    try:
        inside = list(path.iterdir())
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    files = [file for file in inside if file.is_file() and is_trace_file(Path(file.name))]
    if not files:
        if folders := folders_in(path):
            raise TraceError(
                f"{path}: no {kind.name} traces in this folder itself, and those below it are not read: name one of "
                f"its {len(folders)} folders, e.g. {folders[0]}"
            )
        raise TraceError(f"{path}: no {kind.name} traces in this directory; {kind.needed}")
    return sorted(files, key=lambda file: file.name)


def folders_in(path: Path) -> list[str]:
    """Return the names of the folders in a folder, which `read_series` skips; none for a file."""
    if not path.is_dir():
        return []
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def is_trace_file(name: Path) -> bool:
    """Return whether a file of this name in a folder is read; hidden files, readmes and licences are not."""
    hidden = any(part.startswith(".") for part in name.parts)
    return not hidden and not name.name.lower().startswith(_NO_TRACES)


def kind_of(path: Path) -> Kind | None:
    """Return the kind that the first line of a file, or of the first file of a folder, names; None if it names none."""
    return declared_kind(series_files(path, BANDWIDTH)[0])


def declared_kind(file: Path) -> Kind | None:
    """Return the kind that the first line of a file names; None if it names none."""
    with text_lines(file, "a trace was expected") as lines:
        head = _HEAD.match(next(lines, ""))
    return KINDS.get(head[1]) if head else None


def is_trace_row(line: str) -> bool:
    """Return whether a line is a row of a trace: two numbers."""
    cells = line.replace(",", " ").split()
    return len(cells) == 2 and all(map(is_number, cells))


def write_series(path: Path, kind: Kind, steps: Steps, remark: str = "") -> None:
    """Write a trace that `read_series` reads back to the bit; with commas in ``.csv``, else with tabs.

    Args:
        path: the file, written under a temporary name and then renamed.
        kind: kind of the trace.
        steps: the trace.
        remark: one line on the origin of the trace.

    Raises:
        TraceError: the file cannot be written.
    """
    between = "," if path.suffix == ".csv" else "\t"
    head = [f"# testbed trace: {kind.name}, seconds and {kind.unit}, each row until the next"]
    head += [f"# {' '.join(remark.split())}"] if remark else []
    head.append(f"# period_s: {steps.period_s!r}")
    rows = zip(steps.time_s.tolist(), steps.value.tolist(), strict=True)
    lines = (f"{time!r}{between}{value!r}\n" for time, value in rows)
    with atomic_write(path, lambda reason: TraceError(f"{path}: cannot be written: {reason}")) as file:
        file.write(("\n".join(head) + "\n").encode())
        for line in lines:
            file.write(line.encode())


def _read_file(path: Path, kind: Kind, rows: Rows) -> Steps:
    times: list[float] = []
    values: list[float] = []
    period_s: float | None = None
    says_rows = False
    with text_lines(path, kind.needed) as lines:
        for row, line in enumerate(lines, start=1):
            if line.startswith("#"):
                says_rows = says_rows or _HEAD.match(line) is not None
                period_s = _directive(path, row, line, kind, rows, period_s)
            elif line.strip():
                moment, value = _numbers(path, row, line, kind)
                if times and moment < times[-1]:
                    raise row_error(str(path), row, f"time {moment} is earlier than the one before, {times[-1]}")
                times.append(moment)
                values.append(value)
    if not times:
        raise TraceError(f"{path}: no rows; {kind.needed}")
    if period_s is None:
        return replace(steps_from_rows(str(path), np.array(times), np.array(values), rows), says_rows=says_rows)
    if rows != "until-next":
        raise TraceError(
            f"{path}: its line `# period_s` states the end of the last row, so rows hold until the next; remove this "
            f"line, or `rows: {rows}`"
        )
    last_s = period_s - (times[-1] - times[0])
    if not last_s > 0:
        raise TraceError(f"{path}: period_s is {period_s}, and the last row begins at {times[-1]}; correct one of them")
    steps = steps_from_rows(str(path), np.array(times), np.array(values), "until-next", last_s)
    return Steps(steps.time_s, steps.value, period_s, steps.repeated, says_rows=True)


def _directive(path: Path, row: int, line: str, kind: Kind, rows: Rows, period_s: float | None) -> float | None:
    """Read a comment line; return the trace's period if it is known by now."""
    if head := _HEAD.match(line):
        if head[1] != kind.name:
            raise TraceError(f"{path}: a trace of {head[1]}; here one of {kind.name} is needed, in {kind.unit}")
        if rows != "until-next":
            raise TraceError(f"{path}: rows: the file states that rows hold until the next; leave out `rows: {rows}`")
    elif period := _PERIOD.fullmatch(line.strip()):
        if not is_number(period[1]) or not 0 < float(period[1]) <= _FARTHEST_S:
            raise row_error(str(path), row, f"period_s {shown(period[1])} is no number of seconds")
        return float(period[1])
    return period_s


def _numbers(path: Path, row: int, line: str, kind: Kind) -> tuple[float, float]:
    cells = line.replace(",", " ").split()
    if len(cells) != 2:
        raise row_error(str(path), row, f"{len(cells)} {'value' if len(cells) == 1 else 'values'}; {kind.needed}")
    try:
        time_s, value = map(float, cells)
    except ValueError:
        wrong = next(cell for cell in cells if not is_number(cell))
        raise row_error(str(path), row, f"{shown(wrong)} is not a number; {kind.needed}") from None
    # The slow check is for the message only: files have millions of rows.
    if not (abs(time_s) <= _FARTHEST_S and 0 <= value <= kind.most):
        check_row(str(path), row, time_s, value, kind)
    return time_s, value


def check_row(where: str, row: int, time_s: float, value: float, kind: Kind) -> None:
    """Check the time and the number of a row.

    Args:
        where: the source, for messages.
        row: row number.
        time_s: seconds.
        value: number in the kind's unit.
        kind: kind of the trace.

    Raises:
        TraceError: the time or the number is out of range.
    """
    if not abs(time_s) <= _FARTHEST_S:
        raise row_error(where, row, f"time {time_s}; it must be seconds, at most {_FARTHEST_S:g} from 0")
    if not 0 <= value <= kind.most:
        unit = "" if kind is LOSS else f" {kind.unit}"
        raise row_error(where, row, f"{kind.quantity} {value}{unit}; it must be from 0 to {kind.most:g}")
