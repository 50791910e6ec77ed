"""``testbed bound verifiable-batch-partition`` and ``testbed plan batch-partition``: batches that clients verify."""

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated

from analysis.cli.bound.declaration import (
    Row,
    declare,
    finite,
    format_parameters,
    number,
    results,
    target_line,
    value_or_reason,
)
from analysis.cli.bound.options import (
    LARGE,
    Dishonest,
    DropOut,
    Eta,
    MinPopulation,
    PlannedRounds,
    Population,
    Sufficiency,
    Target,
    Threshold,
    number_of,
    threshold_of,
)
from testbed.cli.invocation import option

if TYPE_CHECKING:
    from analysis.bounds.verifiable_batch_partition import BatchSetting

Participants = Annotated[int, option("K", "Participants of a round, K.", min=1)]
OverSelection = Annotated[
    float | None,
    option("A", "Over-selection factor a, at least 1.  \\[default: 1.3, or N/K where that is smaller]"),
]

_USUAL_OVER_SELECTION = Fraction(13, 10)
_SYMBOLS = {
    "population": "n",
    "dishonest": "c",
    "participants": "K",
    "privacy": "T",
    "over_selection": "a",
    "min_population": "n_min",
    "eta": "eta",
    "threshold": "t",
    "dropout": "dropout",
    "sufficiency": "sufficiency",
}


def _setting(
    population: int, dishonest: str, participants: int, privacy: int, over_selection: float | None, least: int | None
) -> "BatchSetting":
    """Return the federation; without a factor, with the usual one as far as a small population allows it."""
    from analysis.bounds.verifiable_batch_partition import BatchSetting

    c = number_of(dishonest, population)
    usual = max(Fraction(1), min(_USUAL_OVER_SELECTION, Fraction(population, participants)))
    return BatchSetting(
        population, participants, privacy, usual if over_selection is None else over_selection, c, least
    )


# -- the bound --------------------------------------------------------------------------------------------------------

_LABELS = {
    "selection_probability": "Pr[a batch of {largest_batch} is a candidate]",
    "candidates_suffice": "Pr[at least {batches_wanted} of {batches} batches are candidates]",
    "candidates_suffice_denied": "- if dishonest clients deny {dishonest} batches",
    "dishonest_fraction_exceeds": "Pr[more than {dishonest_allowed} of {participants} dishonest]",
    "dishonest_fraction_exceeds_random": "- if batches are selected at random",
    "secagg_fails": "Pr[SecAgg fails: more than {dishonest_tolerated} dishonest participants]",
    "secagg_fails_random": "- if batches are selected at random",
    "fewer_than_2_honest": "Pr[any batch has 1 honest member]",
}
_TINY = 1e-300  # a probability that reads 0 is below this


def _text(row: Row) -> str:
    several = range(3, row["privacy"] + 1)
    honest = {f"fewer_than_{least}_honest": f"Pr[any batch has 1 to {least - 1} honest members]" for least in several}
    return f"{format_parameters(row, _SYMBOLS)}\n{results(row, _LABELS | honest, _result)}"


def _result(row: Row, key: str) -> str:
    """Format a probability; with bounds from above and below, both."""
    if key.endswith("_random"):
        return f"at most {number(row[key] or _TINY)}"
    if f"{key}_attained" not in row:
        return f"{number(row[key])}{'  (at most)' if row.get(f'{key}_by') == 'union bound' else ''}"
    digits = row[f"{key}_log10"]
    if digits is None:
        return "0  (it cannot happen)"
    most = f"10^{digits:.1f}" if row[key] == 0.0 else number(row[key])
    members = row[f"{key}_attained_members"]
    if row[f"{key}_attained"] == 0.0:
        return f"at most {most}"
    return f"at most {most}  ({number(row[f'{key}_attained'])} with {members} in a batch)"


@declare(
    _text,
    f"testbed bound verifiable-batch-partition {LARGE} --privacy 5 --over-selection 1.5 --eta 10 --threshold 0.7",
    "testbed bound verifiable-batch-partition --population 120 --dishonest 12 --participants 12 --privacy 3 "
    "--over-selection 2 --dropout 0.1 --format json",
    then="The dishonest clients are placed in the worst way; a value in brackets is reached by some placement.",
)
def bound_verifiable(
    population: Population,
    dishonest: Dishonest,
    participants: Participants,
    privacy: Annotated[int, option("T", "Batch size T, which divides K.", min=1)],
    over_selection: OverSelection = None,
    min_population: MinPopulation = None,
    eta: Eta = 10.0,
    threshold: Threshold = "0.7",
    dropout: DropOut = 0.0,
) -> Row:
    """Bound verifiable batch partition in one round: candidate batches, dishonest participants, SecAgg.

    Over many rounds: the number of honest members that each batch keeps. Derived in
    docs/explanation/verifiable-batch-partition.md.
    """
    from analysis.bounds import lotto
    from analysis.bounds import verifiable_batch_partition as batches
    from analysis.bounds.honest_members import too_few_honest, too_few_honest_exactly

    setting = _setting(population, dishonest, participants, privacy, over_selection, min_population)
    t = threshold_of(threshold)
    batches.check_work(setting)
    due, withstood = batches.share_allowed(setting, eta), batches.tolerated(setting, t)
    row: Row = {
        "population": population,
        "dishonest": setting.dishonest,
        "participants": participants,
        "privacy": privacy,
        "over_selection": float(setting.over_selection),
        "min_population": setting.least,
        "eta": eta,
        "threshold": lotto.threshold_of(participants, t),
        "dropout": dropout,
        "batches": setting.batches,
        "batches_wanted": setting.batches_of_round,
        "largest_batch": max(setting.sizes),
        "selection_probability": float(setting.p),
        "candidates_suffice": batches.candidates_suffice(setting, dropout),
        "candidates_suffice_denied": batches.candidates_suffice(setting, dropout, setting.dishonest),
        "dishonest_allowed": due,
        **_exceeding("dishonest_fraction_exceeds", setting, due),
        "dishonest_tolerated": withstood,
        **_exceeding("secagg_fails", setting, withstood),
    }
    for honest in range(2, privacy + 1):
        exact = too_few_honest_exactly(setting, honest)
        name = f"fewer_than_{honest}_honest"
        row[name] = too_few_honest(setting, honest) if exact is None else exact
        row[f"{name}_by"] = "union bound" if exact is None else "exact"
    return row


def _exceeding(name: str, setting: "BatchSetting", above: int) -> Row:
    """Return the upper bound over all placements, its derivation, and the probability that equal shares attain."""
    from analysis.bounds.verifiable_batch_partition import bound, exceeding_shares, exceeds_at_random

    value, digits, how = bound(setting, above)
    attained, share = exceeding_shares(setting, above)
    row: Row = {name: value, f"{name}_by": how, **finite(f"{name}_log10", digits, "it cannot happen")}
    row |= {f"{name}_attained": attained, f"{name}_attained_members": share}
    return row | {f"{name}_random": 0.0 if value == 0.0 == attained else exceeds_at_random(setting, above)}


# -- the plan ---------------------------------------------------------------------------------------------------------

_PLAN_LABELS = {
    "largest_privacy": "largest batch size T (selection.privacy)",
    "largest_privacy_over_selected": "largest batch size T with more over-selection",
    "batches_of_a_round": "batches per round, K/T",
    "batches": "batches in the population",
    "fewer_than_2_honest": "Pr[any batch has 1 honest member] if clients are assigned at random",
}
_HEADS = (
    "Batch size",
    "Pr[SecAgg fails] per round, at most",
    "target met",
    "Pr[enough candidates]",
    "sufficiency met",
    "over-selection factor for both",
)
_PROVEN = (
    "Bounds for verifiable-batch-partition with one participant list per round. The server may list any candidate\n"
    "batches, and the dishonest clients are in the worst places. Several lists per round are not covered. No bound\n"
    "holds against a server that selects the batches itself (batch-partition)."
)


def _plan_text(row: Row) -> str:
    from analysis.bounds.batch_partition_plan import divisors
    from analysis.tables import Table, render

    lines = []
    for size in divisors(row["participants"]):
        fails, enough = row[f"secagg_fails_at_{size}"], row[f"candidates_suffice_at_{size}"]
        factor = row[f"smallest_over_selection_at_{size}"]
        is_secure, is_often = fails <= row["target_in_a_round"], enough >= row["sufficiency"]
        cells = [number(size), number(fails), "yes" if is_secure else "no", number(enough), "yes" if is_often else "no"]
        lines.append([*cells, "none" if factor is None else number(factor)])
    table, listed = render(Table(_HEADS, lines), "text"), results(row, _PLAN_LABELS, _planned)
    return f"{format_parameters(row, _SYMBOLS)}\n{target_line(row)}\n\n{table}\n{listed}\n{_PROVEN}\n"


def _planned(row: Row, key: str) -> str:
    """Format a result; for a batch size that needs more over-selection, with the option for it."""
    if key == "largest_privacy_over_selected":
        factor = row[f"smallest_over_selection_at_{row[key]}"]
        return f"{number(row[key])}  (--over-selection {number(factor)})"
    return number(row[key])


@declare(
    _plan_text,
    f"testbed plan batch-partition {LARGE} --over-selection 1.5 --target 1e-6 --threshold 0.7",
    "testbed plan batch-partition --population 5000 --dishonest 25 --participants 60 --dropout 0.05 "
    "--over-selection 2 --threshold 0.8 --target 1e-6 --rounds 100",
    then="The plan is the largest batch size. `testbed bound verifiable-batch-partition` prints the values of one.",
)
def plan_batch_partition(
    population: Population,
    dishonest: Dishonest,
    participants: Participants,
    target: Target,
    over_selection: OverSelection = None,
    min_population: MinPopulation = None,
    threshold: Threshold = "0.7",
    dropout: DropOut = 0.0,
    sufficiency: Sufficiency = 0.99,
    rounds: PlannedRounds = None,
) -> Row:
    """Find verifiable batch partition's largest batch size for a target, or the parameter to change.

    Whole batches are candidates. A larger batch protects its members over more rounds, but it is available less often
    and may contain more dishonest participants. The command tries every batch size that divides K, with the given
    over-selection and with more.
    """
    from dataclasses import replace

    from analysis.bounds import batch_partition_plan as plans
    from analysis.bounds.checks import require_honest_clients, require_inside
    from analysis.bounds.honest_members import too_few_honest, too_few_honest_exactly
    from analysis.bounds.verifiable_batch_partition import check_work

    single = _setting(population, dishonest, participants, 1, over_selection, min_population)
    a_round = target if rounds is None else target / rounds
    needs = plans.BatchRequirements(threshold_of(threshold), dropout, a_round, sufficiency)
    require_inside(target=target, sufficiency=sufficiency)
    require_honest_clients(population, single.dishonest)
    check_work(single)
    settings = {size: replace(single, privacy=size) for size in plans.divisors(participants)}
    fails = {size: needs.fails(setting) for size, setting in settings.items()}
    enough = {size: needs.enough(setting) for size, setting in settings.items()}
    factors = {size: needs.smallest_factor(setting, fails[size], enough[size]) for size, setting in settings.items()}
    row: Row = {
        "population": population,
        "dishonest": single.dishonest,
        "participants": participants,
        "over_selection": float(single.over_selection),
        "min_population": single.least,
        "threshold": needs.threshold,
        "dropout": dropout,
        "target": target,
        "sufficiency": sufficiency,
        **({} if rounds is None else {"rounds": rounds}),
        "target_in_a_round": a_round,
        **{f"secagg_fails_at_{size}": value for size, value in fails.items()},
        **{f"candidates_suffice_at_{size}": value for size, value in enough.items()},
    }
    for size, factor in factors.items():
        value = None if factor is None else float(factor)
        row |= value_or_reason(f"smallest_over_selection_at_{size}", value, "no over-selection meets the target")
    as_given = Fraction(str(single.over_selection))
    largest = max((size for size, factor in factors.items() if factor == as_given), default=None)
    row |= value_or_reason("largest_privacy", largest, "" if largest is not None else needs.way_out(single))
    if largest is not None:
        best = settings[largest]
        row |= {"batches_of_a_round": best.batches_of_round, "batches": best.batches}
        if largest > 1:
            exact = too_few_honest_exactly(best, 2)
            row["fewer_than_2_honest"] = too_few_honest(best, 2) if exact is None else exact
    over_selected = max((size for size, factor in factors.items() if factor is not None), default=0)
    if over_selected > (largest or 0):
        row["largest_privacy_over_selected"] = over_selected
    return row
