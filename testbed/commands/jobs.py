"""``testbed jobs``: what was submitted to a cluster, how it goes, and its results."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from testbed.commands.durations import clock_time
from testbed.commands.invocation import STOPPED, Debug, examples, group
from testbed.commands.submit import Address, To, end
from testbed.commands.terminal import echo, messages, without_colours

if TYPE_CHECKING:
    from cluster.jobs.submission import Job

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

Id = Annotated[str, typer.Argument(metavar="ID", help="A job's id, as `testbed submit` prints it.", show_default=False)]


@jobs.command("list")
def list_(
    address: Address = None,
    format: Annotated[Literal["text", "json"], typer.Option(help="json: a list of objects, times in UTC.")] = "text",
    debug: Debug = False,
) -> None:
    """Print the experiments submitted since the cluster's head started, oldest first."""
    from cluster.jobs.submission import Jobs

    found = Jobs(address).experiments()
    if format == "json":
        echo(json.dumps([_plain(job) for job in found], indent=2))
    elif found:
        echo(_table(found, datetime.now(UTC)), nl=False)
    else:
        messages().print("no experiments were submitted to this cluster")


@jobs.command()
def logs(
    id: Id,
    address: Address = None,
    follow: Annotated[bool, typer.Option("--follow", metavar="", help="Keep printing until the job ends.")] = False,
    debug: Debug = False,
) -> None:
    """Print the log of a job; with --follow, exit as the job does."""
    from cluster.jobs.submission import Jobs

    at = Jobs(address)
    if not follow:
        echo(without_colours(at.logs(id)), nl=False)
        return
    at.job(id)  # an unknown id is no lost connection
    try:
        ended = at.follow(id, lambda text: echo(without_colours(text), nl=False))
    except KeyboardInterrupt:
        messages().print(f"no longer following; the job goes on; stop it with: testbed jobs stop {id}")
        raise typer.Exit(STOPPED) from None
    end(ended)


@jobs.command()
def stop(id: Id, address: Address = None, debug: Debug = False) -> None:
    """Stop a job; its finished rounds stay where its records are."""
    from cluster.jobs.submission import Jobs

    at = Jobs(address)
    job = at.job(id)
    if job.over or not at.stop(id):
        messages().print(f"{id}: has ended before ({job.state.lower()})")
    else:
        messages().print(f"{id}: stopping; its finished rounds stay in {job.out}")


@jobs.command()
def fetch(id: Id, address: Address = None, to: To = None, debug: Debug = False) -> None:
    """Bring the records of a job that has ended to this machine; print their directory."""
    from cluster.jobs.submission import Jobs
    from testbed.files.names import file_name

    at = Jobs(address)
    echo(at.fetch(id, to or Path("runs") / file_name(at.job(id).experiment)))


def _plain(job: "Job") -> dict[str, Any]:
    times = {"started": job.started, "ended": job.ended}
    return asdict(job) | {name: time and time.isoformat(timespec="seconds") for name, time in times.items()}


def _table(found: Sequence["Job"], now: datetime) -> str:
    """A line per job; columns as wide as what they hold."""
    from analysis.tables import Table, render

    rows = []
    for job in found:
        took = "" if job.started is None else clock_time(((job.ended or now) - job.started).total_seconds())
        started = "" if job.started is None else f"{job.started.astimezone():%Y-%m-%d %H:%M}"
        rows.append((job.id, job.state.lower(), started, took, job.out))
    return render(Table(("ID", "STATE", "STARTED", "TOOK", "RECORDS"), rows, ruled=False), "text")
