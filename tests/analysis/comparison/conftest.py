"""Fixture of runs with given accuracies."""

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.records import RunRecords
from tests.analysis.comparison.learned import learner


@pytest.fixture
def learn(tmp_path: Path) -> Callable[..., RunRecords]:
    """See `learner`."""
    return learner(tmp_path)
