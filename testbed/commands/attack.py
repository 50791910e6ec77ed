"""``testbed attack``: what malicious servers and dishonest clients have attained."""

from typing import Annotated, Literal

import typer

from testbed.commands.invocation import Debug, examples
from testbed.commands.results import Directories, runs_in

attack = typer.Typer(
    name="attack",
    help="What malicious servers and dishonest clients have attained.",
    rich_markup_mode="rich",
    no_args_is_help=True,
)

_SUMMARY_EPILOG = examples(
    "testbed attack summary runs/adversary",
    "testbed attack summary runs/adversary --eta 3 --format json",
    then="An attack is on record where an experiment has an `adversary:` section.",
)


@attack.callback()
def _attack() -> None:
    """Named, so that further commands of the group find their place."""


@attack.command(epilog=_SUMMARY_EPILOG)
def summary(
    directories: Directories,
    eta: Annotated[
        float, typer.Option(help="How often x/s > eta c/n: x of s participants and c of n clients are dishonest.")
    ] = 2.0,
    format: Annotated[
        Literal["text", "markdown", "csv", "json"], typer.Option(help="csv and json hold every column.")
    ] = "text",
    debug: Debug = False,
) -> None:
    """Print which attacks honest parties refused, by which check, and how far the others shifted who takes part."""
    runs = runs_in(directories)
    from analysis import adversaries

    typer.echo(adversaries.render(adversaries.adversaries(runs, eta), format), nl=False)
