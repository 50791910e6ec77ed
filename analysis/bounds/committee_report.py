"""Bounds on committees as flat objects, for scripts and for the command."""

from math import isfinite

from analysis.bounds import committee
from analysis.bounds.committee import Draw, Members, Server, Targets
from analysis.bounds.rows import Row, finite, found, given, number, results
from testbed.committee.parameters import MOST_MEMBERS


def committee_bounds(
    draw: Draw,
    size: int,
    threshold: int | float | None,
    rounds: int,
    serves_rounds: int | None,
    tries: int = 1,
    server: Server = "malicious",
) -> Row:
    """One committee, in one service and over a training.

    Args:
        draw: from whom, and how.
        size: s.
        threshold: t, a number or a fraction of s; None: two thirds of it.
        rounds: R, at least 1.
        serves_rounds: rounds of a service; None: one committee serves to the end.
        tries: seeds that somebody may choose from.
        server: what it does with dishonest members.

    Raises:
        ValueError: a number is out of range.
    """
    t = committee.threshold_of(size, threshold)
    return _setting(draw, rounds, serves_rounds, tries, server) | _kept(
        draw.of(size), t, rounds, serves_rounds, tries, server
    )


def committee_plan(
    draw: Draw,
    targets: Targets,
    rounds: int,
    serves_rounds: int | None,
    largest: int = MOST_MEMBERS,
    any_over_selection: bool = False,
) -> Row:
    """The smallest committee that keeps both targets, and what it keeps; arguments as above.

    With `any_over_selection`, by sortition, with the over-selection factor for which it is smallest.
    """
    if any_over_selection and draw.by_sortition:
        draw = committee.best_over_selection(draw, targets, largest) or draw
    row = _setting(draw, rounds, serves_rounds, targets.tries, targets.server)
    row |= {"target": targets.broken, "failure_target": targets.failed}
    smallest = committee.smallest_size(draw, targets, largest)
    reason = f"no committee of up to {largest} members of this population keeps both targets"
    row |= found("smallest_size", None if smallest is None else smallest[0], reason)
    if smallest is None:
        return row
    size, threshold = smallest
    return row | _kept(draw.of(size), threshold, rounds, serves_rounds, targets.tries, targets.server)


def _setting(draw: Draw, rounds: int, serves_rounds: int | None, tries: int, server: Server) -> Row:
    row: Row = {"population": draw.population, "dishonest": draw.dishonest, "selection": draw.selection}
    if draw.by_sortition:
        row |= {"over_selection": float(draw.over_selection), "weights": "equal" if draw.weights is None else "given"}
    return row | {
        "dropout": draw.dropout,
        "rounds": rounds,
        **found("serves_rounds", serves_rounds, "one committee serves to the end"),
        "tries": tries,
        "server": server,
    }


def _kept(members: Members, threshold: int, rounds: int, serves_rounds: int | None, tries: int, server: Server) -> Row:
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


# -- as text ----------------------------------------------------------------------------------------------------------

_GIVEN = {
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
    "threshold": "its threshold",
    "dishonest_expected": "dishonest members, expected",
    "committee_broken": "{dishonest_break} or more dishonest, enough for a {server} server",
    "threshold_dishonest": "{threshold} or more: they know all secrets by themselves",
    "broken_ever": "some service of {services} is broken",
    "not_drawn": "too few are drawn and answer",
    "too_few_answer": "fewer than {threshold} honest members answer in a round",
    "round_fails": "a round ends for either",
    "failing_rounds_expected": "such rounds of {rounds}, expected",
}
_AT_MOST = ("too_few_answer", "round_fails", "failing_rounds_expected")
"""By sortition: as many dishonest members are counted as a malicious server has, which would not end its own rounds."""


def text(row: Row) -> str:
    """What one of the functions above found, for a person."""
    planned = "target" in row
    labels = _LABELS if planned else {key: label for key, label in _LABELS.items() if key != "threshold"}
    symbols = {key: symbol for key, symbol in _GIVEN.items() if not planned or key not in ("size", "threshold")}
    return f"{row['selection']}: {given(row, symbols)}\n{results(row, labels, _value)}"


def _value(row: Row, key: str) -> str:
    digits = row.get(f"{key}_log10")
    if row[key] == 0.0 and digits is not None and isfinite(digits):
        return f"10^{digits:.1f}"
    return f"{number(row[key])}{'  (at most)' if key in _AT_MOST and row['selection'] != 'public-seed' else ''}"
