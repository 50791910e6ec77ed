"""How much is tried: fewer examples and combinations in `make test`, all of them in `make test-all`."""

import os
from collections.abc import Iterable
from itertools import combinations as combinations_of
from itertools import product
from typing import Any

import pytest

THOROUGH = os.environ.get("TESTBED_TESTS") == "thorough"
USUAL = 100  # hypothesis' own


def examples(thorough: int = USUAL) -> int:
    """For `settings(max_examples=...)`: all where the suite is thorough, elsewhere a third of them, at least 10."""
    return thorough if THOROUGH else min(thorough, max(10, thorough // 3))


def each_pair(*parameters: Iterable[Any]) -> list[Any]:
    """Combinations for `parametrize`: in `make test` every two values of two parameters meet, in `make test-all` all.

    Args:
        parameters: the values of each parameter; their texts are the ids.

    Returns:
        All combinations in order; combinations without a new pair of values are marked slow.
    """
    combinations = list(product(*parameters))
    missing = {pair for combination in combinations for pair in _pairs(combination)}
    quick = set[int]()
    while missing:
        best = max(range(len(combinations)), key=lambda place: len(missing.intersection(_pairs(combinations[place]))))
        quick.add(best)
        missing.difference_update(_pairs(combinations[best]))
    return _marked(combinations, {combinations[place] for place in quick})


def each_value(*parameters: Iterable[Any]) -> list[Any]:
    """Combinations for `parametrize`: in `make test` every value is in one, in `make test-all` all meet all.

    For properties of the parameters one by one, where a combination tests nothing beyond its parts.

    Args:
        parameters: the values of each parameter; their texts are the ids.

    Returns:
        All combinations in order; marked slow are all but the first, second, ... values together, in turns.
    """
    values = [list(parameter) for parameter in parameters]
    turns = range(max(map(len, values)))
    return _marked(list(product(*values)), {tuple(of[turn % len(of)] for of in values) for turn in turns})


def _marked(combinations: list[tuple[Any, ...]], quick: set[tuple[Any, ...]]) -> list[Any]:
    return [
        pytest.param(
            *combination, id="-".join(map(str, combination)), marks=() if combination in quick else pytest.mark.slow
        )
        for combination in combinations
    ]


def _pairs(combination: tuple[Any, ...]) -> set[Any]:
    """Every two values, with the places of their parameters."""
    return set(combinations_of(enumerate(combination), 2))
