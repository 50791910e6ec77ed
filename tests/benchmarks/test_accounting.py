"""The benchmark of composing measures every analysis, and the report has the same numbers."""

import pytest

from analysis.bounds.random_participation_analyses import ANALYSES
from analysis.cli.bound.random_participation import bound_random_participation
from benchmarks.accounting import DELTA, LIMITS, SIGMA, measure


def test_every_analysis_is_measured_and_gives_the_reports_epsilon() -> None:
    result, rows = measure(rounds=3, local_samples=5, repeat=1)
    expected = bound_random_participation(5, 0.001, 0.1, DELTA, sigma=SIGMA, rounds=3)
    assert LIMITS.keys() <= {one.name for one in ANALYSES}
    assert len(rows) == 1 + len(ANALYSES)
    for one in ANALYSES:
        assert result[f"{one.name}_seconds"] > 0
        assert result[f"{one.name}_epsilon"] == pytest.approx(expected[f"{one.name}_epsilon"], rel=1e-6, abs=1e-9)
