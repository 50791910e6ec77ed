"""A size of Lotto's tables that takes a second."""

import pytest

from analysis.reproduction.lotto.overhead import SCALES, OverheadScale

TINY = OverheadScale(
    ("FEMNIST",),
    {8: 4, 12: 5},
    {"FEMNIST": 2},
    workload={"dataset": "digits", "model": "logistic", "samples_per_client": 20},
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> OverheadScale:
    """The scale small is tiny."""
    monkeypatch.setitem(SCALES, "small", TINY)
    return TINY
