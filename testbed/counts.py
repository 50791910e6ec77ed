"""Numbers of things that an experiment gives as they are, or as a fraction of how many there are.

A fraction counts as it is written: 0.07 of 100 are 7, though the float 0.07 times 100 is above 7.
"""

from fractions import Fraction
from math import ceil


def rounded_up(given: int | float, of: int) -> int:
    """The number that is given, or the fraction of so many."""
    return given if isinstance(given, int) else ceil(Fraction(str(given)) * of)


def rounded_down(given: int | float, of: int) -> int:
    """The same, rounded down."""
    return given if isinstance(given, int) else int(Fraction(str(given)) * of)
