"""``testbed bound verifiable-batch-partition``: what whole batches that the server cannot pick guarantee."""

from typing import Annotated

import typer

from testbed.commands.bound_options import (
    Dishonest,
    Format,
    MinPopulation,
    OverSelection,
    Population,
    Threshold,
    in_options,
    threshold_of,
)
from testbed.commands.invocation import Debug, examples
from testbed.commands.terminal import echo

_LARGE = "--population 200000 --dishonest 1000 --participants 200"
VERIFIABLE_EPILOG = examples(
    f"testbed bound verifiable-batch-partition {_LARGE} --privacy 5 --over-selection 1.5 --eta 10 --threshold 0.7",
    "testbed bound verifiable-batch-partition --population 120 --dishonest 12 --participants 12 --privacy 3 "
    "--over-selection 2 --dropout 0.1 --format json",
    then="The placement of the dishonest clients is the worst case; 'attained' is what some placement reaches.",
)


def bound_verifiable(
    population: Population,
    dishonest: Dishonest,
    participants: Annotated[
        int, typer.Option(metavar="K", min=1, help="Participants of a round, K.", show_default=False)
    ],
    privacy: Annotated[
        int, typer.Option(metavar="T", min=1, help="Batch size T, which divides K.", show_default=False)
    ],
    over_selection: OverSelection = 1.3,
    min_population: MinPopulation = None,
    eta: Annotated[
        float, typer.Option(metavar="E", help="How many times their due share dishonest participants may reach.")
    ] = 10.0,
    threshold: Threshold = "0.7",
    dropout: Annotated[
        float, typer.Option(metavar="P", min=0, max=1, help="Chance that a client does not answer.")
    ] = 0.0,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """Verifiable batch partition in one round: enough candidate batches, too many dishonest participants, SecAgg
    broken; over many rounds: how many honest members each batch keeps.

    Derived in docs/verifiable-batch-partition.md.
    """
    from analysis.bounds.rows import render
    from analysis.bounds.verifiable_batch_partition import Setting, text, verifiable_bounds

    with in_options():
        setting = Setting(population, participants, privacy, over_selection, dishonest, min_population)
        row = verifiable_bounds(setting, eta, threshold_of(threshold), dropout)
    echo(render(row, format, text), nl=False)
