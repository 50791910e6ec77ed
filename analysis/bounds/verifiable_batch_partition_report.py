"""The bounds of verifiable batch partition as one flat object; see `analysis.bounds.rows` for what holds of it."""

from fractions import Fraction

from analysis.bounds import verifiable_batch_partition as bounds
from analysis.bounds.lotto import threshold_of
from analysis.bounds.rows import Row, finite

_MOST_DISHONEST = 100_000
_MOST_WORK = 100_000_000


def verifiable_bounds(
    setting: bounds.Setting, eta: float | Fraction, threshold: int | float, dropout: float | Fraction
) -> Row:
    """One round's guarantees, and how many honest members a batch keeps under random assignment.

    Raises:
        ValueError: a number is out of range.
    """
    if setting.dishonest > _MOST_DISHONEST:
        raise ValueError(f"dishonest: {setting.dishonest}; at most {_MOST_DISHONEST}, beyond which this takes minutes")
    if setting.dishonest * setting.participants > _MOST_WORK:
        raise ValueError(
            f"participants: {setting.participants} with {setting.dishonest} dishonest; a product up to {_MOST_WORK}, "
            "beyond which this takes minutes"
        )
    allowed, tolerated = bounds.share_allowed(setting, eta), bounds.tolerated(setting, threshold)
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
        "candidates_suffice": bounds.candidates_suffice(setting, dropout),
        "candidates_suffice_denied": bounds.candidates_suffice(setting, dropout, setting.dishonest),
        "dishonest_allowed": allowed,
        **_exceeding("dishonest_fraction_exceeds", setting, allowed),
        "dishonest_tolerated": tolerated,
        **_exceeding("secagg_fails", setting, tolerated),
    }
    for honest in range(2, setting.privacy + 1):
        exact = bounds.too_few_honest_exactly(setting, honest)
        name = f"fewer_than_{honest}_honest"
        row[name] = bounds.too_few_honest(setting, honest) if exact is None else exact
        row[f"{name}_by"] = "union bound" if exact is None else "exact"
    return row


def _exceeding(name: str, setting: bounds.Setting, above: int) -> Row:
    """The upper bound over all placements, how it was found, and what equal shares attain."""
    value, digits, how = bounds.bound(setting, above)
    attained, share = bounds.exceeding_shares(setting, above)
    row: Row = {name: value, f"{name}_by": how, **finite(f"{name}_log10", digits, "it cannot happen")}
    row |= {f"{name}_attained": attained, f"{name}_attained_members": share}
    return row | {f"{name}_random": 0.0 if value == 0.0 == attained else bounds.exceeds_at_random(setting, above)}
