"""``testbed bound random-participation``: what DP-SGD with random participation costs in privacy."""

from typing import Annotated

import typer

from testbed.commands.bound_options import Format, in_options
from testbed.commands.invocation import Debug, examples
from testbed.commands.terminal import echo

_WHO = "--local-samples 30 --client-rate 0.001 --sample-rate 0.1"
BOUND_RANDOM_PARTICIPATION_EPILOG = examples(
    f"testbed bound random-participation {_WHO} --epsilon 0.015 --delta 1e-6",
    f"testbed bound random-participation {_WHO} --sigma 1.065 --delta 1e-6 --rounds 1000 --format json",
    then="The guarantee is wcs. What is published for this algorithm (theorem_4_1) is none: "
    "docs/random-participation.md shows it.",
)


def bound_random_participation(
    local_samples: Annotated[
        int, typer.Option(metavar="D", min=0, max=10**6, help="Samples of each client, d.", show_default=False)
    ],
    client_rate: Annotated[
        float, typer.Option(metavar="P", help="Probability p that a client takes part in a round.", show_default=False)
    ],
    sample_rate: Annotated[
        float, typer.Option(metavar="Q", help="Probability q that a participant uses a sample.", show_default=False)
    ],
    delta: Annotated[float, typer.Option(metavar="D", help="In (0, 1), of all rounds together.", show_default=False)],
    epsilon: Annotated[
        float | None, typer.Option(metavar="E", help="Print the noise that it takes.", show_default=False)
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(metavar="S", help="Noise of a round's sum: print the epsilon.", show_default=False)
    ] = None,
    clip: Annotated[float, typer.Option(metavar="C", help="Largest norm of a sample's gradient.")] = 1.0,
    rounds: Annotated[int, typer.Option(metavar="T", min=1, max=100_000, help="Rounds.")] = 1,
    clients: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Population, to warn of a delta above 1/(N D).", show_default=False),
    ] = None,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """DP-SGD with random participation: the noise for an epsilon, or the epsilon of a noise, by every analysis.

    Hasircioglu and Gunduz, arXiv 2205.01556: Theorems 4.1, 5.1, 5.2 and Corollary 5.3, composed over rounds.
    """
    from analysis.bounds.random_participation import Participation
    from analysis.bounds.random_participation_report import random_participation_bounds, text
    from analysis.bounds.rows import render

    with in_options():
        who = Participation(local_samples, client_rate, sample_rate, clip)
        row = random_participation_bounds(who, delta, epsilon=epsilon, sigma=sigma, rounds=rounds, clients=clients)
    if (warning := row.get("warning")) is not None:
        echo(f"warning: {warning}", err=True)
    echo(render(row, format, text), nl=False)
