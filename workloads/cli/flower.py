"""``testbed flower``: an experiment file for an existing Flower app."""

from typing import Annotated

from testbed.cli.invocation import Debug, argument, examples, flag, option, verb
from testbed.cli.terminal import echo

FLOWER_EPILOG = examples(
    "testbed flower my-app > my-app.yaml",
    "testbed flower my-app --python my-app/.venv/bin/python --population 50",
    then="Then change selection and aggregation as you like, and: testbed run my-app.yaml. See docs/how-to/flower.md.",
)


@verb(FLOWER_EPILOG, imports=True)
def flower(
    app: Annotated[str, argument("APP", "The folder of a Flower app, or module:attribute of its ClientApp.")],
    python: Annotated[
        str | None, option("FILE", "The interpreter of the app's environment, where flwr is; default: this one.")
    ] = None,
    population: Annotated[
        int | None, option("N", "Clients; default: what the app's simulation has, or 10.", min=1)
    ] = None,
    discard_state: Annotated[
        bool, flag("Let clients that keep something in context.state begin each call without it.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Print an experiment file for an existing Flower app, whose clients then train here, unchanged.

    The app's server is run once, against clients that answer what they were sent, for its model and configuration.

    Then each client trains once, up to 100 of them, to know how many samples they have.
    """
    from workloads.flower.conversion import folder_or_name, written

    echo(written(folder_or_name(app, python, discard_state), population), nl=False)
