"""``testbed bound committee`` and ``testbed plan committee``: dishonest members, and the size that meets targets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from analysis.cli.bound.declaration import (
    Row,
    declare,
    finite,
    format_parameters,
    probability,
    results,
    value_or_reason,
)
from analysis.cli.bound.options import MOST_ROUNDS, Dishonest, Population, number_of, threshold_of
from testbed.cli.invocation import option
from testbed.committee.parameters import OVER_SELECTION
from testbed.errors import ExperimentError
from testbed.files import limits

if TYPE_CHECKING:
    from analysis.bounds.committee import Draw, Members, Server

_MOST_WEIGHTS = 10**6

Selection = Annotated[
    Literal["public-seed", "lotto-client-centric", "lotto-server-centric"],
    option(
        "NAME", "Selection of the members (committee.selection): public-seed, lotto-client-centric, -server-centric."
    ),
]
DropOut = Annotated[float, option("Q", "Probability that a client does not answer.", min=0, max=1)]
Rounds = Annotated[int, option("R", "Rounds of the training.", min=1, max=MOST_ROUNDS)]
ServesRounds = Annotated[
    int | None, option("r", "Number of rounds that a committee serves.  \\[default: all]", min=1, max=MOST_ROUNDS)
]
Tries = Annotated[
    int,
    option(
        "K", "Number of seeds that an attacker can choose from: 1 with a beacon, or if the PKI makes the keys.", min=1
    ),
]
ServerKind = Annotated[
    Literal["malicious", "semi-honest"],
    option(
        "KIND", "malicious: sends members different messages and needs 2t-s dishonest members; semi-honest: needs t."
    ),
]

_WHO = "--population 100000 --dishonest 5000"
_SYMBOLS = {
    "population": "n",
    "dishonest": "c",
    "size": "s",
    "threshold": "t",
    "over_selection": "a",
    "dropout": "dropout",
    "rounds": "R",
    "serves_rounds": "r",
    "tries": "tries",
    "target": "target",
    "failure_target": "failure target",
}
_LABELS = {
    "smallest_size": "smallest committee",
    "threshold": "threshold of this committee",
    "dishonest_expected": "expected number of dishonest members",
    "committee_broken": "Pr[{dishonest_break} or more dishonest members: a {server} server breaks the committee]",
    "threshold_dishonest": "Pr[{threshold} or more dishonest members: they reconstruct all secrets without the server]",
    "broken_ever": "Pr[any of {services} committees is broken]",
    "not_drawn": "Pr[too few members are selected and answer]",
    "too_few_answer": "Pr[fewer than {threshold} honest members answer in a round]",
    "round_fails": "Pr[a round is aborted for one of these two reasons]",
    "failing_rounds_expected": "expected number of aborted rounds of {rounds}",
}
_AT_MOST = ("too_few_answer", "round_fails", "failing_rounds_expected")
"""Bounds by sortition: they count as many dishonest members as a malicious server has; its own rounds would not end."""


def _text(row: Row) -> str:
    """Format a row; size and threshold are results of a plan, and parameters of a bound."""
    planned = "target" in row
    labels = {key: label for key, label in _LABELS.items() if planned or key != "threshold"}
    symbols = {key: symbol for key, symbol in _SYMBOLS.items() if not planned or key not in ("size", "threshold")}
    return f"{row['selection']}: {format_parameters(row, symbols)}\n{results(row, labels, _result)}"


def _result(row: Row, key: str) -> str:
    is_bound = key in _AT_MOST and row["selection"] != "public-seed"
    return f"{probability(row, key)}{'  (at most)' if is_bound else ''}"


@declare(
    _text,
    f"testbed bound committee {_WHO} --size 60 --threshold 40 --dropout 0.05 --rounds 500 --serves-rounds 50",
    "testbed bound committee --population 1000 --dishonest 50 --size 40 --selection lotto-client-centric --format json",
    then="Probabilities are exact for the worst server; upper bounds are marked 'at most'.",
)
def bound_committee(
    population: Population,
    dishonest: Dishonest,
    size: Annotated[int, option("S", "Number of members, s.", min=2, max=10_000)] = 60,
    threshold: Annotated[
        str | None,
        option("T", "Members that must answer: a number t, or a fraction of the members.  \\[default: two thirds]"),
    ] = None,
    selection: Selection = "public-seed",
    over_selection: Annotated[float, option("A", "Over-selection factor a of lotto-*, at least 1.")] = OVER_SELECTION,
    dropout: DropOut = 0.0,
    rounds: Rounds = 1,
    serves_rounds: ServesRounds = None,
    tries: Tries = 1,
    server: ServerKind = "malicious",
    weights: Annotated[
        Path | None,
        option(
            "FILE",
            "Selection weights of lotto-*, one per line; the clients with the largest weights are dishonest.",
        ),
    ] = None,
) -> Row:
    """Bound the failures of a committee of clients: too many dishonest members, too few answers.

    Derived in docs/how-to/choose-a-committee.md.
    """
    from analysis.bounds import committee

    numbers = _weights(weights)
    c = number_of(dishonest, population)
    draw = committee.Draw(population, c, selection, over_selection, dropout, numbers)
    t = committee.threshold_of(size, None if threshold is None else threshold_of(threshold))
    parameters = _parameters(draw, rounds, serves_rounds, tries, server)
    return parameters | _guarantees(draw.of(size), t, rounds, serves_rounds, tries, server)


@declare(
    _text,
    f"testbed plan committee {_WHO} --dropout 0.05 --target 1e-9 --failure-target 1e-3",
    f"testbed plan committee {_WHO} --selection lotto-client-centric --target 1e-9 --format json",
    then="The threshold is the smallest one that meets --target, because it tolerates the most dropouts.",
)
def plan_committee(
    population: Population,
    dishonest: Dishonest,
    target: Annotated[float, option("P", "Largest allowed probability that any committee is broken.")],
    failure_target: Annotated[
        float, option("P", "Largest allowed probability that a round is aborted because of the committee.")
    ] = 1e-3,
    selection: Selection = "public-seed",
    over_selection: Annotated[
        float | None,
        option("A", "Over-selection factor a of lotto-*.  \\[default: the factor with the smallest committee]"),
    ] = None,
    dropout: DropOut = 0.0,
    rounds: Rounds = 1,
    serves_rounds: ServesRounds = None,
    tries: Tries = 1,
    server: ServerKind = "malicious",
    largest: Annotated[int, option("S", "Largest size of the committee.", min=2, max=10_000)] = 1000,
) -> Row:
    """Find the smallest committee, and its threshold, that meets two targets: Pr[broken] and Pr[round aborted]."""
    from analysis.bounds import committee

    c = number_of(dishonest, population)
    draw = committee.Draw(population, c, selection, over_selection or OVER_SELECTION, dropout)
    targets = committee.Targets(target, failure_target, committee.services(rounds, serves_rounds), tries, server)
    if over_selection is None and draw.by_sortition:
        draw = committee.best_over_selection(draw, targets, largest) or draw
    row = _parameters(draw, rounds, serves_rounds, tries, server)
    row |= {"target": target, "failure_target": failure_target}
    smallest = committee.smallest_size(draw, targets, largest)
    if smallest is None:
        reason = f"no committee of up to {largest} members of this population meets both targets"
        return row | value_or_reason("smallest_size", None, reason)
    size, t = smallest
    guarantees = _guarantees(draw.of(size), t, rounds, serves_rounds, tries, server)
    return row | {"smallest_size": size} | guarantees


def _parameters(draw: "Draw", rounds: int, serves_rounds: int | None, tries: int, server: "Server") -> Row:
    row: Row = {"population": draw.population, "dishonest": draw.dishonest, "selection": draw.selection}
    if draw.by_sortition:
        row |= {"over_selection": float(draw.over_selection), "weights": "equal" if draw.weights is None else "given"}
    return row | {
        "dropout": draw.dropout,
        "rounds": rounds,
        **value_or_reason("serves_rounds", serves_rounds, "one committee serves to the end"),
        "tries": tries,
        "server": server,
    }


def _guarantees(
    members: "Members", threshold: int, rounds: int, serves_rounds: int | None, tries: int, server: "Server"
) -> Row:
    """Compute the guarantees of one committee, in one service and over a training."""
    from analysis.bounds import committee

    enough = committee.enough_to_break(members.size, threshold, server)
    draws = committee.services(rounds, serves_rounds)
    broken = members.at_least(enough)
    failed = committee.round_fails(members, threshold)
    return {
        "size": members.size,
        "threshold": threshold,
        "dishonest_expected": members.expected,
        "dishonest_break": enough,
        "committee_broken": broken,
        **finite("committee_broken_log10", members.log10_at_least(enough), "it cannot happen"),
        "threshold_dishonest": members.at_least(threshold),
        **finite("threshold_dishonest_log10", members.log10_at_least(threshold), "it cannot happen"),
        "services": draws,
        "broken_ever": committee.broken_ever(broken, draws, tries),
        "broken_ever_union": min(1.0, draws * tries * broken),
        "not_drawn": members.not_drawn(),
        "too_few_answer": members.too_few_answer(threshold),
        "round_fails": failed,
        "failing_rounds_expected": rounds * failed,
    }


def _weights(path: Path | None) -> tuple[int, ...] | None:
    """Read the whole numbers of a file, one per line."""
    if path is None:
        return None
    try:
        weights = tuple(int(line) for line in limits.text(path, limits.NUMBERS_BYTES).split())
    except limits.TooLarge as why:
        raise ExperimentError(f"--weights: {path}: {why}") from None
    except OSError:
        raise ExperimentError(f"--weights: {path}: not a readable file") from None
    except ValueError:
        raise ExperimentError(
            f"--weights: {path} has a line that is not a whole number; give one weight per line"
        ) from None
    if len(weights) > _MOST_WEIGHTS:
        raise ExperimentError(f"--weights: {path}: {len(weights)} lines; at most {_MOST_WEIGHTS}")
    return weights
