"""Options shared by several bounds and plans."""

from fractions import Fraction
from math import ceil
from typing import Annotated

from testbed.cli.invocation import option

MOST_CLIENTS = 10**10  # covers every population; every bound takes seconds at most
MOST_ROUNDS = 10_000_000

Population = Annotated[int, option("N", "Clients in the population, n.", min=1, max=MOST_CLIENTS)]
Dishonest = Annotated[str, option("C|SHARE", "Dishonest clients, c: a number, or a share, e.g. 5%.")]
OverSelection = Annotated[float, option("A", "Over-selection factor a, at least 1.")]
MinPopulation = Annotated[
    int | None, option("M", "n_min, the smallest population that clients accept.  \\[default: N]", min=1)
]
Threshold = Annotated[str, option("T", "SecAgg's threshold: a number t, or a fraction of the participants, e.g. 0.7.")]
DropOut = Annotated[float, option("P", "Probability that a client does not answer.", min=0, max=1)]
Eta = Annotated[float, option("E", "Factor eta in Theorem 2: Pr[share of dishonest participants above eta c/n].")]
Target = Annotated[float, option("P", "Largest allowed Pr[SecAgg fails] in one round, or with --rounds in all rounds.")]
Sufficiency = Annotated[
    float,
    option(
        "P", "Smallest allowed probability of a round with enough candidates; it determines the over-selection factor."
    ),
]
PlannedRounds = Annotated[
    int | None,
    option(
        "R",
        "Plan for a training of R rounds: the target holds for all rounds together, target/R for each. "
        "\\[default: for one round]",
        min=1,
        max=MOST_ROUNDS,
    ),
]
LARGE = "--population 200000 --dishonest 1000 --participants 200"


def threshold_of(text: str) -> int | float:
    """Parse a threshold: a number of participants, or a fraction of them.

    Example:
        >>> threshold_of("70"), threshold_of("0.7")
        (70, 0.7)
    """
    try:
        return int(text) if text.strip().lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise ValueError(f"threshold: {text} is neither a number of participants nor a fraction") from None


def number_of(text: str, population: int) -> int:
    """Parse a number of clients: ``25``, ``5%`` or ``0.05``; a share is rounded up.

    Args:
        text: number or share.
        population: number of clients that a share refers to.

    Raises:
        ValueError: if the text is neither, or out of range.

    Example:
        >>> number_of("25", 1000), number_of("5%", 1000), number_of("0.05", 1000)
        (25, 50, 50)
    """
    percent, plain = text.strip().endswith("%"), text.strip().removesuffix("%")
    try:
        value = Fraction(plain.strip()) / (100 if percent else 1)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"dishonest: {text} is neither a number of clients nor a share, e.g. 25 or 5%") from None
    is_share = percent or not plain.strip().lstrip("+-").isdigit()
    if value < 0 or (is_share and value > 1):
        raise ValueError(f"dishonest: {text}; must be {'a share from 0 to 100%' if is_share else 'at least 0'}")
    return ceil(value * population) if is_share else int(value)
