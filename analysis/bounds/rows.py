"""What the bounds share: checks of the numbers that are given, and results as one flat object.

The object holds inputs, results, and a reason beside each null. No value is NaN or infinite. A probability below the
smallest double reads 0.0; its decimal logarithm stands beside it.
"""

from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import Any

from analysis.tables import Table, to_json
from analysis.tables import render as render_table

Row = dict[str, Any]


def found(name: str, value: Any, reason: str) -> Row:
    """The value by its name; where there is none, null and the reason."""
    return {name: value} if value is not None else {name: None, f"{name}_reason": reason}


def finite(name: str, value: float, reason: str) -> Row:
    """As `found`, for a number that may be infinite, which is null."""
    return found(name, value if isfinite(value) else None, reason)


# -- as text for a terminal: what was given on the first line, then one line a result ---------------------------------


def render(row: Row, format: str, text: Callable[[Row], str]) -> str:
    """The row as ``json``, or as ``text`` by the `text` of the module that made it; ends in a line feed."""
    return to_json(row, ascii=True) if format == "json" else text(row)


def number(value: float) -> str:
    """Integers in full, others to six digits."""
    return f"{value}" if isinstance(value, int) else f"{value:.6g}"


def given(row: Row, symbols: Mapping[str, str]) -> str:
    """What was given, by the papers' symbols for the row's keys."""
    return ", ".join(f"{symbols[key]} = {number(row[key])}" for key in row if key in symbols and row[key] is not None)


def target_line(row: Row) -> str:
    """Whether the target is for one round or for a whole training."""
    target = number(row["target"])
    if row.get("rounds") is None:
        return (
            f"target: at most {target} in one round that is given; a server may skip to rounds that suit it, so plan a "
            "training with --rounds R"
        )
    return (
        f"target: at most {target} in {row['rounds']} rounds together, so {number(row['target'] / row['rounds'])} in "
        "each (union bound, whichever rounds the server lets happen)"
    )


def results(row: Row, labels: Mapping[str, str], value: Callable[[Row, str], str]) -> str:
    """One line for each label whose key the row has: `value` of it, or why there is none.

    A label may name keys of the row in braces.
    """
    lines = [
        (label.format_map(row), f"none: {row[f'{key}_reason']}" if row[key] is None else value(row, key))
        for key, label in labels.items()
        if key in row
    ]
    return render_table(Table((), lines, ruled=False), "text")


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


def require_honest_clients(population: int, dishonest: int) -> None:
    """Raise `ValueError` where a plan has no honest client to protect."""
    if dishonest >= population:
        raise ValueError(
            f"dishonest: all {population} clients; no parameter meets a target where nobody is honest, so give fewer"
        )
