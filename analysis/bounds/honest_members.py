"""Number of honest members that batches of verifiable batch partition keep, when clients are assigned at random.

Over many rounds this is the privacy against colluding clients. Derived in
docs/explanation/verifiable-batch-partition.md.
"""

from fractions import Fraction
from math import comb

from analysis.bounds.verifiable_batch_partition import WORK, BatchSetting


def too_few_honest(setting: BatchSetting, honest: int) -> float:
    """Bound Pr[some batch has honest members, but fewer than `honest`], for c dishonest clients assigned at random.

    Dishonest members subtract their own updates: over any number of rounds the server then still sees only sums over
    all honest members of a batch.

    Args:
        setting: the federation.
        honest: number of honest members.
    """
    # A union bound over the batches of exact hypergeometric probabilities.
    n, c = setting.population, setting.dishonest
    ways = sum(
        count * sum(comb(size, j) * comb(n - size, c - j) for j in _too_many(size, honest) if 0 <= c - j <= n - size)
        for size, count in setting.sizes.items()
    )
    return float(min(Fraction(1), Fraction(ways, comb(n, c))))  # the binomials are beyond all doubles


def too_few_honest_exactly(setting: BatchSetting, honest: int) -> float | None:
    """Return the probability that `too_few_honest` bounds, exactly; None if that takes too long.

    Args:
        setting: the federation.
        honest: number of honest members, from 1 to the smallest batch size.

    Raises:
        ValueError: if `honest` is out of range.
    """
    # The assignments without such a batch are the coefficient of y^c in the product over batches of
    # sum_j C(size, j) y^j, j over the allowed numbers of dishonest members. Powers by Miller's recurrence, in integers.
    n, c = setting.population, setting.dishonest
    # With more, a batch without dishonest members would count as bad: the polynomial's constant term must be 1.
    if not 1 <= honest <= min(setting.sizes):
        raise ValueError(f"honest: {honest}; must be from 1 to the smallest batch size, {min(setting.sizes)}")
    if c * c * max(setting.sizes) * (n.bit_length() + 1) > WORK:
        return None
    product = [1]
    for size, count in setting.sizes.items():
        bad = set(_too_many(size, honest))
        polynomial = [0 if j in bad else comb(size, j) for j in range(size + 1)]
        product = _coefficients(product, _power(polynomial, count, c), c)
    without = product[c] if c < len(product) else 0
    return float(1 - Fraction(without, comb(n, c)))


def _too_many(size: int, honest: int) -> range:
    """Return the numbers of dishonest members that leave some honest ones, but fewer than `honest`."""
    return range(max(0, size - honest + 1), size)


def _power(polynomial: list[int], exponent: int, last: int) -> list[int]:
    """Return coefficients 0..last of a power of a polynomial (constant term 1), by Miller's recurrence."""
    coefficients = [1]
    for i in range(1, min(last, exponent * (len(polynomial) - 1)) + 1):
        terms = (
            (j * (exponent + 1) - i, polynomial[j], coefficients[i - j])
            for j in range(1, min(i, len(polynomial) - 1) + 1)
        )
        # The division has no remainder.
        coefficients.append(sum(factor * coefficient * other for factor, coefficient, other in terms) // i)
    return coefficients


def _coefficients(first: list[int], second: list[int], last: int) -> list[int]:
    """Return the coefficients of a product; if both factors are long, only the last one is computed."""
    if len(first) == 1:
        return second
    return [0] * last + [sum(first[i] * second[last - i] for i in range(len(first)) if 0 <= last - i < len(second))]
