"""The batch size of verifiable batch partition that meets a target, and what to change where none does.

A larger batch T protects a client over more rounds, and is worse twice: it is less often whole, so that more rounds
are skipped, and a few lucky batches bring more dishonest participants. The plan is the largest T, among the divisors of
K, for which both stay within what is asked.

What is proven is that of `verifiable_batch_partition`: a malicious server lists the candidate batches that it likes
best, and may skip rounds. Where the server draws the batches itself (`batch-partition`) nothing holds against it.
"""

from bisect import bisect_left
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor

from analysis.bounds.honest_members import too_few_honest, too_few_honest_exactly
from analysis.bounds.lotto import MAXIMUM_OVER_SELECTION
from analysis.bounds.rows import (
    Row,
    found,
    given,
    number,
    require_honest_clients,
    require_inside,
    results,
    target_line,
)
from analysis.bounds.verifiable_batch_partition import (
    Setting,
    bound,
    candidates_suffice,
    tolerated,
)
from analysis.bounds.verifiable_batch_partition_report import check_work
from analysis.tables import Table
from analysis.tables import render as render_table

_STEPS = 20  # of over-selection, to a factor of 0.05


def batch_partition_plan(
    setting: Setting,
    threshold: int | float,
    dropout: float | Fraction,
    target: float,
    sufficiency: float,
    rounds: int | None = None,
) -> Row:
    """The largest batch size that meets a target, with what every batch size comes to.

    Args:
        setting: with any batch size, e.g. 1: it is what is planned.
        threshold: t of SecAgg, a number or a fraction of the participants.
        dropout: a client's chance not to answer.
        target: what the probability that SecAgg fails must not exceed: in one round, or with `rounds` in any of them.
        sufficiency: what the probability of enough whole candidate batches must reach, in a round.
        rounds: R, of the training; the bound of a round times R, whichever rounds the server lets happen.

    Returns:
        One flat object; for each divisor T of K ``secagg_fails_at_T``, ``candidates_suffice_at_T`` and
        ``smallest_over_selection_at_T``, with which T meets the target.

    Raises:
        ValueError: a number is out of range.
    """
    require_inside(target=target, sufficiency=sufficiency)
    require_honest_clients(setting.population, setting.dishonest)
    check_work(setting)
    a_round = target if rounds is None else target / rounds
    sizes = _divisors(setting.participants)
    settings = [replace(setting, privacy=size) for size in sizes]
    fails = [bound(one, tolerated(one, threshold))[0] for one in settings]
    suffice = [candidates_suffice(one, dropout) for one in settings]
    factors = {
        size: _factor_of(one, fail, enough, threshold, dropout, a_round, sufficiency)
        for size, one, fail, enough in zip(sizes, settings, fails, suffice, strict=True)
    }
    given_factor = Fraction(str(setting.over_selection))
    meeting = [one for one in settings if factors[one.privacy] == given_factor]
    best = max(meeting, key=lambda one: one.privacy, default=None)
    row: Row = {
        "population": setting.population,
        "dishonest": setting.dishonest,
        "participants": setting.participants,
        "over_selection": float(setting.over_selection),
        "min_population": setting.least,
        "threshold": threshold,
        "dropout": float(dropout),
        "target": target,
        "sufficiency": sufficiency,
    }
    row |= {"rounds": rounds} if rounds is not None else {}
    row |= {"target_in_a_round": a_round}
    row |= {f"secagg_fails_at_{size}": fail for size, fail in zip(sizes, fails, strict=True)}
    row |= {f"candidates_suffice_at_{size}": enough for size, enough in zip(sizes, suffice, strict=True)}
    for size, factor in factors.items():
        value = None if factor is None else float(factor)
        row |= found(f"smallest_over_selection_at_{size}", value, "no over-selection meets the target")
    why = "" if best is not None else _way_out(settings[0], threshold, dropout, a_round, sufficiency)
    row |= found("largest_privacy", None if best is None else best.privacy, why)
    if best is not None:
        row |= {"batches_of_a_round": best.wanted, "batches": best.batches}
        if best.privacy > 1:
            exact = too_few_honest_exactly(best, 2)
            row["fewer_than_2_honest"] = too_few_honest(best, 2) if exact is None else exact
    larger = max((size for size, factor in factors.items() if factor is not None), default=0)
    if larger > (0 if best is None else best.privacy):
        row["largest_privacy_over_selected"] = larger
    return row


def _factor_of(
    setting: Setting,
    fails: float,
    enough: float,
    threshold: int | float,
    dropout: float | Fraction,
    a_round: float,
    sufficiency: float,
) -> Fraction | None:
    """The smallest over-selection, from the one that is given, with which this batch size meets the target.

    Args:
        setting: with the batch size.
        fails, enough: its probabilities as given, that SecAgg fails and that there are enough candidates.
        threshold, dropout, sufficiency: see `batch_partition_plan`.
        a_round: the target of one round.
    """
    if fails > a_round:
        return None  # a larger factor makes it worse
    if enough >= sufficiency:
        return Fraction(str(setting.over_selection))
    factor = smallest_over_selection(setting, dropout, sufficiency)
    if factor is None:
        return None
    more = replace(setting, over_selection=factor)
    return factor if bound(more, tolerated(more, threshold))[0] <= a_round else None


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]


def _way_out(
    single: Setting, threshold: int | float, dropout: float | Fraction, a_round: float, sufficiency: float
) -> str:
    """Why not even batches of 1 will do, and which parameters to change so that they do."""
    fails, enough = bound(single, tolerated(single, threshold))[0], candidates_suffice(single, dropout)
    reasons, changes = [], []
    if fails > a_round:
        reasons.append(f"SecAgg fails with a probability of up to {number(fails)} in a round")
    if enough < sufficiency:
        reasons.append(f"only {number(100 * enough)}% of the rounds have enough candidates")
        factor = smallest_over_selection(single, dropout, sufficiency)
        if factor is None:
            return f"{_said(reasons)}; no over-selection is enough: take fewer --participants or a lower --sufficiency"
        single = replace(single, over_selection=factor)
        changes.append(f"--over-selection {float(factor):g}")
    if bound(single, tolerated(single, threshold))[0] > a_round:
        least = smallest_threshold(single, a_round)
        if least is None:
            return (
                f"{_said(reasons)}; no threshold is enough: take more --participants, a larger --min-population or a "
                "higher --target"
            )
        changes.append(f"--threshold {least}")
    return f"{_said(reasons)}; batches of 1 meet the target with {' and '.join(changes)}"


def _said(reasons: list[str]) -> str:
    return f"even with batches of 1 {', and '.join(reasons)}"


def smallest_threshold(setting: Setting, target: float) -> int | None:
    """The smallest t, up to K, with Pr[SecAgg fails] <= target in a round; None: there is none."""
    for t in range(setting.participants // 2 + 1, setting.participants + 1):
        if bound(setting, tolerated(setting, t))[0] <= target:
            return t
    return None


def smallest_over_selection(setting: Setting, dropout: float | Fraction, sufficiency: float) -> Fraction | None:
    """The smallest a, in steps of 0.05, with which enough batches are candidates; None: there is none up to n/K."""
    most = min(Fraction(MAXIMUM_OVER_SELECTION), Fraction(setting.population, setting.participants))
    steps = range(ceil(Fraction(str(setting.over_selection)) * _STEPS), floor(most * _STEPS) + 1)

    def is_enough(step: int) -> bool:
        factor = Fraction(step, _STEPS)
        return candidates_suffice(replace(setting, over_selection=factor), dropout) >= sufficiency

    place = bisect_left(steps, True, key=is_enough)  # more candidates with every step
    return Fraction(steps[place], _STEPS) if place < len(steps) else None


# -- as text ----------------------------------------------------------------------------------------------------------

_GIVEN = {
    "population": "n",
    "dishonest": "c",
    "participants": "K",
    "over_selection": "a",
    "min_population": "n_min",
    "threshold": "t",
    "dropout": "dropout",
    "sufficiency": "sufficiency",
}
_LABELS = {
    "largest_privacy": "largest batch size T (selection.privacy)",
    "largest_privacy_over_selected": "larger batch size T, with more over-selection",
    "batches_of_a_round": "batches of a round, K/T",
    "batches": "batches of the population",
    "fewer_than_2_honest": "some batch has 1 honest member, if clients are assigned at random",
}
_PROVEN = (
    "Proven for verifiable-batch-partition with one list a round: the server lists the candidate batches that it\n"
    "likes best, and the dishonest clients sit where it is worst. Several lists in a round are not covered. Where the\n"
    "server draws the batches itself (batch-partition), nothing holds against it."
)


def text(row: Row) -> str:
    """What `batch_partition_plan` found, for a person."""
    heads = (
        "Batch size",
        "SecAgg fails in a round, at most",
        "secure enough",
        "enough candidates",
        "often enough",
        "over-selection for both",
    )
    lines = []
    for size in _divisors(row["participants"]):
        fails, enough = row[f"secagg_fails_at_{size}"], row[f"candidates_suffice_at_{size}"]
        factor = row[f"smallest_over_selection_at_{size}"]
        lines.append(
            (
                number(size),
                number(fails),
                "yes" if fails <= row["target_in_a_round"] else "no",
                number(enough),
                "yes" if enough >= row["sufficiency"] else "no",
                "none" if factor is None else number(factor),
            )
        )
    table = render_table(Table(heads, lines), "text")
    return f"{given(row, _GIVEN)}\n{target_line(row)}\n\n{table}\n{results(row, _LABELS, _value)}\n{_PROVEN}\n"


def _value(row: Row, key: str) -> str:
    """A result; of a batch size that needs more over-selection, the option that gives it."""
    if key == "largest_privacy_over_selected":
        factor = row[f"smallest_over_selection_at_{row[key]}"]
        return f"{number(row[key])}  (--over-selection {number(factor)})"
    return number(row[key])
