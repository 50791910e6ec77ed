"""``testbed tune``: the values of a grid compared by accuracy, and the experiment with the best of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
import yaml

from testbed.commands.invocation import STOPPED, Debug, Invocation, Overrides, examples, quoted
from testbed.commands.terminal import echo, messages
from testbed.commands.writable import check_file
from testbed.errors import ExperimentError

if TYPE_CHECKING:
    import pandas as pd

    from testbed.experiment import Experiment

TUNE_EPILOG = examples(
    "testbed tune experiment.yaml --grid workload.learning_rate=0.1,0.03,0.01,0.003,0.001,0.0003,0.0001",
    "testbed tune experiment.yaml --grid workload.learning_rate=0.1,0.03 --rounds 50 --seeds 1,2,3 --write best.yaml",
    "testbed tune experiment.yaml --grid workload.learning_rate=0.1,0.03 --grid workload.momentum=0,0.9 --by best",
    then="The runs are those of a sweep, and stay: --resume goes on, `testbed compare` and `testbed plot` read them.",
)


def tune(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="EXPERIMENT.yaml", help="An experiment file.", show_default=False)],
    grid: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=V1,V2,...",
            help="A key of the experiment and the values to try; given again, all combinations.",
            show_default=False,
        ),
    ],
    overrides: Overrides = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="S1,S2,...", help="Seeds to run each value with; default: that of the experiment."),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(metavar="R", min=1, help="Rounds of each run; default: those of the experiment.")
    ] = None,
    by: Annotated[
        Literal["final", "best"], typer.Option(help="Which accuracy decides: the last measured, or the highest.")
    ] = "final",
    write: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the experiment with the best value here.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory of the runs; default: runs/ and the experiment's name with -tune."),
    ] = None,
    network: Annotated[
        Literal["ray", "in-process"] | None,
        typer.Option(help="in-process: no Ray, everything in this process.", show_default=False),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", metavar="", help="Go on with the runs that are there; finished ones stay.")
    ] = False,
    format: Annotated[Literal["text", "markdown", "csv", "json"], typer.Option(help="How to print it.")] = "text",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="No progress.")] = False,
    debug: Debug = False,
) -> None:
    """Run an experiment with each value of a grid and say which gives the highest accuracy: a mean over the seeds, with
    its 95% interval.

    Where the experiment has a sweep of its own, each of its points has a best value of its own.
    """
    from testbed.experiment import load

    keys = [_key(one) for one in grid]
    given = [*(overrides or []), *([f"cluster.network={quoted(network)}"] if network else [])]
    plain = load(file, given)
    swept = [*grid, *([f"seed={seeds}"] if seeds else [])]
    shorter = [f"rounds={rounds}"] if rounds else []
    experiment = load(file, [*given, *shorter, *(_as_sweep(one) for one in swept)])
    _check(plain, keys, seeds, write)
    console = messages()
    try:
        # From here on it takes seconds to import what is needed.
        from analysis.comparison import tuning
        from testbed.commands.progress import display_for
        from testbed.experiment.sweep import points
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
        console.print(f"stopped; go on with: {invocation.resuming}")
        raise typer.Exit(STOPPED) from None
    if not quiet:
        console.print()
    echo(tuning.render(frame, keys, format), nl=False)
    if write is not None:
        _write(plain, _chosen(frame, keys), write)
        console.print(f"\nwritten: {write}")
    console.print(f"\nrecords: {directory}")


def _key(one: str) -> str:
    key, equals, values = one.partition("=")
    if not (key.strip() and equals and values.strip()):
        raise ExperimentError(f"--grid {one}: not of the form KEY=V1,V2, e.g. workload.learning_rate=0.1,0.03")
    return key.strip()


def _as_sweep(one: str) -> str:
    """``KEY=V1,V2`` as an override that adds it to the sweep."""
    key, _, values = one.partition("=")
    return f"sweep={{{json.dumps(key.strip())}: [{values}]}}"


def _check(plain: "Experiment", keys: Sequence[str], seeds: str | None, write: Path | None) -> None:
    """Whatever would spoil the result, known before hours of work."""
    for key in keys:
        if keys.count(key) > 1:
            raise ExperimentError(f"--grid {key}: given twice; name all its values in one")
        if key == "seed":
            raise ExperimentError("--grid seed: a seed is not chosen; give --seeds")
        if key in plain.sweep:
            raise ExperimentError(f"--grid {key}: the experiment sweeps over it, too; take it out of one of the two")
    if seeds and "seed" in plain.sweep:
        raise ExperimentError("--seeds: the experiment sweeps over its seed; take it out of one of the two")
    if write is not None and write.exists():
        raise ExperimentError(f"--write {write}: is there already; give another file")
    if write is not None:
        check_file("--write", write)


def _chosen(frame: "pd.DataFrame", keys: Sequence[str]) -> dict[str, Any]:
    """The best values; raises `ExperimentError` where those of the settings differ."""
    best = frame[frame["is_best"]]
    found = [
        json.loads(row) for row in dict.fromkeys(best[list(keys)].apply(lambda row: json.dumps(list(row)), axis=1))
    ]
    if len(found) > 1:
        raise ExperimentError(
            "--write: the points of the experiment's sweep have different best values, see the table; write an "
            "experiment for each"
        )
    return dict(zip(keys, found[0], strict=True))


def _write(plain: "Experiment", values: dict[str, Any], file: Path) -> None:
    """The experiment as it was given, with these values."""
    from testbed.experiment.overrides import set_key
    from testbed.experiment.validation import validated
    from testbed.files.atomic import atomic_write

    data = plain.model_dump(mode="json", exclude_unset=True)
    for key, value in values.items():
        set_key(data, key, value, str(file))
    validated(data, str(file))
    chosen = ", ".join(f"{key}: {json.dumps(value)}" for key, value in values.items())
    text = f"# Chosen by `testbed tune`: {chosen}\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True)}"
    with atomic_write(file, lambda why: ExperimentError(f"--write {file}: cannot be written: {why}")) as written:
        written.write(text.encode())
