"""A size of Lotto's tables that takes a second."""

import pytest

from analysis.reproduction.lotto.overhead import SIZES, Size

TINY = Size(
    ("FEMNIST",),
    {8: 4, 12: 5},
    {"FEMNIST": 2},
    workload={"dataset": "digits", "model": "logistic", "samples_per_client": 20},
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Size:
    """The scale small is tiny."""
    monkeypatch.setitem(SIZES, "small", TINY)
    return TINY
