"""``testbed compare``: cost of each protocol, per round and up to a target, beside a baseline."""

from typing import Annotated, Literal

import typer

from analysis.cli.results import Directories, runs_in
from testbed.cli.invocation import Debug, examples, flag, option, verb
from testbed.cli.terminal import echo, messages
from testbed.errors import ExperimentError

COMPARE_EPILOG = examples(
    "testbed compare runs/quickstart",
    "testbed compare runs/quickstart --baseline random --format latex",
    "testbed compare runs/quickstart --columns round_s,server_bytes,final_accuracy,time_to_target_s",
    "testbed compare runs/quickstart --format latex --width one",
    "testbed compare runs/quickstart --target 80% --target 'loss<0.5' --smooth 3",
    "testbed compare runs/monday runs/tuesday --format csv > table.csv",
    "testbed compare runs/sweep --group-by links.latency_ms",
    "testbed compare runs/seeds --paired-seeds",
    "testbed compare runs/lotto runs/replayed --paired",
    then="--paired matches rounds by number, and counts only rounds that both runs completed: for a run and its replay "
    "under another protocol (`testbed trace record`). Without --target the target is the best accuracy that every run "
    "reaches. csv is one table: with --target that of the targets.",
)


@verb(COMPARE_EPILOG)
def compare(
    directories: Directories,
    baseline: Annotated[
        str | None,
        option("NAME", "Baseline row of all ratios, also from another group; default: the first row."),
    ] = None,
    group_by: Annotated[
        list[str] | None,
        option("KEY", "Rows with the same value of this key form a group with its own baseline; may be repeated."),
    ] = None,
    format: Annotated[
        Literal["text", "markdown", "csv", "latex", "json"],
        typer.Option(help="csv and json hold every column, in seconds and bytes."),
    ] = "text",
    columns: Annotated[
        str | None, option("A,B,...", "These columns in this order, all in one table; `help` lists the names.")
    ] = None,
    width: Annotated[
        Literal["one", "two"], typer.Option(help="LaTeX for one column of a two-column page, or for both.")
    ] = "two",
    target: Annotated[
        list[str] | None,
        option("TARGET", "Time to 80%, accuracy>=0.8, loss<0.5, perplexity<90, or best; may be repeated."),
    ] = None,
    smooth: Annotated[
        int | None, option("K", "The mean of K evaluations must meet the target; default: a single evaluation.", min=1)
    ] = None,
    across_workloads: Annotated[bool, flag("Compare accuracies on different data.", "--across-workloads")] = False,
    paired: Annotated[bool, flag("Match rounds by number: the same dropouts, round by round.", "--paired")] = False,
    paired_seeds: Annotated[
        bool, flag("Differences to the baseline between runs of the same seed, with a paired t-test.", "--paired-seeds")
    ] = False,
    debug: Debug = False,
) -> None:
    """Print the cost of each protocol, per round and up to a target: means, 95% intervals, ratios to a baseline."""
    from analysis.comparison import columns as comparison_columns

    if columns == "help":
        echo(comparison_columns.listing(), nl=False)
        return
    names = None if columns is None else comparison_columns.parse_column_names(columns)
    goals = target or (["best"] if smooth is not None else None)
    if goals is not None:
        from analysis.comparison.targets import parse_targets

        parse_targets(goals)  # report a typing error before anything is read
    if paired and paired_seeds:
        raise ExperimentError("--paired, --paired-seeds: one matches rounds, the other seeds; give one of them")
    runs = runs_in(directories)
    from analysis.comparison import overhead, seed_pairs, target_table, time_to_target
    from analysis.findings import findings, render

    why, groups = "", group_by or ()
    if goals is None:
        reached, why = time_to_target.targets_beside(runs, baseline, across_workloads=across_workloads, group_by=groups)
    else:
        reached = time_to_target.compare_targets(
            runs, goals, baseline, smooth or 1, across_workloads=across_workloads, group_by=groups
        )
    if format == "csv" and reached is not None and goals is not None and names is None:
        echo(target_table.render(reached, format), nl=False)
        return
    table = overhead.compare_paired if paired else seed_pairs.compare_seeds if paired_seeds else overhead.compare
    frame = table(runs, baseline, group_by=groups)
    notes = [] if format == "csv" else findings(runs, baseline, group_by=groups, targets=reached)
    echo(render(frame, notes, format, reached, names, narrow=width == "one"), nl=False)
    if paired and len(frame) == 1:
        messages().print(
            "note: --paired: there is one row, which is paired with itself; add the runs of another protocol",
            markup=False,
        )
    if why:
        messages().print(f"note: no time to accuracy: {why}", markup=False)
