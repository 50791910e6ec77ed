"""``testbed attack survey``: every misbehaviour that applies to an experiment, tried one after the other."""

import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer

from testbed.commands.invocation import STOPPED, Debug, Overrides, examples, quoted
from testbed.commands.terminal import echo, messages

SURVEY_EPILOG = examples(
    "testbed attack survey examples/threats.yaml",
    "testbed attack survey examples/threats.yaml --set selection.protocol=lotto-server-centric",
    "testbed attack survey examples/threats.yaml --only forge-output --only list-twice --out runs/survey",
    then="What the experiment's `adversary` names goes along with each: companions that it takes to gain something.",
)


def survey(
    file: Annotated[Path, typer.Argument(metavar="EXPERIMENT.yaml", help="An experiment file.", show_default=False)],
    overrides: Overrides = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="This misbehaviour; may be repeated. Default: all.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the runs here. Default: they are not kept.")
    ] = None,
    network: Annotated[
        Literal["ray", "in-process"], typer.Option(help="in-process: no Ray, everything in this process.")
    ] = "in-process",
    resume: Annotated[bool, typer.Option("--resume", metavar="", help="Resume the runs in --out.")] = False,
    format: Annotated[Literal["text", "markdown", "json"], typer.Option(help="How to print it.")] = "text",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="No progress.")] = False,
    debug: Debug = False,
) -> None:
    """Try every misbehaviour that applies to an experiment's protocols; print which check refuses it, or what bounds
    it.

    It is refused where an honest party sees it, bounded where nobody does but a theorem limits it, else not protected.
    """
    from testbed.experiment import load

    experiment = load(file, [*(overrides or []), f"cluster.network={quoted(network)}"])
    from analysis.attacks.survey import findings, render, survey_of, trials
    from testbed.commands.progress import display_for
    from testbed.records import RunRecords
    from testbed.running import run_all

    tried = trials(experiment, only or [], str(file))
    console = messages()
    try:
        with tempfile.TemporaryDirectory() as folder, display_for(console, quiet) as observer:
            directory = out or Path(folder)
            sweep = survey_of(experiment, tried, str(file))
            paths = run_all(
                sweep, directory / "survey" if out is None else out, where=str(file), resume=resume, observer=observer
            )
            printed = render(findings(experiment, tried, [RunRecords(path) for path in paths]), format)
    except KeyboardInterrupt:
        console.print("stopped; nothing is printed of an unfinished survey (--out DIR keeps its runs)")
        raise typer.Exit(STOPPED) from None
    echo(printed, nl=False)
