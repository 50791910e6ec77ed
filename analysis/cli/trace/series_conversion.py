"""``testbed trace convert --kind bandwidth``, ``latency``, ``loss``: one number over time."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.cli.trace.format_options import SERIES, check_options, check_there, one_of, table_form
from analysis.cli.trace.output import check_target, check_target_folder, seconds
from testbed.cli.terminal import echo, messages
from testbed.errors import ExperimentError

if TYPE_CHECKING:
    from testbed.emulation.traces.conversion.csv_series import SeriesColumns
    from testbed.emulation.traces.series import Kind

_SUFFIXES = (".txt", ".csv", ".tsv", ".log")


def convert_series(
    source: Path, name: str, format: str | None, options: Mapping[str, Any], out: Path, force: bool
) -> None:
    """Convert a file or folder of one series or several, and print the numbers of rows that were kept and dropped.

    Args:
        source: the file or folder.
        name: of the kind.
        format: of the source; None: detected.
        options: values by name; None: not set.
        out: the file or folder to write.
        force: overwrite it.

    Raises:
        ExperimentError, TraceError: (one line) for wrong options or data.
    """
    from analysis import trace_report
    from testbed.emulation.traces.conversion import series_formats
    from testbed.emulation.traces.series import BANDWIDTH, KINDS, ROWS_NOTE

    kind = KINDS[name]
    formats = {
        format_name: reads for format_name, reads in SERIES.items() if format_name == "csv" or name == "bandwidth"
    }
    match, split = options["--match"], options["--split-column"]
    has_columns = options["--time-column"] is not None or options["--value-column"] is not None
    if source.exists() and format in (None, *formats):
        series_formats.refuse_traces(source, match, kind, has_columns=has_columns or format == "mahimahi")
    if format is None:
        check_there(source)
        format = series_formats.detect_format(source, match, kind)
    check_options(format, options, formats, name)
    chosen = one_of("--from", format, series_formats.FORMATS)
    bin_s = seconds(options["--bin"], "--bin") if options["--bin"] is not None else None
    columns = _columns(kind, options) if format == "csv" else None
    if match is not None and not source.is_dir():
        raise ExperimentError(f"--match: has no effect with a file; {source} is one")
    check_there(source)
    into_folder = source.is_dir() or split is not None
    if into_folder:
        why = f"{source} is a folder" if source.is_dir() else "--split-column makes several traces"
        check_target_folder(out, force, source, why, _SUFFIXES)
    else:
        check_target(out, force, source, _SUFFIXES)
    converter = series_formats.converter(kind, chosen, columns, bin_s)
    traces, counts = series_formats.convert_all(source, match, out, kind, converter, into_folder=into_folder)
    echo(trace_report.counts_text(counts), nl=False)
    if columns is not None and not columns.average_repeated and counts["rows_with_repeated_times"]:
        messages().print(f"note: {_repeated_note(counts, split)}", markup=False)
    if columns is not None and kind is BANDWIDTH and options["--rows"] is None:
        messages().print(f"note: {ROWS_NOTE.format('--rows interval-before')}", markup=False)
    echo(f"{out}: {traces} {'traces' if traces > 1 else 'trace'} of {name}, {kind.unit}, read as {format}")


def _repeated_note(counts: Mapping[str, int], split: str | None) -> str:
    """Return a note on rows that were averaged without an option that asks for it."""
    rows = f"{counts['rows_with_repeated_times']} of {counts['rows']} rows"
    several = "" if split else "if they are of several runs or clients, --split-column NAME makes a trace of each; "
    return (
        f"{rows} have the time of the row before, and the mean of rows with one time was taken; {several}"
        "--average-repeated confirms the mean"
    )


def _columns(kind: "Kind", options: Mapping[str, Any]) -> "SeriesColumns":
    from testbed.emulation.traces.conversion import csv_series

    unit = one_of("--unit", options["--unit"], tuple(csv_series.UNITS[kind.name]))
    if options["--round-trip"] and kind.name != "latency":
        raise ExperimentError(f"--round-trip: has no effect with --kind {kind.name}; leave it out")
    return csv_series.SeriesColumns(
        time=options["--time-column"],
        value=options["--value-column"],
        unit=unit,
        time_unit=options["--time-unit"],
        rows=options["--rows"] or "until-next",
        round_trip=bool(options["--round-trip"]),
        split=options["--split-column"],
        average_repeated=bool(options["--average-repeated"]),
        form=table_form(options),
    )
