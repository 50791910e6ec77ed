"""What the commands ``bound`` and ``plan`` share: options, errors that name an option."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import typer

from testbed.errors import ExperimentError

MOST_CLIENTS = 10**10  # no population is larger, and no bound takes longer than seconds

Population = Annotated[
    int, typer.Option(metavar="N", min=1, max=MOST_CLIENTS, help="Clients in the population, n.", show_default=False)
]
Dishonest = Annotated[
    int, typer.Option(metavar="C", min=0, help="Dishonest clients among them, c.", show_default=False)
]
Participants = Annotated[int, typer.Option(metavar="S", min=1, help="Participants of a round, s.", show_default=False)]
OverSelection = Annotated[float, typer.Option(metavar="A", help="Over-selection factor a, at least 1.")]
MinPopulation = Annotated[
    int | None,
    typer.Option(metavar="M", min=1, help="n_min, which clients insist on.  \\[default: N]", show_default=False),
]
Threshold = Annotated[
    str, typer.Option(metavar="T", help="SecAgg's threshold: a number t, or a fraction of the participants, e.g. 0.7.")
]
Format = Annotated[Literal["text", "json"], typer.Option(help="json is one flat object at full precision.")]


def threshold_of(text: str) -> int | float:
    """A number of participants, or a fraction of them."""
    try:
        return int(text) if text.strip().lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise ValueError(f"threshold: {text} is neither a number of participants nor a fraction") from None


@contextmanager
def in_options() -> Iterator[None]:
    """Say what is wrong with a parameter as what is wrong with its option."""
    try:
        yield
    except ValueError as error:
        name, colon, rest = str(error).partition(": ")
        raise ExperimentError(f"--{name.replace('_', '-')}{colon}{rest}") from None
