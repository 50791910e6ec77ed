"""The `testbed` command, a thin layer over the library.

Commands: `run`, `tune`, `status`, `validate`, `schema`, `compare`, `plot`, `dropouts`, `metrics`, `privacy`,
`reproduce`, `attack`, `trace`, `submit`, `jobs`, `calibrate`, `cluster`, `bound`, `plan`.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from testbed.commands.attack import (
    INVERT_EPILOG,
    RECONSTRUCT_EPILOG,
    SURVEY_EPILOG,
    attack,
    invert,
    reconstruct,
    survey,
)
from testbed.commands.bound import (
    BATCH_PARTITION_EPILOG,
    BOUND_RANDOM_PARTICIPATION_EPILOG,
    VERIFIABLE_EPILOG,
    bound,
    bound_batch_partition,
    bound_random_participation,
    bound_verifiable,
    plan,
)
from testbed.commands.calibrate import CALIBRATE_EPILOG, calibrate
from testbed.commands.cluster import cluster
from testbed.commands.invocation import Invocation, examples, reads_records, report
from testbed.commands.jobs import SUBMIT_EPILOG, jobs, submit
from testbed.commands.reproduce import REPRODUCE_EPILOG, reproduce
from testbed.commands.results import (
    BOUND_PRIVACY_EPILOG,
    COMPARE_EPILOG,
    DROPOUTS_EPILOG,
    METRICS_EPILOG,
    PLOT_EPILOG,
    PRIVACY_EPILOG,
    bound_privacy,
    compare,
    dropouts,
    metrics,
    plot,
    privacy,
)
from testbed.commands.run import RUN_EPILOG, run
from testbed.commands.status import STATUS_EPILOG, status
from testbed.commands.terminal import echo
from testbed.commands.trace import trace
from testbed.commands.tune import TUNE_EPILOG, tune
from testbed.commands.validation import SCHEMA_EPILOG, VALIDATE_EPILOG, schema, validate
from testbed.signals import stopping_on_signals
from testbed.version import VERSION

_EPILOG = examples(
    "testbed validate examples/quickstart.yaml",
    "testbed run examples/quickstart.yaml --out runs/quickstart",
    "testbed compare runs/quickstart --format markdown",
    "testbed plot runs/quickstart --out figures",
    then="Exit codes: 0 done, 2 bad input, 3 run failed, 130 stopped (Ctrl-C).",
)

app = typer.Typer(
    name="testbed",
    help="Emulate secure participant selection in federated learning, and measure what it costs.",
    epilog=_EPILOG,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.command(epilog=RUN_EPILOG)(run)
app.command(epilog=TUNE_EPILOG)(tune)
app.command(epilog=STATUS_EPILOG)(reads_records(status))
app.command(epilog=VALIDATE_EPILOG)(validate)
app.command(epilog=SCHEMA_EPILOG)(schema)
app.command(epilog=COMPARE_EPILOG)(reads_records(compare))
app.command(epilog=PLOT_EPILOG)(reads_records(plot))
app.command(epilog=DROPOUTS_EPILOG)(reads_records(dropouts))
app.command(epilog=METRICS_EPILOG)(reads_records(metrics))
app.command(epilog=PRIVACY_EPILOG)(reads_records(privacy))
app.command(epilog=REPRODUCE_EPILOG)(reproduce)
attack.command(epilog=SURVEY_EPILOG)(survey)
attack.command(epilog=RECONSTRUCT_EPILOG)(reads_records(reconstruct))
attack.command(epilog=INVERT_EPILOG)(reads_records(invert))
app.add_typer(attack)
app.add_typer(trace)
app.command(epilog=SUBMIT_EPILOG)(submit)
app.add_typer(jobs)
app.command(epilog=CALIBRATE_EPILOG)(calibrate)
app.add_typer(cluster)
bound.command("random-participation", epilog=BOUND_RANDOM_PARTICIPATION_EPILOG)(bound_random_participation)
bound.command("verifiable-batch-partition", epilog=VERIFIABLE_EPILOG)(bound_verifiable)
bound.command("privacy", epilog=BOUND_PRIVACY_EPILOG)(bound_privacy)
bound.command("batch-partition", epilog=BATCH_PARTITION_EPILOG)(bound_batch_partition)
app.add_typer(bound)
app.add_typer(plan)


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"testbed {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        echo(context.get_help())
        raise typer.Exit(2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (default: those of this process); returns the exit code, never raises.

    0: done; 2: bad input; 3: the run failed; 130: stopped by SIGINT or SIGTERM.
    """
    invocation = Invocation(tuple(sys.argv[1:] if arguments is None else arguments))
    try:
        with stopping_on_signals():
            return _invoked(invocation)
    except (Exception, KeyboardInterrupt) as error:
        return report(error, invocation)


def _invoked(invocation: Invocation) -> int:
    try:
        code = app(args=list(invocation.arguments), prog_name="testbed", standalone_mode=False, obj=invocation)
        sys.stdout.flush()
    except SystemExit as end:  # typer's, when the reader of our output has gone
        return end.code if isinstance(end.code, int) else 1
    return code if isinstance(code, int) else 0
