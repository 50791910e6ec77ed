"""The `testbed` command, a thin layer over the library: which verbs there are, and in which groups help lists them."""

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
from testbed.commands.listing import LIST_EPILOG, list_
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
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
RUNNING, LOOKING, ATTACKS = "Run", "Look at results", "Attack and bound"
TRACES, CLUSTER = "Traces and costs", "Clusters"

app.command(epilog=RUN_EPILOG, rich_help_panel=RUNNING)(run)
app.command(epilog=VALIDATE_EPILOG, rich_help_panel=RUNNING)(validate)
app.command("list", epilog=LIST_EPILOG, rich_help_panel=RUNNING)(list_)
app.command(epilog=STATUS_EPILOG, rich_help_panel=RUNNING)(reads_records(status))
app.command(epilog=TUNE_EPILOG, rich_help_panel=RUNNING)(tune)
app.command(epilog=SCHEMA_EPILOG, rich_help_panel=RUNNING)(schema)

app.command(epilog=COMPARE_EPILOG, rich_help_panel=LOOKING)(reads_records(compare))
app.command(epilog=PLOT_EPILOG, rich_help_panel=LOOKING)(reads_records(plot))
app.command(epilog=DROPOUTS_EPILOG, rich_help_panel=LOOKING)(reads_records(dropouts))
app.command(epilog=METRICS_EPILOG, rich_help_panel=LOOKING)(reads_records(metrics))
app.command(epilog=PRIVACY_EPILOG, rich_help_panel=LOOKING)(reads_records(privacy))
app.command(epilog=REPRODUCE_EPILOG, rich_help_panel=LOOKING)(reproduce)

attack.command(epilog=SURVEY_EPILOG)(survey)
attack.command(epilog=RECONSTRUCT_EPILOG)(reads_records(reconstruct))
attack.command(epilog=INVERT_EPILOG)(reads_records(invert))
app.add_typer(attack, rich_help_panel=ATTACKS)
bound.command("random-participation", epilog=BOUND_RANDOM_PARTICIPATION_EPILOG)(bound_random_participation)
bound.command("verifiable-batch-partition", epilog=VERIFIABLE_EPILOG)(bound_verifiable)
bound.command("privacy", epilog=BOUND_PRIVACY_EPILOG)(bound_privacy)
bound.command("batch-partition", epilog=BATCH_PARTITION_EPILOG)(bound_batch_partition)
app.add_typer(bound, rich_help_panel=ATTACKS)
app.add_typer(plan, rich_help_panel=ATTACKS)

app.add_typer(trace, rich_help_panel=TRACES)
app.command(epilog=CALIBRATE_EPILOG, rich_help_panel=TRACES)(calibrate)

app.add_typer(cluster, rich_help_panel=CLUSTER)
app.command(epilog=SUBMIT_EPILOG, rich_help_panel=CLUSTER)(submit)
app.add_typer(jobs, rich_help_panel=CLUSTER)


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
