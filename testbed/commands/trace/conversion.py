"""``testbed trace convert``: data of other projects become traces."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from testbed.commands.invocation import Debug, argument, examples, flag, option
from testbed.commands.terminal import echo, messages
from testbed.commands.trace.output import (
    Force,
    RoundSeconds,
    check_target,
    check_target_folder,
    seconds,
    summarise,
)
from testbed.errors import ExperimentError, TraceError

if TYPE_CHECKING:
    from testbed.emulation.traces.conversion.collector import Counts, Outside
    from testbed.emulation.traces.intervals import AvailabilityTrace
    from testbed.emulation.traces.series import Kind

CONVERT_EPILOG = examples(
    "testbed trace convert cached_timers.json --from phone-intervals --out phones.parquet",
    "testbed trace convert state_traces.json --from flash --out phones.parquet",
    "testbed trace convert client_behave_trace --from fedscale --out fedscale.parquet",
    "testbed trace convert client_device_capacity --from fedscale --out capacity.csv",
    "testbed trace convert rounds.npy --from matrix --round-seconds 5min --out rounds.parquet",
    "testbed trace convert log.csv --from csv --client-column phone --from-column begin --until-column end --unit min "
    "--out log.parquet",
    "testbed trace convert spot-traces/availability --from spot --out spot.parquet",
    "testbed trace convert event_trace.tab --from failure-trace-archive --out nodes.parquet",
    "testbed trace convert case1.json --from flhetbench --timers cached_timers.json --out case1.parquet",
    "testbed trace convert ATT-LTE-driving.down --kind bandwidth --out att.txt",
    "testbed trace convert 5G-logs --kind bandwidth --time-column Timestamp --value-column DL_bitrate --unit kbit/s "
    "--out traces/5g",
    "testbed trace convert 5G-logs --kind latency --time-column Timestamp --value-column PINGAVG --unit ms "
    "--round-trip --out traces/5g-latency",
)

_FORMATS = ("phone-intervals", "flash", "fedscale", "matrix", "csv", "spot", "failure-trace-archive", "flhetbench")
_SERIES_SUFFIXES = (".txt", ".csv", ".tsv", ".log")
_UNITS = "s, ms, us, min, h; bit/s, kbit/s, Mbit/s, Gbit/s, B/s, kB/s, MB/s; s, ms, us; probability, percent"


@dataclass(frozen=True)
class _Reads:
    """The options that a format needs, and those that it may have."""

    needed: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()


_AVAILABILITY: Mapping[str, _Reads] = {
    "phone-intervals": _Reads((), ("--outside",)),
    "flash": _Reads((), ("--outside",)),
    "fedscale": _Reads((), ("--outside",)),
    "matrix": _Reads(("--round-seconds",)),
    "csv": _Reads(
        ("--client-column", "--from-column", "--until-column"),
        ("--unit", "--outside", "--recorded-from-column", "--recorded-until-column"),
    ),
    "spot": _Reads((), ("--outside",)),
    "failure-trace-archive": _Reads((), ("--outside",)),
    "flhetbench": _Reads(("--timers",), ("--outside",)),
}
_SERIES: Mapping[str, _Reads] = {
    "mahimahi": _Reads((), ("--bin", "--match")),
    "3g-log": _Reads((), ("--match",)),
    "csv": _Reads(("--time-column", "--value-column", "--unit"), ("--time-unit", "--rows", "--round-trip", "--match")),
}


def convert(
    source: Annotated[Path, argument("SOURCE", "The file to convert, or a folder of files.")],
    out: Annotated[
        Path,
        option(
            "FILE",
            "What to write: .parquet or .csv; of another --kind .txt, .csv, .tsv, .log, or a folder if SOURCE is one.",
        ),
    ],
    kind: Annotated[
        Literal["availability", "bandwidth", "latency", "loss"], typer.Option(help="What is traced.")
    ] = "availability",
    format: Annotated[
        str | None,
        option(
            "FORMAT",
            f"What the file is: {', '.join(_FORMATS)}; of another --kind mahimahi, 3g-log or csv, or found out.",
            "--from",
        ),
    ] = None,
    outside: Annotated[
        Literal["repeat", "offline"] | None,
        typer.Option(
            help="Outside its own recording a device does the same again, as in FLASH and FedScale (repeat), or is "
            "offline. (all but matrix)  \\[default: repeat; csv without recorded columns: offline]"
        ),
    ] = None,
    round_seconds: RoundSeconds = None,
    timers: Annotated[Path | None, option("FILE", "FLASH's cached_timers.json with the phones. (flhetbench)")] = None,
    client_column: Annotated[str | None, option("NAME", "The column that says whose interval it is. (csv)")] = None,
    from_column: Annotated[str | None, option("NAME", "The column with the start of the interval. (csv)")] = None,
    until_column: Annotated[str | None, option("NAME", "The column with its end. (csv)")] = None,
    recorded_from_column: Annotated[
        str | None, option("NAME", "The column with the time since when the client was watched. (csv)")
    ] = None,
    recorded_until_column: Annotated[str | None, option("NAME", "The column with the end of that. (csv)")] = None,
    time_column: Annotated[
        str | None, option("NAME", "The column with the times, by name or by number from 1. (csv, other kinds)")
    ] = None,
    value_column: Annotated[str | None, option("NAME", "The column with the values. (csv, other kinds)")] = None,
    unit: Annotated[str | None, option("UNIT", f"Of times, or of another kind's values: {_UNITS}. (csv)")] = None,
    time_unit: Annotated[
        Literal["s", "ms", "us", "min", "h"] | None,
        typer.Option(help="Of times that are numbers. (csv, other kinds)  \\[default: s]"),
    ] = None,
    rows: Annotated[
        Literal["until-next", "interval-before"] | None,
        typer.Option(
            help="A row's value holds until the next row, or was measured since the row before. (csv, other kinds)  "
            "\\[default: until-next]"
        ),
    ] = None,
    round_trip: Annotated[bool, flag("Latencies are there and back; half of each is written.", "--round-trip")] = False,
    bin: Annotated[
        str | None, option("DURATION", "Packets are counted in steps of this length; default: 100ms. (mahimahi)")
    ] = None,
    match: Annotated[str | None, option("PATTERN", "Of a folder, only files called so, e.g. '*.down'.")] = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Convert data of other projects, and print what was kept and what was dropped.

    FedScale's file of device capacities becomes a table for the `devices` and `links` of experiments.
    """
    given = {
        "--outside": outside,
        "--round-seconds": round_seconds,
        "--timers": timers,
        "--client-column": client_column,
        "--from-column": from_column,
        "--until-column": until_column,
        "--recorded-from-column": recorded_from_column,
        "--recorded-until-column": recorded_until_column,
        "--time-column": time_column,
        "--value-column": value_column,
        "--unit": unit,
        "--time-unit": time_unit,
        "--rows": rows,
        "--round-trip": round_trip or None,
        "--bin": bin,
        "--match": match,
    }
    if kind != "availability":
        _convert_series(source, kind, format, given, out, force)
        return
    if format is None:
        raise ExperimentError(f"--from: needed with --kind availability; one of {', '.join(_FORMATS)}")
    _check_options(format, given, _AVAILABILITY, kind)
    round_s = seconds(round_seconds, "--round-seconds") if round_seconds is not None else 0.0
    _convert_availability(source, format, given, round_s, out, force)


def _check_options(format: str, given: Mapping[str, Any], formats: Mapping[str, _Reads], kind: str) -> None:
    if format not in formats:
        raise ExperimentError(f"--from: {format!r} is no format of --kind {kind}; there are {', '.join(formats)}")
    for name, value in given.items():
        if value is None and name in formats[format].needed:
            raise ExperimentError(f"{name}: needed with --from {format}")
        if value is not None and name not in (*formats[format].needed, *formats[format].possible):
            raise ExperimentError(f"{name}: has no effect with --from {format}; leave it out")


# -- availability ---------------------------------------------------------------------------------------------------


def _convert_availability(
    source: Path, format: str, given: Mapping[str, Any], round_s: float, out: Path, force: bool
) -> None:
    check_target(out, force, source)
    _check_there(source)
    from analysis import trace_report

    if format == "fedscale":
        from testbed.emulation.traces.conversion import fedscale

        clients = fedscale.read(source)
        if fedscale.is_capacity(clients):
            _write_capacity(*fedscale.capacity(clients, str(source)), out)
            return
        found, counts = fedscale.behaviour(clients, str(source), given["--outside"] or "repeat")
    else:
        found, counts = _converted(format, source, given, round_s)
    found.write(out)
    echo(trace_report.counts_text(counts), nl=False)
    if short := counts.get("devices_seen_for_less_than_half_the_horizon"):
        messages().print(
            f"note: {short} of {len(found)} devices have intervals in less than half of the horizon, and are offline "
            "in the rest; if they were not watched there, say so by --recorded-from-column and "
            "--recorded-until-column, or --outside repeat",
            markup=False,
        )
    summarise(found, out)


def _converted(
    format: str, source: Path, given: Mapping[str, Any], round_s: float
) -> "tuple[AvailabilityTrace, Counts]":
    from testbed.emulation.traces.conversion import csv_intervals, failure_archive, flash, flhetbench, matrix, spot

    if format == "matrix":
        return matrix.convert(source, round_s)
    if format == "csv":
        from testbed.emulation.traces.timestamps import TIME_UNITS

        client, begin, end = (given[f"--{name}-column"] for name in ("client", "from", "until"))
        unit = _one_of("--unit", given["--unit"] or "s", TIME_UNITS)
        recorded = given["--recorded-from-column"], given["--recorded-until-column"]
        if (recorded[0] is None) != (recorded[1] is None):
            raise ExperimentError("--recorded-from-column, --recorded-until-column: give both, or none")
        columns = None if recorded[0] is None else recorded
        how = given["--outside"]
        return csv_intervals.convert(source, client, begin, end, unit, recorded_columns=columns, outside=how)
    outside: Outside = given["--outside"] or "repeat"
    if format == "flhetbench":
        _check_there(given["--timers"])
        return flhetbench.convert(source, given["--timers"], outside)
    converters = {
        "phone-intervals": flash.convert_timers,
        "flash": flash.convert_events,
        "spot": spot.convert,
        "failure-trace-archive": failure_archive.convert,
    }
    return converters[format](source, outside)


def _write_capacity(table: Any, counts: "Counts", out: Path) -> None:
    import pyarrow as pa

    from analysis import trace_report
    from testbed.files import parquet as parquet_files
    from testbed.files.atomic import atomic_write

    with atomic_write(out, lambda reason: TraceError(f"{out}: cannot be written: {reason}")) as file:
        if out.suffix == ".csv":
            file.write(table.to_csv(index=False).encode())
        else:
            parquet_files.write_table(pa.Table.from_pandas(table, preserve_index=False), file)
    echo(trace_report.counts_text(counts), nl=False)
    echo(f"{out}: capacities of {len(table)} clients: {', '.join(table.columns)}")


# -- bandwidth, latency, loss ---------------------------------------------------------------------------------------


def _convert_series(
    source: Path, name: str, format: str | None, given: Mapping[str, Any], out: Path, force: bool
) -> None:
    from analysis import trace_report
    from testbed.emulation.traces.conversion import series_formats
    from testbed.emulation.traces.series import KINDS

    kind = KINDS[name]
    formats = {one: reads for one, reads in _SERIES.items() if one == "csv" or name == "bandwidth"}
    if format is None:
        _check_there(source)
        format = series_formats.detected(source, given["--match"], kind)
    _check_options(format, given, formats, name)
    chosen = _one_of("--from", format, series_formats.FORMATS)
    bin_s = seconds(given["--bin"], "--bin") if given["--bin"] is not None else None
    columns = _columns(kind, given) if format == "csv" else None
    if given["--match"] is not None and not source.is_dir():
        raise ExperimentError(f"--match: has no effect with a file; {source} is one")
    _check_there(source)
    if source.is_dir():
        check_target_folder(out, force, source)
    else:
        check_target(out, force, source, _SERIES_SUFFIXES)
    converter = series_formats.converter(kind, chosen, columns, bin_s)
    counts = series_formats.convert_all(source, given["--match"], out, kind, converter)
    echo(trace_report.counts_text(counts), nl=False)
    files = counts.get("files", 1)
    echo(f"{out}: {files} {'traces' if files > 1 else 'trace'} of {name}, {kind.unit}, read as {format}")


def _columns(kind: "Kind", given: Mapping[str, Any]) -> Any:
    from testbed.emulation.traces.conversion import csv_series

    unit = _one_of("--unit", given["--unit"], tuple(csv_series.UNITS[kind.name]))
    if given["--round-trip"] and kind.name != "latency":
        raise ExperimentError(f"--round-trip: has no effect with --kind {kind.name}; leave it out")
    return csv_series.SeriesColumns(
        given["--time-column"],
        given["--value-column"],
        unit,
        given["--time-unit"] or "s",
        given["--rows"] or "until-next",
        bool(given["--round-trip"]),
    )


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> Any:
    if value not in allowed:
        raise ExperimentError(f"{name}: {value!r} is none of {', '.join(allowed)}")
    return value


def _check_there(source: Path) -> None:
    if not source.exists():
        raise TraceError(f"{source}: no such file")
