"""Counts that an experiment gives as a number, or as a fraction of a total."""

from fractions import Fraction
from math import ceil


def rounded_up(count: int | float, total: int) -> int:
    """Return the count, or the fraction of the total, rounded up.

    Args:
        count: an integer, or a float that is a fraction of the total.
        total: the total.

    Example:
        >>> rounded_up(7, 100), rounded_up(0.07, 100), rounded_up(0.5, 7)
        (7, 7, 4)
    """
    # By its decimal text: the float 0.07 times 100 is above 7 and would be rounded up to 8.
    return count if isinstance(count, int) else ceil(Fraction(str(count)) * total)


def rounded_down(count: int | float, total: int) -> int:
    """Return the count, or the fraction of the total, rounded down.

    Args:
        count: an integer, or a float that is a fraction of the total.
        total: the total.
    """
    return count if isinstance(count, int) else int(Fraction(str(count)) * total)
