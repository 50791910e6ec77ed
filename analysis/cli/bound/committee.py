"""``testbed bound committee`` and ``testbed plan committee``: who is on a committee, and how large it must be."""

from pathlib import Path
from typing import Annotated, Literal

from analysis.cli.bound.selection import Dishonest, Format, Population, in_options, number_of, threshold_of
from testbed.cli.invocation import Debug, examples, option
from testbed.cli.terminal import echo
from testbed.committee.parameters import OVER_SELECTION
from testbed.errors import ExperimentError
from testbed.files import limits

_MOST_ROUNDS = 10_000_000
_MOST_WEIGHTS = 10**6

Selection = Annotated[
    Literal["public-seed", "lotto-client-centric", "lotto-server-centric"],
    option("NAME", "How members are drawn (committee.selection): public-seed, lotto-client-centric, -server-centric."),
]
OverSelection = Annotated[float, option("A", "Over-selection factor a of lotto-*, at least 1.")]
DropOut = Annotated[float, option("Q", "Chance that a client does not answer.", min=0, max=1)]
Threshold = Annotated[
    str | None,
    option("T", "Members that must answer: a number t, or a fraction of them.  \\[default: two thirds of them]"),
]
Rounds = Annotated[int, option("R", "Rounds of the training.", min=1, max=_MOST_ROUNDS)]
ServesRounds = Annotated[
    int | None, option("r", "Rounds that a committee serves.  \\[default: to the end]", min=1, max=_MOST_ROUNDS)
]
Tries = Annotated[
    int, option("K", "Seeds that somebody may choose from: 1 with a beacon, or keys that a PKI makes.", min=1)
]
Server = Annotated[
    Literal["malicious", "semi-honest"],
    option("KIND", "malicious: tells members different things, 2t-s dishonest are enough; semi-honest: t are."),
]
Weights = Annotated[
    Path | None, option("FILE", "One weight a line, by which lotto-* draws; the heaviest clients are dishonest.")
]

_WHO = "--population 100000 --dishonest 5000"
BOUND_EPILOG = examples(
    f"testbed bound committee {_WHO} --size 60 --threshold 40 --dropout 0.05 --rounds 500 --serves-rounds 50",
    "testbed bound committee --population 1000 --dishonest 50 --size 40 --selection lotto-client-centric --format json",
    then="Probabilities are for the server that does its worst, and exact for it; what is 'at most' says so.",
)
PLAN_EPILOG = examples(
    f"testbed plan committee {_WHO} --dropout 0.05 --target 1e-9 --failure-target 1e-3",
    f"testbed plan committee {_WHO} --selection lotto-client-centric --target 1e-9 --format json",
    then="The threshold is the smallest that keeps the first target: it bears the most drop-outs.",
)


def bound_committee(
    population: Population,
    dishonest: Dishonest,
    size: Annotated[int, option("S", "Members s.", min=2, max=10_000)] = 60,
    threshold: Threshold = None,
    selection: Selection = "public-seed",
    over_selection: OverSelection = OVER_SELECTION,
    dropout: DropOut = 0.0,
    rounds: Rounds = 1,
    serves_rounds: ServesRounds = None,
    tries: Tries = 1,
    server: Server = "malicious",
    weights: Weights = None,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """A committee of clients that serve the others: too many dishonest members, and too few that answer.

    Derived in docs/how-to/choose-a-committee.md.
    """
    from analysis.bounds.committee import Draw
    from analysis.bounds.committee_report import committee_bounds, text
    from analysis.bounds.rows import render

    given = _weights(weights)
    with in_options():
        draw = Draw(population, number_of(dishonest, population), selection, over_selection, dropout, given)
        needed = None if threshold is None else threshold_of(threshold)
        row = committee_bounds(draw, size, needed, rounds, serves_rounds, tries, server)
    echo(render(row, format, text), nl=False)


def plan_committee(
    population: Population,
    dishonest: Dishonest,
    target: Annotated[float, option("P", "What the chance that some service is broken must not exceed.")],
    failure_target: Annotated[
        float, option("P", "What the chance that a round ends for the committee's sake must not exceed.")
    ] = 1e-3,
    selection: Selection = "public-seed",
    over_selection: Annotated[
        float | None, option("A", "Over-selection factor a of lotto-*.  \\[default: that of the smallest committee]")
    ] = None,
    dropout: DropOut = 0.0,
    rounds: Rounds = 1,
    serves_rounds: ServesRounds = None,
    tries: Tries = 1,
    server: Server = "malicious",
    largest: Annotated[int, option("S", "Members at most.", min=2, max=10_000)] = 1000,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """The smallest committee, and its threshold, that keeps two targets: broken at most so often, failing at most so
    often.
    """
    from analysis.bounds.committee import Draw, Targets, services
    from analysis.bounds.committee_report import committee_plan, text
    from analysis.bounds.rows import render

    with in_options():
        draw = Draw(population, number_of(dishonest, population), selection, over_selection or OVER_SELECTION, dropout)
        targets = Targets(target, failure_target, services(rounds, serves_rounds), tries, server)
        row = committee_plan(draw, targets, rounds, serves_rounds, largest, any_over_selection=over_selection is None)
    echo(render(row, format, text), nl=False)


def _weights(path: Path | None) -> tuple[int, ...] | None:
    """The whole numbers of a file, one a line."""
    if path is None:
        return None
    try:
        found = tuple(int(line) for line in limits.text(path, limits.NUMBERS_BYTES).split())
    except limits.TooLarge as why:
        raise ExperimentError(f"--weights: {path}: {why}") from None
    except OSError:
        raise ExperimentError(f"--weights: {path}: no file that can be read") from None
    except ValueError:
        raise ExperimentError(f"--weights: {path} has a line that is no whole number; give one a line") from None
    if len(found) > _MOST_WEIGHTS:
        raise ExperimentError(f"--weights: {path}: {len(found)} lines; at most {_MOST_WEIGHTS}")
    return found
