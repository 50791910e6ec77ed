"""The `testbed` command, a thin layer over the library: which verbs there are, and in which groups help lists them."""

import atexit
import gc
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from testbed.cli import (
    attack,
    attack_inference,
    bound,
    bound_batches,
    bound_committee,
    bound_correlated,
    bound_participation,
    calibrate,
    cluster,
    compare,
    data,
    flower,
    jobs,
    listing,
    new,
    plot,
    privacy,
    report,
    reproduce,
    results,
    run,
    status,
    timeline,
    trace,
    tune,
    validation,
)
from testbed.cli.invocation import Invocation, examples, option, report_error, runs_code
from testbed.cli.terminal import echo
from testbed.plugins.classes import importing_classes
from testbed.signals import stopping_on_signals
from testbed.version import VERSION

_EPILOG = examples(
    "testbed validate examples/quickstart.yaml",
    "testbed run examples/quickstart.yaml --out runs/quickstart",
    "testbed compare runs/quickstart --format markdown",
    "testbed plot runs/quickstart --out figures",
    then="Exit codes: 0 done, 2 bad input, 3 run failed, 4 no round completed, 130 stopped (by signal: 129, 143).",
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

app.command(epilog=run.RUN_EPILOG, rich_help_panel=RUNNING)(runs_code(run.run))
app.command(epilog=validation.VALIDATE_EPILOG, rich_help_panel=RUNNING)(validation.validate)
app.add_typer(data.data, rich_help_panel=RUNNING)
app.command("list", epilog=listing.LIST_EPILOG, rich_help_panel=RUNNING)(runs_code(listing.list_))
app.command(epilog=new.NEW_EPILOG, rich_help_panel=RUNNING)(new.new)
app.command(epilog=flower.FLOWER_EPILOG, rich_help_panel=RUNNING)(runs_code(flower.flower))
app.command(epilog=status.STATUS_EPILOG, rich_help_panel=RUNNING)(status.status)
app.command(epilog=tune.TUNE_EPILOG, rich_help_panel=RUNNING)(runs_code(tune.tune))
app.command(epilog=validation.SCHEMA_EPILOG, rich_help_panel=RUNNING)(validation.schema)

app.command(epilog=compare.COMPARE_EPILOG, rich_help_panel=LOOKING)(compare.compare)
app.command(epilog=plot.PLOT_EPILOG, rich_help_panel=LOOKING)(plot.plot)
app.command(epilog=report.REPORT_EPILOG, rich_help_panel=LOOKING)(report.report)
app.command(epilog=results.DROPOUTS_EPILOG, rich_help_panel=LOOKING)(results.dropouts)
app.command(epilog=results.METRICS_EPILOG, rich_help_panel=LOOKING)(results.metrics)
app.command(epilog=privacy.PRIVACY_EPILOG, rich_help_panel=LOOKING)(privacy.privacy)
app.command(epilog=timeline.TIMELINE_EPILOG, rich_help_panel=LOOKING)(timeline.timeline)
app.command(epilog=reproduce.REPRODUCE_EPILOG, rich_help_panel=LOOKING)(reproduce.reproduce)

bound.bound.command("random-participation", epilog=bound.BOUND_RANDOM_PARTICIPATION_EPILOG)(
    bound.bound_random_participation
)
bound.bound.command("verifiable-batch-partition", epilog=bound_batches.VERIFIABLE_EPILOG)(
    bound_batches.bound_verifiable
)
bound.bound.command("committee", epilog=bound_committee.BOUND_EPILOG)(bound_committee.bound_committee)
bound.bound.command("correlated", epilog=bound_correlated.EPILOG)(bound_correlated.bound_correlated)
bound.bound.command("participation", epilog=bound_participation.EPILOG)(bound_participation.bound_participation)
bound.plan.command("batch-partition", epilog=bound_batches.PLAN_EPILOG)(bound_batches.plan_batch_partition)
bound.plan.command("committee", epilog=bound_committee.PLAN_EPILOG)(bound_committee.plan_committee)
bound.bound.command("privacy", epilog=privacy.BOUND_PRIVACY_EPILOG)(privacy.bound_privacy)
bound.bound.command("batch-partition", epilog=bound.BATCH_PARTITION_EPILOG)(bound.bound_batch_partition)
attack.attack.command("membership", epilog=attack_inference.MEMBERSHIP_EPILOG)(attack_inference.membership)
attack.attack.command("property", epilog=attack_inference.PROPERTY_EPILOG)(attack_inference.property_)
app.add_typer(attack.attack, rich_help_panel=ATTACKS)
app.add_typer(bound.bound, rich_help_panel=ATTACKS)
app.add_typer(bound.plan, rich_help_panel=ATTACKS)

app.add_typer(trace.trace, rich_help_panel=TRACES)
app.command(epilog=calibrate.CALIBRATE_EPILOG, rich_help_panel=TRACES)(calibrate.calibrate)

app.add_typer(cluster.cluster, rich_help_panel=CLUSTER)
app.command(epilog=jobs.SUBMIT_EPILOG, rich_help_panel=CLUSTER)(jobs.submit)
app.add_typer(jobs.jobs, rich_help_panel=CLUSTER)


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"testbed {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[
        bool, option("", "Print the version and exit.", "--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        echo(context.get_help())
        raise typer.Exit(2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (default: those of this process); returns the exit code, never raises.

    0: done; 2: bad input; 3: the run failed; 4: no round completed; 130, 143, 129: stopped by SIGINT, SIGTERM, SIGHUP.
    """
    if arguments is None:  # the process ends with it
        atexit.register(_end_sooner)
    invocation = Invocation(tuple(sys.argv[1:] if arguments is None else arguments))
    try:
        with stopping_on_signals(), importing_classes(False):  # but for `runs_code` and --import-classes
            return _invoked(invocation)
    except (Exception, KeyboardInterrupt) as error:
        return report_error(error, invocation)


def _end_sooner() -> None:
    """Python need not look through torch for circles: half a second. What is left then, triton calls a leak."""
    if "triton" not in sys.modules:
        gc.freeze()


def _invoked(invocation: Invocation) -> int:
    try:
        code = app(args=list(invocation.arguments), prog_name="testbed", standalone_mode=False, obj=invocation)
        sys.stdout.flush()
    except SystemExit as end:  # typer's, when the reader of our output has gone
        return end.code if isinstance(end.code, int) else 1
    return code if isinstance(code, int) else 0
