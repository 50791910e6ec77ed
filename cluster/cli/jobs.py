"""``testbed submit`` and ``testbed jobs``: experiments as jobs on a Ray cluster, and the return of their results."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from testbed.cli.invocation import (
    BAD_INPUT,
    FAILED,
    NO_ROUND_COMPLETED,
    Debug,
    ExperimentFile,
    Invocation,
    Overrides,
    argument,
    examples,
    flag,
    group,
    option,
    verb,
)
from testbed.cli.terminal import echo, messages, without_colours
from testbed.display import visible
from testbed.durations import clock_time
from testbed.errors import ExperimentError
from testbed.signals import STOP_CODES, stop_code

if TYPE_CHECKING:
    from cluster.jobs.submission import Job, Jobs

SUBMIT_EPILOG = examples(
    "testbed submit examples/quickstart.yaml --address http://HEAD:8265 --follow",
    "testbed submit experiment.yaml --set rounds=500 --out s3://BUCKET/experiment",
    "testbed submit experiment.yaml --out /shared/runs/long --resume --follow",
    then="A guarded cluster's token is taken from RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token.",
)

Address = Annotated[
    str | None,
    option("URL", "The cluster's dashboard; default: RAY_API_SERVER_ADDRESS, RAY_ADDRESS, else http://127.0.0.1:8265."),
]
To = Annotated[Path | None, option("DIR", "Local directory for results; default: runs/ and the experiment's name.")]


@verb(SUBMIT_EPILOG)
def submit(
    context: typer.Context,
    file: ExperimentFile,
    address: Address = None,
    overrides: Overrides = None,
    out: Annotated[
        str | None,
        option(
            "DIR|URI",
            "Destination of the records: a directory on the head (below its home directory, unless absolute), or "
            "s3://, gs://, hdfs://; default: ~/testbed-runs/ and the experiment's name.",
        ),
    ] = None,
    resume: Annotated[bool, flag("Resume the runs that are at --out.", "--resume")] = False,
    accept_changed_code: Annotated[
        bool,
        flag(
            "With --resume: resume even if the modules of user-defined classes have changed.", "--accept-changed-code"
        ),
    ] = False,
    follow: Annotated[bool, flag("Show progress until the end, then fetch the results.", "--follow")] = False,
    to: To = None,
    on_cluster: Annotated[
        list[Path] | None, option("PATH", "A path of the experiment that is on all nodes: not sent; may be repeated.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Run an experiment as a job on a Ray cluster: its files and this code are uploaded."""
    from testbed.files.names import file_name

    if accept_changed_code and not resume:
        raise ExperimentError("--accept-changed-code: applies to resumed runs only; add --resume")
    console = messages()
    # The following imports take seconds.
    from cluster.jobs import downloads, package
    from cluster.jobs.submission import Jobs, records_at

    with TemporaryDirectory(prefix="testbed-submit-") as folder:
        packed = package.pack(file, overrides or [], Path(folder), on_cluster or ())
        results = to or Path("runs") / file_name(packed.experiment.name)
        if follow and not resume:
            downloads.check_free(results)  # better now than after the run
        where = records_at(out, packed)
        jobs = Jobs(address)
        for note in (*packed.notes, *_differing_ray(jobs.ray_version)):
            console.print(f"note: {note}")
        job = jobs.submit(packed, where, resume, accept_changed_code)
    console.print(f"submitted {job} to {jobs.address}, records: {where}")
    if not follow:
        _print_next_commands(jobs, job)
        echo(job)
        return
    try:
        finished_job = jobs.follow(job, lambda text: echo(without_colours(text), nl=False))
    except KeyboardInterrupt:
        console.print("no longer following; the job continues")
        _print_next_commands(jobs, job)
        raise typer.Exit(stop_code()) from None
    invocation: Invocation = context.obj
    end(finished_job, invocation.resume_command_line)
    console.print(f"results: {jobs.fetch(job, results)}")


def end(job: "Job", resuming: str | None = None) -> None:
    """Report how a job has ended; return only if it has succeeded, else exit with the job's code.

    Args:
        job: a job that has ended.
        resuming: the command that resumes it.
    """
    console = messages()
    if job.state == "SUCCEEDED":
        console.print(f"{job.id}: succeeded")
        return
    hint = f"; resume with: {resuming}" if resuming else "; submit again with --resume"
    hint = "" if job.exit_code in (BAD_INPUT, NO_ROUND_COMPLETED) else hint
    if job.state == "STOPPED":
        console.print(f"{job.id}: stopped{hint}")
        raise typer.Exit(STOP_CODES[0])
    from cluster.jobs.submission import why_failed

    console.print(Text.assemble(("error: ", "bold red"), f"{job.id}: failed: {why_failed(job)}{hint}"))
    raise typer.Exit(job.exit_code if job.exit_code in (BAD_INPUT, NO_ROUND_COMPLETED, *STOP_CODES) else FAILED)


def _differing_ray(cluster_version: str) -> list[str]:
    from importlib.metadata import version

    own_version = version("ray")
    return (
        []
        if own_version == cluster_version
        else [f"the cluster runs Ray {cluster_version}, this machine {own_version}; only the cluster's matters"]
    )


def _print_next_commands(jobs: "Jobs", job: str) -> None:
    console = messages()
    for label, command in (("follow", f"logs {job} --follow"), ("stop", f"stop {job}"), ("results", f"fetch {job}")):
        console.print(f"{f'{label}:':9}testbed jobs {command} --address {jobs.address}")


jobs = group(
    name="jobs",
    help="List, follow and stop the experiments submitted to a Ray cluster, and fetch their results.",
    epilog=examples(
        "testbed jobs list --address http://HEAD:8265",
        "testbed jobs logs quickstart-1f3a9c --follow",
        "testbed jobs stop quickstart-1f3a9c",
        "testbed jobs fetch quickstart-1f3a9c --to runs/quickstart",
    ),
)

Id = Annotated[str, argument("ID", "A job's id, as `testbed submit` prints it.")]


@jobs.command("list", epilog=examples("testbed jobs list --address http://HEAD:8265"))
def list_(
    address: Address = None,
    format: Annotated[Literal["text", "json"], typer.Option(help="json: a list of objects, times in UTC.")] = "text",
    debug: Debug = False,
) -> None:
    """Print the experiments submitted since the cluster's head started, oldest first."""
    from cluster.jobs.submission import Jobs

    experiments = Jobs(address).experiments()
    if format == "json":
        echo(json.dumps([_plain(job) for job in experiments], indent=2))
    elif experiments:
        echo(_table(experiments, datetime.now(UTC)), nl=False)
    else:
        messages().print("no experiments were submitted to this cluster")


@jobs.command(epilog=examples("testbed jobs logs quickstart-1f3a9c --follow"))
def logs(
    id: Id,
    address: Address = None,
    follow: Annotated[bool, flag("Keep printing until the job ends.", "--follow")] = False,
    debug: Debug = False,
) -> None:
    """Print the log of a job; with --follow, exit as the job does."""
    from cluster.jobs.submission import Jobs

    jobs_of_cluster = Jobs(address)
    if not follow:
        echo(without_colours(jobs_of_cluster.logs(id)), nl=False)
        return
    jobs_of_cluster.job(id)  # an unknown id is no lost connection
    try:
        finished_job = jobs_of_cluster.follow(id, lambda text: echo(without_colours(text), nl=False))
    except KeyboardInterrupt:
        messages().print(f"no longer following; the job continues; stop it with: testbed jobs stop {id}")
        raise typer.Exit(stop_code()) from None
    end(finished_job)


@jobs.command(epilog=examples("testbed jobs stop quickstart-1f3a9c"))
def stop(id: Id, address: Address = None, debug: Debug = False) -> None:
    """Stop a job; its finished rounds stay where its records are."""
    from cluster.jobs.submission import Jobs

    jobs_of_cluster = Jobs(address)
    job = jobs_of_cluster.job(id)
    if job.over or not jobs_of_cluster.stop(id):
        messages().print(f"{id}: has ended already ({job.state.lower()})")
    else:
        messages().print(f"{id}: stopping; its finished rounds stay in {job.out}")


@jobs.command(epilog=examples("testbed jobs fetch quickstart-1f3a9c --to runs/quickstart"))
def fetch(id: Id, address: Address = None, to: To = None, debug: Debug = False) -> None:
    """Copy the records of a job that has ended to this machine; print their directory."""
    from cluster.jobs.submission import Jobs
    from testbed.files.names import file_name

    jobs_of_cluster = Jobs(address)
    echo(jobs_of_cluster.fetch(id, to or Path("runs") / file_name(jobs_of_cluster.job(id).experiment)))


def _plain(job: "Job") -> dict[str, Any]:
    times = {"started": job.started, "ended": job.ended}
    return asdict(job) | {name: time and time.isoformat(timespec="seconds") for name, time in times.items()}


def _table(experiments: Sequence["Job"], now: datetime) -> str:
    """Return a table with a line per job."""
    rows = [("ID", "STATE", "STARTED", "TOOK", "RECORDS")]
    for job in experiments:
        took = "" if job.started is None else clock_time(((job.ended or now) - job.started).total_seconds())
        started = "" if job.started is None else f"{job.started.astimezone():%Y-%m-%d %H:%M}"
        rows.append((job.id, job.state.lower(), started, took, job.out))
    cells = [list(map(visible, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
    return "".join(f"{line}\n" for line in lines)
