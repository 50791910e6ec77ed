"""Measures of runs too large for memory are those of the same run read in one piece."""

from collections.abc import Callable, Iterator

import pandas as pd
import pytest

from analysis.comparison.losses import counts, first_losses, somebody_was_lost
from analysis.comparison.measures import by_stage, per_round
from analysis.comparison.summary import summarise
from testbed.records import RunRecords, reader, tables

TABLES = {"per_round": per_round, "by_stage": by_stage, "counts": counts, "first_losses": first_losses}


@pytest.fixture(params=["random", "lotto-client-centric"])
def run(request: pytest.FixtureRequest, make_run: Callable[..., RunRecords]) -> RunRecords:
    """Thirty rounds with losses, some failed."""
    failing = {1: "skipped", 7: "aborted", 8: "skipped"}
    return make_run("run", request.param, rounds=30, failing=failing, population=60)


@pytest.fixture
def in_stretches(run: RunRecords, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunRecords]:
    """The same run, read a few hundred rows at a time, and never whole."""
    assert len(run.exchanges) > 3000  # is read whole from here on
    for module in (tables, reader):
        monkeypatch.setattr(module, "ROWS", 250)
    fresh = RunRecords(run.path)
    yield fresh
    assert "exchanges" not in fresh.__dict__


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_the_same(name: str, run: RunRecords, in_stretches: RunRecords) -> None:
    expected = TABLES[name](run)
    assert len(list(in_stretches.exchanges_in_stretches(["outcome"]))) > 5
    pd.testing.assert_frame_equal(TABLES[name](in_stretches), expected)


def test_summaries_are_the_same(run: RunRecords, in_stretches: RunRecords) -> None:
    assert somebody_was_lost(in_stretches)
    ours, theirs = (
        {key: value for key, value in summarise(one, privacy_time_limit_s=0.1).items() if "_weak" not in key}
        for one in (in_stretches, run)
    )  # the search for the weak privacy ends by the clock
    assert ours == theirs
