"""``testbed new``: skeletons for user-defined classes."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.invocation import Debug, argument, examples, option, verb
from testbed.cli.terminal import echo
from testbed.extras import first_missing
from testbed.plugins import skeletons

NEW_EPILOG = examples(
    "testbed new selection fair_lottery",
    "testbed new aggregation clipped_mean --out mine",
    "testbed new workload sensors",
    then="Each command writes a module, its test, and an experiment that runs it. See docs/how-to/own-classes.md.",
)


@verb(NEW_EPILOG)
def new(
    kind: Annotated[skeletons.Kind, typer.Argument(help="Kind of the class.", show_default=False)],
    name: Annotated[str, argument("NAME", "Name of the module, e.g. fair_lottery with the class FairLottery.")],
    out: Annotated[Path, option("FOLDER", "Folder of the files; default: the working directory.")] = Path(),
    debug: Debug = False,
) -> None:
    """Write a skeleton of a class, its test, and an experiment that runs it; nothing is overwritten."""
    module, test, experiment = skeletons.write(kind, name, out)
    into = "" if out == Path() else f"cd {shlex.quote(str(out))} && "
    echo(f"wrote {module}, {test} and {experiment}")
    echo(f"  {into}python -m pytest {test.name}")
    if first_missing("pytest"):
        echo("    (pytest is not installed here: python -m pip install pytest)")
    echo(f"  {into}testbed run {experiment.name} --network in-process --out runs/{name}")
