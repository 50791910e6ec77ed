"""A size of Lotto's tables that takes a second."""

import pytest

from analysis.reproduction.lotto_overhead import SIZES, Size

TINY = Size(
    ("FEMNIST",),
    {8: 4, 12: 5},
    {"FEMNIST": 2},
    samples=20,
    workload={"dataset": "digits", "model": "logistic"},
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Size:
    """The scale small is tiny."""
    monkeypatch.setitem(SIZES, "small", TINY)
    return TINY
