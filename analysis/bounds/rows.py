"""A report as one flat object: inputs, results, and a reason beside each null. No value is NaN or infinite."""

from math import isfinite
from typing import Any

Row = dict[str, Any]


def found(name: str, value: Any, reason: str) -> Row:
    """The value by its name; where there is none, null and the reason."""
    return {name: value} if value is not None else {name: None, f"{name}_reason": reason}


def finite(name: str, value: float, reason: str) -> Row:
    """As `found`, for a number that may be infinite, which is null."""
    return found(name, value if isfinite(value) else None, reason)
