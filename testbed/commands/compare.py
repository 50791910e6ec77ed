"""``testbed compare``: what each protocol costs, beside a baseline."""

from typing import Annotated, Literal

import typer

from testbed.commands.invocation import Debug, examples, flag, option
from testbed.commands.results import Directories, runs_in
from testbed.commands.terminal import echo

COMPARE_EPILOG = examples(
    "testbed compare runs/quickstart",
    "testbed compare runs/quickstart --baseline random --format latex",
    "testbed compare runs/monday runs/tuesday --format csv > table.csv",
    "testbed compare runs/sweep --group-by links.latency_ms",
    "testbed compare runs/lotto runs/replayed --paired",
    then="Paired, rounds are matched by their number, and only those count that both runs completed: for a run and its "
    "replay under another protocol (`testbed trace record`).",
)


def compare(
    directories: Directories,
    baseline: Annotated[
        str | None,
        option("NAME", "The row that the others are compared with, also one of another group; default: the first."),
    ] = None,
    group_by: Annotated[
        list[str] | None,
        option("KEY", "Rows with the same value of this key form a group with its own baseline; may be repeated."),
    ] = None,
    format: Annotated[
        Literal["text", "markdown", "csv", "latex", "json"],
        typer.Option(help="csv and json hold every column, in seconds and bytes."),
    ] = "text",
    paired: Annotated[bool, flag("Match rounds by number: the same drop-outs, round by round.", "--paired")] = False,
    debug: Debug = False,
) -> None:
    """Print the overhead table: what each protocol costs, as means, 95% intervals and ratios to a baseline."""
    runs = runs_in(directories)
    from analysis.comparison import overhead, report

    frame = (overhead.compare_paired if paired else overhead.compare)(runs, baseline, group_by=group_by or ())
    echo(report.render(frame, format), nl=False)
