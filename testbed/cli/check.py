"""``testbed check``: the properties that every protocol or workload must have, asked of one class."""

from typing import Annotated

import typer

from testbed.cli.invocation import FAILED, Debug, Overrides, argument, examples, verb
from testbed.cli.terminal import echo

CHECK_EPILOG = examples(
    "testbed check examples.own_selection:TakingTurns",
    "testbed check mine:ClippedMean --set aggregation.longest=2",
    "testbed check lightsecagg",
    then="Exit code 0: it has all properties; 2: it cannot be run as written; 3: it lacks one. See "
    "docs/how-to/check-own-class.md.",
)


@verb(CHECK_EPILOG, imports=True)
def check(
    context: typer.Context,
    name: Annotated[str, argument("PROTOCOL", "package.module:Name of a class of yours, or a built-in protocol.")],
    overrides: Overrides = None,
    debug: Debug = False,
) -> None:
    """Check the properties that every selection protocol, aggregation protocol or workload must have, in small runs.

    One line for each property: passed, failed (what, where, and what to do), or not applicable with the reason.
    Nothing is written. The class is imported, which runs its code.
    """
    from testbed.conformance.process import results_apart

    verdicts = []
    for result in results_apart(name, overrides or []):
        verdicts.append(result.verdict)
        echo(f"{result.verdict:14}  {result.claim}: {result.detail}")
        if context.obj.debug and result.trace:
            echo(result.trace, err=True)
    if failed := verdicts.count("failed"):
        echo(f"{name}: lacks {failed} of {len(verdicts)} properties")
        raise typer.Exit(FAILED)
