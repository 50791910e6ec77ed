"""``testbed trace``: traces synthesized, converted, inspected and recorded."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from analysis.cli.trace.conversion import CONVERT_EPILOG, convert
from analysis.cli.trace.output import Force, Out, RoundSeconds, check_target, seconds, summarise
from testbed.cli.invocation import Debug, argument, examples, group, option
from testbed.cli.terminal import echo, messages
from testbed.errors import ExperimentError

TRACE_EPILOG = examples(
    "testbed trace convert cached_timers.json --from phone-intervals --out phones.parquet",
    "testbed trace inspect phones.parquet --out phones.png",
    "testbed trace record runs/lotto --out dropouts.parquet",
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
    then="Another run with this schedule has the same dropouts in the same rounds and stages.",
)

trace = group(
    name="trace",
    help="Synthesize, convert, inspect and record traces: when clients are online, and which drop out.",
    epilog=TRACE_EPILOG,
)

trace.command(epilog=CONVERT_EPILOG)(convert)


@trace.command(epilog=_INSPECT_EPILOG)
def inspect(
    file: Annotated[
        Path,
        argument("TRACE", "An availability trace, a schedule, a file of bandwidth, latency or loss, or a directory."),
    ],
    out: Annotated[Path | None, option("PICTURE.png", "Also draw the trace, as PNG and PDF.")] = None,
    format: Annotated[Literal["text", "json"], typer.Option(help="json holds seconds and Mbit/s.")] = "text",
    rows: Annotated[
        Literal["until-next", "interval-before"] | None,
        typer.Option(
            help="Meaning of a row of bandwidth, latency or loss, as in an experiment: it holds until the next row, or "
            "was measured since the row before, as in Pensieve's files.  \\[default: until-next]"
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Print the facts of a trace, and draw it: clients online, speed of links, or clients lost by round.

    Names of clients, or of files, follow (json: `names`) if there are any.
    """
    from analysis import trace_report
    from testbed.emulation.traces.inspection import facts, names_of, open_trace
    from testbed.emulation.traces.series import ROWS_NOTE, RateSeries, folders_in

    if out is not None and out.suffix not in ("", ".png", ".pdf"):
        raise ExperimentError(f"--out: {out}: pictures are .png and .pdf")
    traced = open_trace(file, rows or "until-next")
    echo(trace_report.render(facts(traced), format, names_of(traced)), nl=False)
    if folders := folders_in(file):
        messages().print(f"note: files in its folders are not read, e.g. in {folders[0]}", markup=False)
    if isinstance(traced, RateSeries) and traced.needs_rows and rows is None:
        how = "--rows interval-before here, and `rows: interval-before` in an experiment"
        messages().print(f"note: {ROWS_NOTE.format(how)}", markup=False)
    if out is not None:
        from analysis import trace_figures

        for path in trace_figures.draw(traced, out):
            messages().print(str(path))


@trace.command(epilog=_SYNTHESIZE_EPILOG)
def synthesize(
    model: Annotated[
        str, option("NAME", "Availability model: markov, diurnal-weibull, bernoulli, or package.module:Name.")
    ],
    clients: Annotated[int, option("N", "Number of clients.", min=1)],
    horizon: Annotated[str, option("DURATION", "Duration of the trace, e.g. 12h, 7d.")],
    seed: Annotated[int, option("S", "Random seed of the trace.", min=0)],
    out: Out,
    settings: Annotated[list[str] | None, option("KEY=VALUE", "A key of the model; may be repeated.", "--set")] = None,
    round_seconds: RoundSeconds = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Generate a trace with one of the availability models of experiments."""
    check_target(out, force)
    horizon_s = seconds(horizon, "--horizon")
    round_s = None if round_seconds is None else seconds(round_seconds, "--round-seconds")
    from testbed.emulation.availability.synthesis import synthesize
    from testbed.experiment.availability import availability_section
    from testbed.randomness import Randomness

    made = synthesize(availability_section(model, settings or []), clients, horizon_s, Randomness(seed), round_s)
    made.write(out)
    summarise(made, out)


@trace.command(epilog=_RECORD_EPILOG)
def record(
    run: Annotated[Path, argument("RUN", "The directory of a run.")],
    out: Out,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Record the participants and dropouts of a run, so that they can be repeated under another protocol."""
    check_target(out, force)
    if not run.is_dir():
        raise ExperimentError(f"{run}: no such directory")
    if next(run.rglob("experiment.yaml"), None) is None:
        raise ExperimentError(f"{run}: no runs here; create some with `testbed run EXPERIMENT.yaml`")
    from analysis import trace_report
    from testbed.emulation.traces.inspection import describe_schedule
    from testbed.records import find_runs
    from testbed.records.reader import recorded_schedule

    runs = find_runs(run)
    if len(runs) > 1:
        names = ", ".join(str(found_run.path) for found_run in runs[:3])
        raise ExperimentError(f"{run}: {len(runs)} runs; choose one, e.g. {names}")
    if runs[0].experiment.get("asynchronous") is not None:
        raise ExperimentError(
            f"{runs[0].path}: an asynchronous run; a schedule is by rounds, and the clients of an asynchronous run may "
            "have been lost while they trained in an earlier one"
        )
    schedule = recorded_schedule(runs[0])
    schedule.write(out)
    echo(trace_report.render(describe_schedule(schedule)), nl=False)
    echo(f"{out}: {len(schedule)} rows")
