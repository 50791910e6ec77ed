"""``testbed flower``: an experiment file for an existing Flower app."""

from typing import Annotated

from testbed.cli.invocation import Debug, argument, examples, flag, option, verb
from testbed.cli.terminal import echo

FLOWER_EPILOG = examples(
    "testbed flower my-app > my-app.yaml",
    "testbed flower my-app --python my-app/.venv/bin/python --population 50",
    then="Then edit selection and aggregation, and run it: testbed run my-app.yaml. See docs/how-to/flower.md.",
)


@verb(FLOWER_EPILOG, imports=True)
def flower(
    app: Annotated[str, argument("APP", "Folder of a Flower app, or module:attribute of its ClientApp.")],
    python: Annotated[
        str | None, option("FILE", "Python interpreter of the app's environment, with flwr; default: this one.")
    ] = None,
    population: Annotated[
        int | None, option("N", "Number of clients; default: that of the app's simulation, or 10.", min=1)
    ] = None,
    discard_state: Annotated[
        bool, flag("Run clients that keep data in context.state, with an empty state in each call.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Print an experiment file for an existing Flower app, to train its clients here unchanged.

    The app's server runs once, against clients that return the received model, to get its model and configuration. Then
    up to 100 clients train once, to find their numbers of samples.
    """
    from workloads.flower.conversion import folder_or_name, written

    echo(written(folder_or_name(app, python, discard_state), population), nl=False)
