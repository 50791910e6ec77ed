"""Formats of bandwidth, latency and loss: detection, and conversion of files and folders."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, get_args

from testbed.emulation.traces.conversion import csv_series, hsdpa, mahimahi
from testbed.emulation.traces.conversion.collector import Counts
from testbed.emulation.traces.series import (
    BANDWIDTH,
    Kind,
    Steps,
    declared_kind,
    is_trace_file,
    is_trace_row,
    write_series,
)
from testbed.emulation.traces.text_files import is_number, shown, text_lines
from testbed.errors import TraceError

SeriesFormat = Literal["mahimahi", "3g-log", "csv"]
FORMATS: tuple[SeriesFormat, ...] = get_args(SeriesFormat)
Traces = Mapping[str, Steps]  # by the value that tells them apart; "" for a single trace
Convert = Callable[[Path], tuple[Traces, Counts]]

_TEXT = (".csv", ".txt", ".log", ".tsv", ".dat")
_UNSAFE = re.compile(r"[^\w.+-]+")
_LONGEST_NAME = 100  # characters that a value adds to a file's name
_KEYS = {"bandwidth": "down_mbit_s", "latency": "latency_ms", "loss": "loss"}  # of links


def detect_format(source: Path, match: str | None, kind: Kind) -> SeriesFormat:
    """Return the format of a file, or of the first file of a folder, by its first row.

    A whole number is Mahimahi's, six numbers are a 3G log's, anything else is a table.

    Args:
        source: a file or a folder.
        match: pattern of the files to use in a folder; None: all.
        kind: kind of the traces.
    """
    cells = _first_row(_files(source, match)[0]).replace(",", " ").split()
    if kind is BANDWIDTH and len(cells) == 1 and cells[0].isdigit():
        return "mahimahi"
    if kind is BANDWIDTH and len(cells) == 6 and all(map(is_number, cells)):
        return "3g-log"
    return "csv"


def refuse_traces(source: Path, match: str | None, kind: Kind, *, has_columns: bool) -> None:
    """Raise `TraceError` for a source that experiments read without a conversion.

    Args:
        source: a file or a folder.
        match: pattern of the files to use in a folder; None: all.
        kind: kind of the traces.
        has_columns: whether the user has named the columns of times and values; then two numbers in each row are a
            table like any other.
    """
    first = _files(source, match)[0]
    if declared := declared_kind(first):
        raise TraceError(f"{first}: a trace of {declared.name} already; {_as_it_is(source, declared.name)}")
    if not has_columns and is_trace_row(_first_row(first)):
        raise TraceError(
            f"{first}: two numbers in each line, which is the format of traces already: if they are seconds and "
            f"{kind.unit}, {_as_it_is(source, kind.name)} (`rows` states the meaning of a row); if not, name columns "
            "and unit (--from csv --no-header --time-column 1 --value-column 2 --unit ...)"
        )


def refuse_series(source: Path) -> None:
    """Raise `TraceError` for a trace of links if an availability trace is to be converted."""
    try:
        first = _files(source, None)[0]
        declared, is_row = declared_kind(first), is_trace_row(_first_row(first))
    except (TraceError, OSError, ValueError):  # not a text, or nothing there: the conversion says so
        return
    if declared or is_row:
        name = declared.name if declared else "bandwidth, latency or loss"
        raise TraceError(
            f"{first}: a trace of {name} already, and not of availability; "
            f"{_as_it_is(source, declared.name if declared else 'bandwidth')}"
        )


def _as_it_is(source: Path, kind: str) -> str:
    return (
        f"no conversion is needed, name it as it is: links: {{{_KEYS[kind]}: {{trace: {source}}}}}; "
        "`testbed trace inspect` shows it"
    )


def converter(
    kind: Kind, format: SeriesFormat, columns: csv_series.SeriesColumns | None = None, bin_s: float | None = None
) -> Convert:
    """Return the converter of one file.

    Args:
        kind: kind of the traces.
        format: format of the file.
        columns: the columns of a ``csv`` file.
        bin_s: length of a bin in seconds for ``mahimahi``; None: the default.
    """
    if format == "mahimahi":
        return lambda path: _alone(mahimahi.convert(path) if bin_s is None else mahimahi.convert(path, bin_s))
    if format == "3g-log":
        return lambda path: _alone(hsdpa.convert(path))
    assert columns is not None
    return lambda path: csv_series.convert(path, kind, columns)


def _alone(converted: tuple[Steps, Counts]) -> tuple[Traces, Counts]:
    return {"": converted[0]}, converted[1]


def convert_all(
    source: Path, match: str | None, out: Path, kind: Kind, convert: Convert, *, into_folder: bool = False
) -> tuple[int, Counts]:
    """Convert a file to `out`, or the files below a folder into the folder `out`.

    In a folder, traces are named after their files: ``drive.txt`` for ``drive.csv``, ``Netflix-drive.txt`` for one in a
    folder ``Netflix``, ``drive-A.txt`` for one in which a column tells ``A`` and others apart; of a single file,
    ``A.txt``.

    Args:
        source: the file or folder.
        match: pattern of the files to use in a folder, e.g. ``*.down``; None: all.
        out: the file or folder to write.
        kind: kind of the traces.
        convert: converter of one file.
        into_folder: `out` is a folder even if `source` is a file.

    Returns:
        The number of traces written, and the counts of all files together, with `files` first if there are several.

    Raises:
        TraceError: a file cannot be converted (nothing is written then), or written, or two traces have the same name.
    """
    if not source.is_dir() and not into_folder:
        traces, counts = convert(source)
        (steps,) = traces.values()
        write_series(out, kind, steps, _remark(source, counts))
        return 1, counts
    total: Counts = {"files": 0} if source.is_dir() else {}
    written: dict[Path, tuple[Path, Steps, Counts]] = {}
    for file in _files(source, match):
        traces, counts = convert(file)
        for value, steps in traces.items():
            target = out / _name(file, source, value)
            if target in written:
                other = written[target][0].name
                raise TraceError(f"{file}: would be written as {target.name}, as {other}; rename one of them")
            written[target] = file, steps, counts
        for key, number in {"files": 1, **counts}.items() if source.is_dir() else counts.items():
            total[key] = total.get(key, 0) + number
    # Written only after all were converted: a faulty file leaves no half-filled folder.
    for target, (file, steps, counts) in written.items():
        write_series(target, kind, steps, _remark(file, counts))
    return len(written), total


def _files(source: Path, match: str | None) -> list[Path]:
    """Return the source, or the files below it, in the order of their paths."""
    if not source.is_dir():
        return [source]
    try:
        below = [path for path in source.rglob("*") if path.is_file()]
    except OSError as error:
        raise TraceError(f"{source}: cannot be read: {error.strerror}") from None
    files = [file for file in below if is_trace_file(file.relative_to(source))]
    if not files:
        raise TraceError(f"{source}: no files below this folder")
    matching = sorted(file for file in files if match is None or file.match(match))
    if not matching:
        raise TraceError(f"{source}: none of the {len(files)} files below it matches {match}")
    return matching


def _first_row(file: Path) -> str:
    with text_lines(file, "a trace, or a table of text, was expected") as lines:
        return next((line for line in lines if line.strip() and not line.startswith("#")), "")


def _name(file: Path, source: Path, value: str) -> str:
    # A value of the table must become neither a path nor a hidden file.
    of_value = _UNSAFE.sub("_", value)[:_LONGEST_NAME].lstrip(".")
    if value and not of_value:
        raise TraceError(f"{file}: {shown(value)} cannot be a file name; split by another column")
    if not source.is_dir():
        return f"{of_value}.txt"
    *folders, name = file.relative_to(source).parts
    name = name.removesuffix(".gz")
    stem = Path(name).stem if Path(name).suffix in _TEXT else name
    return f"{'-'.join([*folders, stem, *([of_value] if value else [])])}.txt"


def _remark(source: Path, counts: Counts) -> str:
    return f"from {source.name}: " + ", ".join(f"{value} {key.replace('_', ' ')}" for key, value in counts.items())
