"""``testbed trace``: availability traces made, inspected and recorded."""

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from testbed.commands.invocation import Debug, argument, examples, flag, group, option
from testbed.commands.terminal import echo, messages
from testbed.errors import ExperimentError, TraceError

if TYPE_CHECKING:
    from testbed.emulation.traces.conversion.collector import Counts
    from testbed.emulation.traces.intervals import AvailabilityTrace

TRACE_EPILOG = examples(
    "testbed trace convert cached_timers.json --from phone-intervals --out phones.parquet",
    "testbed trace inspect phones.parquet --out phones.png",
    "testbed trace record runs/lotto --out dropouts.parquet",
)
_CONVERT_EPILOG = examples(
    "testbed trace convert cached_timers.json --from phone-intervals --out phones.parquet",
    "testbed trace convert state_traces.json --from flash --out phones.parquet",
    "testbed trace convert client_behave_trace --from fedscale --out fedscale.parquet",
    "testbed trace convert client_device_capacity --from fedscale --out capacity.csv",
    "testbed trace convert rounds.npy --from matrix --round-seconds 5min --out rounds.parquet",
    "testbed trace convert log.csv --from csv --client-column phone --from-column begin --until-column end --unit min "
    "--out log.parquet",
)
_INSPECT_EPILOG = examples(
    "testbed trace inspect phones.parquet",
    "testbed trace inspect phones.parquet --out figures/phones.png",
    "testbed trace inspect bandwidth-3g --format json",
)
_SYNTHESIZE_EPILOG = examples(
    "testbed trace synthesize --model markov --set mean_online_s=600 --set mean_offline_s=5400 "
    "--clients 1000 --horizon 7d --seed 1 --out markov.parquet",
    "testbed trace synthesize --model bernoulli --set unavailable=0.3 --round-seconds 5min "
    "--clients 100 --horizon 12h --seed 1 --out rounds.csv",
)
_RECORD_EPILOG = examples(
    "testbed trace record runs/lotto --out dropouts.parquet",
    "testbed run experiment.yaml --set selection.protocol=random --set selection.recorded=dropouts.parquet "
    "--set availability.model=schedule --set availability.path=dropouts.parquet",
    then="Under the schedule the same clients drop out in the same rounds and stages.",
)

trace = group(
    name="trace",
    help="Synthesize, convert, inspect and record traces: who is online when, and who dropped out.",
    epilog=TRACE_EPILOG,
)

Out = Annotated[Path, option("FILE", "What to write: .parquet or .csv.")]
Force = Annotated[bool, flag("Overwrite the file if it is there.", "--force")]
RoundSeconds = Annotated[str | None, option("DURATION", "How long a round lasts, e.g. 300, 5min.")]


@trace.command(epilog=_CONVERT_EPILOG)
def convert(
    source: Annotated[Path, argument("SOURCE", "The file to convert.")],
    format: Annotated[
        Literal["phone-intervals", "flash", "fedscale", "matrix", "csv"],
        typer.Option("--from", help="What the file is."),
    ],
    out: Out,
    outside: Annotated[
        Literal["repeat", "offline"] | None,
        typer.Option(
            help="Outside its own recording a device does the same again, as in FLASH and FedScale (repeat), or is "
            "offline. (phone-intervals, flash, fedscale)  \\[default: repeat]"
        ),
    ] = None,
    round_seconds: RoundSeconds = None,
    client_column: Annotated[str | None, option("NAME", "The column that says whose interval it is. (csv)")] = None,
    from_column: Annotated[str | None, option("NAME", "The column with the start of the interval. (csv)")] = None,
    until_column: Annotated[str | None, option("NAME", "The column with its end. (csv)")] = None,
    unit: Annotated[
        Literal["s", "ms", "min", "h"] | None, typer.Option(help="The unit of both. (csv)  \\[default: s]")
    ] = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Convert availability data of other projects, and print what was kept and what was dropped.

    FedScale's file of device capacities becomes a table for the `devices` and `links` of experiments.
    """
    given = {
        "--outside": outside,
        "--round-seconds": round_seconds,
        "--client-column": client_column,
        "--from-column": from_column,
        "--until-column": until_column,
        "--unit": unit,
    }
    _check_options(format, given)
    round_s = seconds(round_seconds, "--round-seconds") if round_seconds is not None else 0.0
    _check_target(out, force, source)
    if not source.exists():
        raise TraceError(f"{source}: no such file")
    from analysis import trace_report

    if format == "fedscale":
        from testbed.emulation.traces.conversion import fedscale

        clients = fedscale.read(source)
        if fedscale.is_capacity(clients):
            _write_capacity(*fedscale.capacity(clients, str(source)), out)
            return
        found, counts = fedscale.behaviour(clients, str(source), outside or "repeat")
    else:
        found, counts = _converted(format, source, given, round_s)
    found.write(out)
    echo(trace_report.counts_text(counts), nl=False)
    _summarise(found, out)


def _converted(format: str, source: Path, given: dict[str, Any], round_s: float) -> "tuple[AvailabilityTrace, Counts]":
    from testbed.emulation.traces.conversion import csv_intervals, flash, matrix
    from testbed.emulation.traces.conversion.collector import Outside

    if format == "matrix":
        return matrix.convert(source, round_s)
    if format == "csv":
        client, begin, end = (given[f"--{name}-column"] for name in ("client", "from", "until"))
        return csv_intervals.convert(source, client, begin, end, given["--unit"] or "s")
    outside: Outside = given["--outside"] or "repeat"
    convert = flash.convert_timers if format == "phone-intervals" else flash.convert_events
    return convert(source, outside)


_READS = {  # the options that a format needs, and those that it may have
    "phone-intervals": ((), ("--outside",)),
    "flash": ((), ("--outside",)),
    "fedscale": ((), ("--outside",)),
    "matrix": (("--round-seconds",), ()),
    "csv": (("--client-column", "--from-column", "--until-column"), ("--unit",)),
}


def _check_options(format: str, given: dict[str, Any]) -> None:
    needed, possible = _READS[format]
    for name, value in given.items():
        if value is None and name in needed:
            raise ExperimentError(f"{name}: needed with --from {format}")
        if value is not None and name not in (*needed, *possible):
            raise ExperimentError(f"{name}: has no effect with --from {format}; leave it out")


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


@trace.command(epilog=_INSPECT_EPILOG)
def inspect(
    file: Annotated[
        Path, argument("TRACE", "An availability trace, a recorded schedule, a bandwidth file or a directory of them.")
    ],
    out: Annotated[Path | None, option("PICTURE.png", "Draw it, as PNG and as PDF.")] = None,
    format: Annotated[Literal["text", "json"], typer.Option(help="json holds seconds and Mbit/s.")] = "text",
    debug: Debug = False,
) -> None:
    """Print what is in a trace, and draw it: who is online when, how fast links are, who was lost in which round."""
    from analysis import trace_report
    from testbed.emulation.traces.inspection import facts, open_trace

    if out is not None and out.suffix not in ("", ".png", ".pdf"):
        raise ExperimentError(f"--out: {out}: pictures are .png and .pdf")
    traced = open_trace(file)
    found = facts(traced)
    echo(trace_report.render(found, format), nl=False)
    if out is not None:
        from analysis.figures import traces as trace_figures

        for path in trace_figures.draw(traced, out):
            messages().print(str(path))


@trace.command(epilog=_SYNTHESIZE_EPILOG)
def synthesize(
    model: Annotated[
        str, option("NAME", "Availability model: markov, diurnal-weibull, bernoulli, or package.module:Name.")
    ],
    clients: Annotated[int, option("N", "How many clients.", min=1)],
    horizon: Annotated[str, option("DURATION", "How long, e.g. 12h, 7d.")],
    seed: Annotated[int, option("S", "The same seed gives the same trace.", min=0)],
    out: Out,
    settings: Annotated[list[str] | None, option("KEY=VALUE", "A key of the model; may be repeated.", "--set")] = None,
    round_seconds: RoundSeconds = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Generate a trace with one of the availability models of experiments."""
    _check_target(out, force)
    horizon_s = seconds(horizon, "--horizon")
    round_s = None if round_seconds is None else seconds(round_seconds, "--round-seconds")
    from testbed.emulation.availability.synthesis import synthesize
    from testbed.experiment.schema import availability_section
    from testbed.randomness import Randomness

    made = synthesize(availability_section(model, settings or []), clients, horizon_s, Randomness(seed), round_s)
    made.write(out)
    _summarise(made, out)


@trace.command(epilog=_RECORD_EPILOG)
def record(
    run: Annotated[Path, argument("RUN", "The directory of a run.")],
    out: Out,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Record who took part and who dropped out in a run, so that the same can happen under another protocol."""
    _check_target(out, force)
    if not run.is_dir():
        raise ExperimentError(f"{run}: no such directory")
    if next(run.rglob("experiment.yaml"), None) is None:
        raise ExperimentError(f"{run}: no runs here; `testbed run EXPERIMENT.yaml` makes some")
    from analysis import trace_report
    from testbed.emulation.traces.inspection import describe_schedule
    from testbed.records import find_runs
    from testbed.records.reader import recorded_schedule

    runs = find_runs(run)
    if len(runs) > 1:
        names = ", ".join(str(one.path) for one in runs[:3])
        raise ExperimentError(f"{run}: {len(runs)} runs; choose one, e.g. {names}")
    schedule = recorded_schedule(runs[0])
    schedule.write(out)
    echo(trace_report.render(describe_schedule(schedule)), nl=False)
    echo(f"{out}: {len(schedule)} rows")


_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_FORM = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)\s*", re.ASCII)


def seconds(text: str, option: str) -> float:
    """The positive duration that `text` says, in seconds; raises `ExperimentError` that begins with `option`."""
    form = _FORM.fullmatch(text)
    if form and form[2] in _SECONDS:
        value = float(form[1]) * _SECONDS[form[2]]
        if 0 < value < math.inf:
            return value
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    raise ExperimentError(f"{option}: {shown!r} is no duration; write e.g. 90, 90s, 5min, 12h or 7d")


def _check_target(out: Path, force: bool, source: Path | None = None) -> None:
    if out.suffix not in (".parquet", ".csv"):
        raise ExperimentError(f"--out: {out}: the file must end in .parquet or .csv")
    if out.is_dir():
        raise ExperimentError(f"--out: {out}: a directory")
    if source is not None and out.exists() and source.exists() and out.samefile(source):
        raise ExperimentError(f"--out: {out}: the source itself; write somewhere else")
    if out.exists() and not force:
        raise ExperimentError(f"--out: {out}: is there already; --force overwrites it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"--out: {out.parent}: cannot be made: {error.strerror}") from None


def _summarise(written: "AvailabilityTrace", out: Path) -> None:
    from analysis import trace_report

    never = len(written.never_online)
    if never and out.suffix == ".csv":
        messages().print(
            f"note: CSV has no place for the {never} clients that are never online, nor for the horizon; .parquet has",
            markup=False,
        )
    length = trace_report.duration(written.horizon_s)
    echo(f"{out}: {len(written)} clients, {len(written.online_from_s)} intervals, {length}")
