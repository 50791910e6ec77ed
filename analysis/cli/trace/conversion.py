"""``testbed trace convert``: conversion of other projects' data to traces."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from analysis.cli.trace.format_options import AVAILABILITY, check_options, check_there, one_of, table_form
from analysis.cli.trace.output import Force, RoundSeconds, check_target, seconds, summarise
from analysis.cli.trace.series_conversion import convert_series
from testbed.cli.invocation import Debug, argument, examples, flag, option
from testbed.cli.terminal import echo, messages
from testbed.errors import ExperimentError, TraceError

if TYPE_CHECKING:
    from testbed.emulation.traces.conversion.collector import Counts, Outside
    from testbed.emulation.traces.intervals import AvailabilityTrace

CONVERT_EPILOG = examples(
    "testbed trace convert cached_timers.json --from phone-intervals --out phones.parquet",
    "testbed trace convert state_traces.json --from flash --out phones.parquet",
    "testbed trace convert client_behave_trace --from fedscale --out fedscale.parquet",
    "testbed trace convert client_device_capacity --from fedscale --out capacity.csv",
    "testbed trace convert rounds.npy --from matrix --round-seconds 5min --out rounds.parquet",
    "testbed trace convert log.csv --from csv --client-column phone --from-column begin --until-column end --unit min "
    "--out log.parquet",
    "testbed trace convert machine_events.csv --from csv --no-header --client-column 2 --from-column 1 "
    "--until-column 3 --unit us --out machines.parquet",
    "testbed trace convert spot-traces/availability --from spot --out spot.parquet",
    "testbed trace convert event_trace.tab --from failure-trace-archive --out nodes.parquet",
    "testbed trace convert case1.json --from flhetbench --timers cached_timers.json --out case1.parquet",
    "testbed trace convert ATT-LTE-driving.down --kind bandwidth --out att.txt",
    "testbed trace convert 5G-logs --kind bandwidth --time-column Timestamp --value-column DL_bitrate --unit kbit/s "
    "--out traces/5g",
    "testbed trace convert runs.csv --kind bandwidth --time-column seq_num --value-column Mbps --unit Mbit/s "
    "--split-column run_num --out traces/runs",
    "testbed trace convert 5G-logs --kind latency --time-column Timestamp --value-column PINGAVG --unit ms "
    "--round-trip --out traces/5g-latency",
)

_FORMATS = tuple(AVAILABILITY)
_OF_ALL = ("source", "out", "kind", "format", "force", "debug")  # parameters common to all formats
_UNITS = "s, ms, us, min, h; bit/s, kbit/s, Mbit/s, Gbit/s, B/s, kB/s, MB/s; s, ms, us; probability, percent"


def convert(
    source: Annotated[Path, argument("SOURCE", "The file to convert, or a folder of files.")],
    out: Annotated[
        Path,
        option(
            "FILE",
            "File to write: .parquet or .csv; for another --kind .txt, .csv, .tsv, .log, or a folder if SOURCE is one "
            "or --split-column is given.",
        ),
    ],
    kind: Annotated[
        Literal["availability", "bandwidth", "latency", "loss"], typer.Option(help="The traced quantity.")
    ] = "availability",
    format: Annotated[
        str | None,
        option(
            "FORMAT",
            f"Format of the file: {', '.join(_FORMATS)}; for another --kind mahimahi, 3g-log or csv, or detected.",
            "--from",
        ),
    ] = None,
    outside: Annotated[
        Literal["repeat", "offline"] | None,
        typer.Option(
            help="Outside its own recording a device repeats it, as in FLASH and FedScale (repeat), or is "
            "offline. (all but matrix)  \\[default: repeat; csv without recorded columns: offline]"
        ),
    ] = None,
    round_seconds: RoundSeconds = None,
    timers: Annotated[Path | None, option("FILE", "FLASH's cached_timers.json with the phones. (flhetbench)")] = None,
    client_column: Annotated[
        str | None,
        option(
            "NAME", "The column with the client of the interval, by name or by number from 1, as all columns. (csv)"
        ),
    ] = None,
    from_column: Annotated[str | None, option("NAME", "The column with the start of the interval. (csv)")] = None,
    until_column: Annotated[str | None, option("NAME", "The column with the end of the interval. (csv)")] = None,
    recorded_from_column: Annotated[
        str | None, option("NAME", "The column with the start of the client's recording. (csv)")
    ] = None,
    recorded_until_column: Annotated[
        str | None, option("NAME", "The column with the end of the client's recording. (csv)")
    ] = None,
    time_column: Annotated[str | None, option("NAME", "The column with the times. (csv, other kinds)")] = None,
    value_column: Annotated[str | None, option("NAME", "The column with the values. (csv, other kinds)")] = None,
    unit: Annotated[str | None, option("UNIT", f"Unit of times, or of another kind's values: {_UNITS}. (csv)")] = None,
    time_unit: Annotated[
        Literal["s", "ms", "us", "min", "h"] | None,
        typer.Option(help="Unit of times that are numbers. (csv, other kinds)  \\[default: s]"),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            metavar="",
            help="Whether the first row holds names, or data; needed if it can be either. (csv)",
            show_default=False,
        ),
    ] = None,
    decimal: Annotated[
        Literal["comma", "point"] | None,
        typer.Option(help="Decimal separator; needed if 1,500, or 1.500 between semicolons, can be 1.5 or 1500. (csv)"),
    ] = None,
    skip_incomplete: Annotated[
        bool | None, flag("Leave out rows without a client or a time, and count them. (csv)", "--skip-incomplete")
    ] = None,
    split_column: Annotated[
        str | None,
        option("NAME", "Make a trace for each value of this column: a run, a client, a carrier. (csv, other kinds)"),
    ] = None,
    average_repeated: Annotated[
        bool | None,
        flag("Average all rows with the same time. (csv, other kinds)", "--average-repeated"),
    ] = None,
    rows: Annotated[
        Literal["until-next", "interval-before"] | None,
        typer.Option(
            help="A row's value holds until the next row, or was measured since the row before, as in Pensieve's files "
            "and in logs of bytes. (csv, other kinds)  \\[default: until-next]"
        ),
    ] = None,
    round_trip: Annotated[
        bool | None, flag("Latencies are round-trip times; half of each is written.", "--round-trip")
    ] = None,
    bin: Annotated[
        str | None, option("DURATION", "Length of the steps in which packets are counted; default: 100ms. (mahimahi)")
    ] = None,
    match: Annotated[
        str | None, option("PATTERN", "Of a folder, read only files of such names, e.g. '*.down'.")
    ] = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Convert data of other projects, and print the numbers of rows that were kept and dropped.

    FedScale's file of device capacities becomes a table for the `devices` and `links` of experiments.
    """
    options = {f"--{name.replace('_', '-')}": value for name, value in locals().items() if name not in _OF_ALL}
    if kind != "availability":
        _refuse_availability(source, kind, has_columns=time_column is not None or value_column is not None)
        convert_series(source, kind, format, options, out, force)
        return
    _refuse_traces(source, client_column, format)
    if format is None:
        raise ExperimentError(f"--from: needed with --kind availability; one of {', '.join(_FORMATS)}")
    check_options(format, options, AVAILABILITY, kind)
    round_s = seconds(round_seconds, "--round-seconds") if round_seconds is not None else 0.0
    _convert_availability(source, format, options, round_s, out, force)


def _refuse_traces(source: Path, client_column: str | None, format: str | None) -> None:
    """Raise `TraceError` for a trace that experiments read without conversion, unless columns are chosen in it."""
    if client_column is not None or not source.exists():
        return
    from testbed.emulation.traces.conversion.series_formats import refuse_series
    from testbed.emulation.traces.inspection import trace_in

    if source.is_file() and (kind_of_trace := trace_in(source)):
        raise TraceError(
            f"{source}: {kind_of_trace} already; no conversion is needed, {_as_it_is(source, kind_of_trace)}"
        )
    if format is None:
        refuse_series(source)


def _refuse_availability(source: Path, kind: str, *, has_columns: bool) -> None:
    """Raise `TraceError` for a trace of availability, or a schedule, if another kind is to be converted.

    Args:
        source: the file or folder.
        kind: of the conversion.
        has_columns: whether columns are chosen; then a text is a table like any other.
    """
    if not source.is_file() or (has_columns and source.suffix != ".parquet"):
        return
    from testbed.emulation.traces.inspection import trace_in

    if kind_of_trace := trace_in(source):
        raise TraceError(f"{source}: {kind_of_trace}, and holds no {kind}; {_as_it_is(source, kind_of_trace)}")


def _as_it_is(source: Path, kind_of_trace: str) -> str:
    """Return advice on naming the trace in an experiment."""
    model = "schedule" if "schedule" in kind_of_trace else "trace"
    return f"use it as it is: availability: {{model: {model}, path: {source}}}; `testbed trace inspect` shows it"


def _convert_availability(
    source: Path, format: str, options: Mapping[str, Any], round_s: float, out: Path, force: bool
) -> None:
    check_target(out, force, source)
    check_there(source)
    from analysis import trace_report

    if format == "fedscale":
        from testbed.emulation.traces.conversion import fedscale

        clients = fedscale.read(source)
        if fedscale.is_capacity(clients):
            _write_capacity(*fedscale.capacity_table(clients, str(source)), out)
            return
        trace, counts = fedscale.behaviour_trace(clients, str(source), options["--outside"] or "repeat")
    else:
        trace, counts = _converted(format, source, options, round_s)
    trace.write(out)
    echo(trace_report.counts_text(counts), nl=False)
    if short := counts.get("devices_seen_for_less_than_half_the_horizon"):
        messages().print(
            f"note: {short} of {len(trace)} devices have intervals in less than half of the horizon, and are offline "
            "in the rest; if they were not recorded there, give --recorded-from-column and "
            "--recorded-until-column, or --outside repeat",
            markup=False,
        )
    summarise(trace, out)


def _converted(
    format: str, source: Path, options: Mapping[str, Any], round_s: float
) -> "tuple[AvailabilityTrace, Counts]":
    from testbed.emulation.traces.conversion import csv_intervals, failure_archive, flash, flhetbench, matrix, spot

    if format == "matrix":
        return matrix.convert(source, round_s)
    if format == "csv":
        from testbed.emulation.traces.timestamps import TIME_UNITS

        client, begin, end = (options[f"--{name}-column"] for name in ("client", "from", "until"))
        unit = None if options["--unit"] is None else one_of("--unit", options["--unit"], TIME_UNITS)
        recorded = options["--recorded-from-column"], options["--recorded-until-column"]
        if (recorded[0] is None) != (recorded[1] is None):
            raise ExperimentError("--recorded-from-column, --recorded-until-column: give both, or none")
        columns = None if recorded[0] is None else recorded
        return csv_intervals.convert(
            source,
            client,
            begin,
            end,
            unit,
            recorded_columns=columns,
            outside=options["--outside"],
            form=table_form(options),
            skip_incomplete=bool(options["--skip-incomplete"]),
        )
    outside: Outside = options["--outside"] or "repeat"
    if format == "flhetbench":
        check_there(options["--timers"])
        return flhetbench.convert(source, options["--timers"], outside)
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
