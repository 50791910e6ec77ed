"""What the bounds share: checks of the numbers that are given, and results as one flat object.

The object holds inputs, results, and a reason beside each null. No value is NaN or infinite. A probability below the
smallest double reads 0.0; its decimal logarithm stands beside it.
"""

from math import inf, isfinite
from typing import Any

Row = dict[str, Any]


def found(name: str, value: Any, reason: str) -> Row:
    """The value by its name; where there is none, null and the reason."""
    return {name: value} if value is not None else {name: None, f"{name}_reason": reason}


def finite(name: str, value: float, reason: str) -> Row:
    """As `found`, for a number that may be infinite, which is null."""
    return found(name, value if isfinite(value) else None, reason)


# -- numbers that people give -----------------------------------------------------------------------------------------
# `ValueError` in one line with the number's name, value and what is allowed.


def require_at_least(least: float, **values: float) -> None:
    """Raise `ValueError` for the first of the named values that is below `least` or infinite."""
    for name, value in values.items():
        if not least <= value < inf:
            raise ValueError(f"{name}: {value}; must be at least {least}")


def require_positive(**values: float) -> None:
    """Raise `ValueError` for the first of the named values that is not above 0 and finite."""
    for name, value in values.items():
        if not 0 < value < inf:
            raise ValueError(f"{name}: {value}; must be above 0")


def require_inside(**values: float) -> None:
    """Raise `ValueError` for the first of the named values that is not above 0 and below 1."""
    for name, value in values.items():
        if not 0 < value < 1:
            raise ValueError(f"{name}: {value}; must be above 0 and below 1")
