"""Verifiable batch partition's guarantees as a flat object, for scripts and for the command."""

from fractions import Fraction

from analysis.bounds.honest_members import too_few_honest, too_few_honest_exactly
from analysis.bounds.lotto import threshold_of
from analysis.bounds.rows import Row, finite, given, number, results
from analysis.bounds.verifiable_batch_partition import (
    Setting,
    bound,
    candidates_suffice,
    exceeding_shares,
    exceeds_at_random,
    share_allowed,
    tolerated,
)

_MOST_DISHONEST = 100_000
_MOST_WORK = 100_000_000


def check_work(setting: Setting) -> None:
    """Raise `ValueError` for numbers with which the bounds take minutes."""
    if setting.dishonest > _MOST_DISHONEST:
        raise ValueError(f"dishonest: {setting.dishonest}; at most {_MOST_DISHONEST}, beyond which this takes minutes")
    if setting.dishonest * setting.participants > _MOST_WORK:
        raise ValueError(
            f"participants: {setting.participants} with {setting.dishonest} dishonest; a product up to {_MOST_WORK}, "
            "beyond which this takes minutes"
        )


def verifiable_bounds(
    setting: Setting, eta: float | Fraction, threshold: int | float, dropout: float | Fraction
) -> Row:
    """One round's guarantees, and how many honest members a batch keeps under random assignment.

    Raises:
        ValueError: a number is out of range.
    """
    check_work(setting)
    due, withstood = share_allowed(setting, eta), tolerated(setting, threshold)
    row: Row = {
        "population": setting.population,
        "dishonest": setting.dishonest,
        "participants": setting.participants,
        "privacy": setting.privacy,
        "over_selection": float(setting.over_selection),
        "min_population": setting.least,
        "eta": float(eta),
        "threshold": threshold_of(setting.participants, threshold),
        "dropout": float(dropout),
        "batches": setting.batches,
        "batches_wanted": setting.wanted,
        "largest_batch": max(setting.sizes),
        "selection_probability": float(setting.p),
        "candidates_suffice": candidates_suffice(setting, dropout),
        "candidates_suffice_denied": candidates_suffice(setting, dropout, setting.dishonest),
        "dishonest_allowed": due,
        **_exceeding("dishonest_fraction_exceeds", setting, due),
        "dishonest_tolerated": withstood,
        **_exceeding("secagg_fails", setting, withstood),
    }
    for honest in range(2, setting.privacy + 1):
        exact = too_few_honest_exactly(setting, honest)
        name = f"fewer_than_{honest}_honest"
        row[name] = too_few_honest(setting, honest) if exact is None else exact
        row[f"{name}_by"] = "union bound" if exact is None else "exact"
    return row


def _exceeding(name: str, setting: Setting, above: int) -> Row:
    """The upper bound over all placements, how it was found, and what equal shares attain."""
    value, digits, how = bound(setting, above)
    attained, share = exceeding_shares(setting, above)
    row: Row = {name: value, f"{name}_by": how, **finite(f"{name}_log10", digits, "it cannot happen")}
    row |= {f"{name}_attained": attained, f"{name}_attained_members": share}
    return row | {f"{name}_random": 0.0 if value == 0.0 == attained else exceeds_at_random(setting, above)}


# -- as text ----------------------------------------------------------------------------------------------------------

_GIVEN = {
    "population": "n",
    "dishonest": "c",
    "participants": "K",
    "privacy": "T",
    "over_selection": "a",
    "min_population": "n_min",
    "eta": "eta",
    "threshold": "t",
    "dropout": "dropout",
}
_LABELS = {
    "selection_probability": "a batch of {largest_batch} is a candidate",
    "candidates_suffice": "at least {batches_wanted} of {batches} batches are candidates",
    "candidates_suffice_denied": "the same, when {dishonest} batches are denied",
    "dishonest_fraction_exceeds": "more than {dishonest_allowed} of {participants} dishonest",
    "dishonest_fraction_exceeds_random": "- when batches are drawn at random",
    "secagg_fails": "SecAgg fails: more than {dishonest_tolerated} dishonest",
    "secagg_fails_random": "- when batches are drawn at random",
    "fewer_than_2_honest": "some batch has 1 honest member",
}
_EXACT = ("selection_probability", "candidates_suffice", "candidates_suffice_denied")
_TINY = 1e-300  # what reads 0 is below it


def text(row: Row) -> str:
    """What `verifiable_bounds` found, for a person."""
    several = range(3, row["privacy"] + 1)
    honest = {f"fewer_than_{least}_honest": f"some batch has 1 to {least - 1} honest members" for least in several}
    return f"{given(row, _GIVEN)}\n{results(row, _LABELS | honest, _value)}"


def _value(row: Row, key: str) -> str:
    """A probability; of an enclosed one both sides."""
    if key in _EXACT:
        return number(row[key])
    if key.endswith("_random"):
        return f"at most {number(row[key] or _TINY)}"
    if f"{key}_attained" not in row:
        return f"{number(row[key])}{'  (at most)' if row[f'{key}_by'] == 'union bound' else ''}"
    digits = row[f"{key}_log10"]
    if digits is None:
        return "0  (it cannot happen)"
    most = f"10^{digits:.1f}" if row[key] == 0.0 else number(row[key])
    members = row[f"{key}_attained_members"]
    if row[f"{key}_attained"] == 0.0:
        return f"at most {most}"
    return f"at most {most}  ({number(row[f'{key}_attained'])} with {members} in a batch)"
