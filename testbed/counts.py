"""Numbers of things that an experiment gives as they are, or as a fraction of how many there are.

A fraction counts as it is written: 0.07 of 100 are 7, though the float 0.07 times 100 is above 7.
"""

from fractions import Fraction
from math import ceil


def rounded_up(count: int | float, total: int) -> int:
    """The number that is given, or the fraction of so many."""
    return count if isinstance(count, int) else ceil(Fraction(str(count)) * total)


def rounded_down(count: int | float, total: int) -> int:
    """The same, rounded down."""
    return count if isinstance(count, int) else int(Fraction(str(count)) * total)
