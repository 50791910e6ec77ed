"""Formats of bandwidth, latency and loss: which are read, how one is found out, files and folders converted."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from testbed.emulation.traces.conversion import csv_series, hsdpa, mahimahi
from testbed.emulation.traces.conversion.collector import Counts
from testbed.emulation.traces.series import BANDWIDTH, Kind, Steps, series_files, write_series
from testbed.emulation.traces.text_files import is_number, text_lines
from testbed.errors import TraceError

SeriesFormat = Literal["mahimahi", "3g-log", "csv"]
FORMATS: tuple[SeriesFormat, ...] = get_args(SeriesFormat)
Convert = Callable[[Path], tuple[Steps, Counts]]

_TEXT = (".csv", ".txt", ".log", ".tsv", ".dat")


def detected(source: Path, match: str | None, kind: Kind) -> SeriesFormat:
    """The format of a file, or of the first of a folder, by its first row: a whole number, six numbers, or a table."""
    first = _files(source, match, kind)[0]
    with text_lines(first, "a trace") as lines:
        line = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    cells = line.replace(",", " ").split()
    if kind is BANDWIDTH and len(cells) == 1 and cells[0].isdigit():
        return "mahimahi"
    if kind is BANDWIDTH and len(cells) == 6 and all(map(is_number, cells)):
        return "3g-log"
    return "csv"


def converter(
    kind: Kind, format: SeriesFormat, columns: csv_series.SeriesColumns | None = None, bin_s: float | None = None
) -> Convert:
    """What converts one file of a format; `columns` are for ``csv``, `bin_s` is for ``mahimahi``."""
    if format == "mahimahi":
        return lambda path: mahimahi.convert(path) if bin_s is None else mahimahi.convert(path, bin_s)
    if format == "3g-log":
        return hsdpa.convert
    assert columns is not None
    return lambda path: csv_series.convert(path, kind, columns)


def convert_all(source: Path, match: str | None, out: Path, kind: Kind, convert: Convert) -> Counts:
    """Convert a file to `out`, or the files of a folder into the folder `out`, each under its own name.

    Args:
        source: the file or folder.
        match: of a folder, only the files that this pattern fits, e.g. ``*.down``; None: all.
        out: the file or folder to write.
        kind: what the traces are of.
        convert: one file.

    Returns:
        The counts of all files together, with `files` first if there are several.

    Raises:
        TraceError: a file cannot be converted (nothing is written then), or written, or two have one name.
    """
    if not source.is_dir():
        steps, counts = convert(source)
        write_series(out, kind, steps, _remark(source, counts))
        return counts
    files = _files(source, match, kind)
    targets: dict[Path, Path] = {}
    for file in files:
        target = out / _name(file)
        if target in targets:
            raise TraceError(
                f"{file}: would be written as {target.name}, as {targets[target].name}; rename one of them"
            )
        targets[target] = file
    found = {target: convert(file) for target, file in targets.items()}
    total: Counts = {"files": len(files)}
    for target, (steps, counts) in found.items():
        write_series(target, kind, steps, _remark(targets[target], counts))
        for key, value in counts.items():
            total[key] = total.get(key, 0) + value
    return total


def _files(source: Path, match: str | None, kind: Kind) -> list[Path]:
    files = series_files(source, kind)
    matching = [file for file in files if match is None or not source.is_dir() or file.match(match)]
    if not matching:
        raise TraceError(f"{source}: no file in it is called like {match}")
    return matching


def _name(file: Path) -> str:
    name = file.name.removesuffix(".gz")
    return f"{Path(name).stem}.txt" if Path(name).suffix in _TEXT else f"{name}.txt"


def _remark(source: Path, counts: Counts) -> str:
    return f"from {source.name}: " + ", ".join(f"{value} {key.replace('_', ' ')}" for key, value in counts.items())
