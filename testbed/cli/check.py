"""``testbed check``: the properties that every protocol or workload must have, checked for one class."""

from typing import Annotated

import typer

from testbed.cli.invocation import FAILED, Debug, Overrides, argument, examples, verb
from testbed.cli.terminal import echo

CHECK_EPILOG = examples(
    "testbed check examples.own_selection:TakingTurns",
    "testbed check mine:ClippedMean --set aggregation.clip_norm=2",
    "testbed check lightsecagg",
    then="Exit codes: 0 all properties hold, 2 the class cannot be run as written, 3 a property fails. See "
    "docs/how-to/check-own-class.md.",
)


@verb(CHECK_EPILOG, imports=True)
def check(
    context: typer.Context,
    name: Annotated[str, argument("PROTOCOL", "package.module:Name of your class, or a built-in protocol.")],
    overrides: Overrides = None,
    debug: Debug = False,
) -> None:
    """Check the properties that every selection protocol, aggregation protocol or workload must have, in small runs.

    One line for each property: passed, failed (problem, place and remedy), or not applicable with the reason.
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
