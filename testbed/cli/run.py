"""``testbed run``: run an experiment file, and print the overhead table."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from testbed.cli.invocation import (
    NO_ROUND_COMPLETED,
    Debug,
    ExperimentFile,
    Invocation,
    Overrides,
    Quiet,
    examples,
    flag,
    option,
    verb,
    yaml_quote,
)
from testbed.cli.terminal import Console, echo, messages
from testbed.errors import ExperimentError, TestbedError
from testbed.plugins.services import service
from testbed.signals import stop_code

if TYPE_CHECKING:
    from testbed.records import RunRecords

RUN_EPILOG = examples(
    "testbed run examples/quickstart.yaml --out runs/quickstart",
    "testbed run examples/quickstart.yaml --set rounds=50",
    "testbed run experiment.yaml --network in-process --set population=20",
    "testbed run experiment.yaml --address HEAD:6379 --hosts 64",
    "testbed run experiment.yaml --set cluster.parallel_runs=4",
    "testbed run experiment.yaml --out s3://bucket/runs/long",
    "testbed run experiment.yaml --out runs/long --resume",
    "testbed run experiment.yaml --out runs/long --resume --set rounds=200",
    "testbed run experiment.yaml --observe tensorboard --observe csv",
    then="Ctrl-C stops a run and keeps its finished rounds; --resume continues it.",
)


@verb(RUN_EPILOG, imports=True)
def run(
    context: typer.Context,
    file: ExperimentFile,
    overrides: Overrides = None,
    out: Annotated[
        str | None,
        option("DIR|URI", "Directory or URI of the run or sweep; default: runs/ and the experiment's name."),
    ] = None,
    address: Annotated[str | None, option("RAY", "Address of a running Ray cluster; default: start Ray here.")] = None,
    network: Annotated[
        Literal["ray", "in-process"] | None,
        typer.Option(help="in-process: no Ray, everything in this process, for debugging."),
    ] = None,
    hosts: Annotated[str | None, option("N|auto", "Processes that hold the clients; auto: one per CPU.")] = None,
    resume: Annotated[
        bool,
        flag(
            "Resume existing runs; finished runs stay unchanged, or get more rounds (--set rounds=N).",
            "--resume",
        ),
    ] = False,
    accept_changed_code: Annotated[
        bool,
        flag(
            "Resume even if modules of user-defined classes have changed since the run began; this is recorded.",
            "--accept-changed-code",
        ),
    ] = False,
    observe: Annotated[
        list[str] | None,
        option(
            "NAME",
            "Also write each round to csv, tensorboard, mlflow, wandb, or package.module:Class; may be repeated.",
            "--observe",
        ),
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run an experiment, or all points of its sweep, several at a time if resources allow; print the overhead table.

    Points on the wall clock, and those without Ray, run one after the other. The exit code is 4 if no round of any run
    has completed, unless a server or clients misbehave (`adversary`): then this may be the result.
    """
    if accept_changed_code and not resume:
        raise ExperimentError("--accept-changed-code: needs --resume; give --resume, too")
    flags = {"address": address, "network": network, "hosts": hosts}
    cluster_overrides = [
        f"cluster.{key}={value if key == 'hosts' else yaml_quote(value)}"
        for key, value in flags.items()
        if value is not None
    ]
    from testbed.experiment import load

    experiment = load(file, [*(overrides or []), *cluster_overrides])
    if observe:
        from testbed.experiment.sections import observer_and_options
        from testbed.running.execution import with_values

        named = experiment.output.observers
        listed = {observer_and_options(entry)[0] for entry in named}
        more = [name for name in dict.fromkeys(observe) if name not in listed]
        experiment = with_values(experiment, {"output.observers": [*named, *more]}, str(file))
    console = messages()
    try:
        # These imports take seconds.
        from testbed.cli.progress import display_for
        from testbed.records.mirror import local_staging_dir
        from testbed.running import default_directory, run_all

        where = out or default_directory(experiment)
        directory = local_staging_dir(where)
        with display_for(console, quiet) as observer:
            paths = run_all(
                experiment,
                directory,
                where=str(file),
                resume=resume,
                observer=observer,
                accept_changed_code=accept_changed_code,
            )
        if not quiet:
            console.print()
        from testbed.running import runs_below

        runs = runs_below(paths)
        _print_table(runs, observer.summaries, where, console)
        _require_a_completed_round(runs, console)
    except KeyboardInterrupt:
        invocation: Invocation = context.obj
        console.print(f"stopped; resume with: {invocation.resume_command_line}")
        raise typer.Exit(stop_code()) from None


def _print_table(
    runs: "list[RunRecords]", summaries: Mapping[Path, Mapping[str, Any]], where: str | Path, console: Console
) -> None:
    """Print the overhead table, with the given summaries of runs that have just ended."""
    try:
        echo(service("results.table")(runs, summaries), nl=False)
    except TestbedError as error:  # all runs have records, but the baseline may be ambiguous
        console.print(f"no table: {error}; see `testbed compare --help`")
    console.print(f"\nrecords: {where}")


def _require_a_completed_round(runs: "list[RunRecords]", console: Console) -> None:
    """Print which runs have no completed round, and exit with `NO_ROUND_COMPLETED` if no run has one.

    In a sweep, a point without a completed round may be a result (the dropout rate at which nothing works), as may
    refusals of all rounds under a misbehaviour. Neither is a failure of the command; both get a note.
    """
    from testbed.records.reader import format_end_reasons

    failed = [run for run in runs if run.rounds["outcome"].ne("completed").all()]
    if not failed:
        return
    first = failed[0]
    diverged: str = service("results.diverged")(first)
    why = (
        diverged or format_end_reasons(zip(first.rounds["outcome"], first.rounds["reason"], strict=True)) or "no rounds"
    )
    if len(failed) < len(runs) or any(run.has_misbehaviour for run in failed):
        example = f"e.g. {first.label}: {why}" if len(failed) > 1 else f"{first.label}: {why}"
        console.print(f"note: no round completed in {len(failed)} of {len(runs)} runs ({example})", markup=False)
        return
    among = f"{first.label}: no round completed" if len(runs) == 1 else f"no round completed in any of {len(runs)} runs"
    message = f"{among}: {why}" if len(runs) == 1 else f"{among}, e.g. {first.label}: {why}"
    console.print(Text.assemble(("error: ", "bold red"), message))
    raise typer.Exit(NO_ROUND_COMPLETED)
