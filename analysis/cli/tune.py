"""``testbed tune``: the values of a grid compared by accuracy, and the experiment with the best of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from testbed.cli.invocation import (
    Debug,
    ExperimentFile,
    Invocation,
    Overrides,
    Quiet,
    check_file,
    examples,
    flag,
    option,
    verb,
    yaml_quote,
)
from testbed.cli.terminal import echo, messages
from testbed.errors import ExperimentError
from testbed.signals import stop_code

if TYPE_CHECKING:
    from testbed.experiment import Experiment

TUNE_EPILOG = examples(
    "testbed tune experiment.yaml --grid workload.learning_rate=0.1,0.03,0.01,0.003,0.001,0.0003,0.0001",
    "testbed tune experiment.yaml --grid workload.learning_rate=0.1,0.03 --rounds 50 --seeds 1,2,3 --write best.yaml",
    "testbed tune experiment.yaml --grid workload.learning_rate=0.1,0.03 --grid workload.momentum=0,0.9 --by best",
    then="The runs form a sweep; --resume, `testbed compare` and `testbed plot` can use it later.",
)


@verb(TUNE_EPILOG, imports=True)
def tune(
    context: typer.Context,
    file: ExperimentFile,
    grid: Annotated[
        list[str],
        option(
            "KEY=V1,V2,...", "A key of the experiment and the values to try; if repeated, all combinations are tried."
        ),
    ],
    overrides: Overrides = None,
    seeds: Annotated[
        str | None, option("S1,S2,...", "Seeds to run each value with; default: the experiment's.")
    ] = None,
    rounds: Annotated[int | None, option("R", "Rounds of each run; default: the experiment's.", min=1)] = None,
    by: Annotated[
        Literal["final", "best"], typer.Option(help="Criterion: the last accuracy, or the highest.")
    ] = "final",
    write: Annotated[Path | None, option("FILE", "Write the experiment with the best value here.")] = None,
    out: Annotated[
        Path | None, option("DIR", "Directory of the runs; default: runs/ and the experiment's name with -tune.")
    ] = None,
    network: Annotated[
        Literal["ray", "in-process"] | None, typer.Option(help="in-process: no Ray, everything in this process.")
    ] = None,
    resume: Annotated[bool, flag("Resume existing runs; finished ones are kept.", "--resume")] = False,
    format: Annotated[Literal["text", "markdown", "csv", "json"], typer.Option(help="Output format.")] = "text",
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run an experiment with each value of a grid and print the value with the highest accuracy.

    Accuracies are means over the seeds, with 95% intervals. If the experiment has a sweep, each of its points has its
    own best value.
    """
    from testbed.experiment import grid as grids
    from testbed.experiment import load

    keys = [grids.key_of(setting) for setting in grid]
    settings = [*(overrides or []), *([f"cluster.network={yaml_quote(network)}"] if network else [])]
    plain = load(file, settings)
    swept = [*grid, *([f"seed={seeds}"] if seeds else [])]
    shorter = [f"rounds={rounds}"] if rounds else []
    experiment = load(file, [*settings, *shorter, *(grids.as_sweep(setting) for setting in swept)])
    grids.require_searchable(plain, keys, seeds)
    if write is not None and write.exists():
        raise ExperimentError(f"--write {write}: exists already; give another file")
    if write is not None:
        check_file("--write", write)
    console = messages()
    try:
        # The following imports take seconds.
        from analysis.comparison import tuning
        from testbed.cli.progress import display_for
        from testbed.experiment.schema import points
        from testbed.files.names import file_name
        from testbed.records import RunRecords
        from testbed.running import run_all

        directory = out or Path("runs") / file_name(f"{experiment.name}-tune")
        with display_for(console, quiet) as observer:
            paths = run_all(experiment, directory, where=str(file), resume=resume, observer=observer)
        values = [point.values for point in points(experiment, str(file))]
        frame = tuning.tuned(list(zip(values, map(RunRecords, paths), strict=True)), keys, by)
    except KeyboardInterrupt:
        invocation: Invocation = context.obj
        console.print(f"stopped; resume with: {invocation.resume_command_line}")
        raise typer.Exit(stop_code()) from None
    if not quiet:
        console.print()
    echo(tuning.render(frame, keys, format), nl=False)
    if write is not None:
        _write(plain, tuning.best_values(frame, keys), write)
        console.print(f"\nwritten: {write}")
    console.print(f"\nrecords: {directory}")


def _write(experiment: "Experiment", values: Mapping[str, Any], file: Path) -> None:
    """Write the experiment with these values to a file; raise `ExperimentError` where they do not fit."""
    import yaml

    from testbed.experiment.reading import set_key
    from testbed.experiment.schema import validated
    from testbed.files.atomic import atomic_write

    data = experiment.model_dump(mode="json", exclude_unset=True)
    for key, value in values.items():
        set_key(data, key, value, str(file))
    validated(data, str(file))
    chosen = ", ".join(f"{key}: {json.dumps(value)}" for key, value in values.items())
    text = f"# Chosen by `testbed tune`: {chosen}\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True)}"
    with atomic_write(file, lambda why: ExperimentError(f"--write {file}: cannot be written: {why}")) as written:
        written.write(text.encode())
