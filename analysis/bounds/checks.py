"""Checks of numbers: `ValueError` in one line, with the number's name, value and allowed range."""

from math import inf


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
    """Raise `ValueError` if a plan has no honest client to protect.

    Args:
        population: number of clients n.
        dishonest: number of dishonest clients c among them.

    Example:
        >>> require_honest_clients(100, 99)
    """
    if dishonest >= population:
        raise ValueError(
            f"dishonest: all {population} clients; no parameter meets a target without honest clients, so give fewer"
        )
