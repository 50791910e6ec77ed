"""Population refinement against a slow oracle, worked examples, and the guaranteed sizes."""

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.selection.contract import TrainingReports
from testbed.selection.lotto.refinement import Refinement, refined_population, store_measurements, worst_clients
from testbed.selection.oort import preferred_duration_s, system_utility, utility

NAN = math.nan

metric = st.one_of(st.just(NAN), st.integers(0, 4).map(float), st.floats(0, 1e6))
clients = st.lists(st.tuples(metric, metric), min_size=1, max_size=40)
share = st.integers(0, 99).map(lambda percent: percent / 100)


def dropped_by_oracle(badness: dict[int, float], exclude: float) -> set[int]:
    """Return the clients that the oracle drops: sort measured clients by badness, ties by number, and cut."""
    known = sorted((client for client in badness if not math.isnan(badness[client])), key=lambda c: (-badness[c], c))
    return set(known[: math.floor(Fraction(str(exclude)) * len(known))])


def oracle(rule: Refinement, latency_s: list[float], quality: list[float]) -> set[int]:
    """Return the refined population."""
    everyone = range(len(latency_s))
    slow = dropped_by_oracle({c: latency_s[c] for c in everyone}, rule.exclude)
    useless = dropped_by_oracle({c: -quality[c] for c in everyone}, rule.exclude)
    if rule.combine == "joint":
        known = [c for c in everyone if not math.isnan(latency_s[c] + quality[c])]
        times = sorted(latency_s[c] for c in known)
        preferred = times[int(len(times) * 0.3)] if times else math.inf

        def joint(c: int) -> float:
            return quality[c] * ((preferred / max(latency_s[c], 1e-4)) ** 2 if latency_s[c] > preferred else 1)

        out = dropped_by_oracle({c: -joint(c) for c in known}, rule.exclude)
    elif len(rule.by) == 1:
        out = slow if rule.by == ["latency"] else useless
    else:
        out = slow | useless if rule.combine == "or" else slow & useless
    return set(everyone) - out


RULES = [
    {"by": ["latency"]},
    {"by": ["loss"], "combine": "and"},
    {"combine": "or"},
    {"by": ["loss", "latency"], "combine": "and"},
]


@pytest.mark.parametrize("keys", RULES)
@given(clients, share)
@example([(1.0, 1.0)] * 10, 0.29)  # all equal; 0.29 * 100 is below 29 in floats
@example([(NAN, NAN)] * 5 + [(1.0, 2.0)], 0.99)
def test_the_rule_equals_the_oracle(keys: dict, measured: list[tuple[float, float]], exclude: float) -> None:
    rule = Refinement(**keys, exclude=exclude)
    latency_s, quality = (np.array(column, np.float64) for column in zip(*measured, strict=True))
    kept = refined_population(rule, latency_s, quality)
    assert set(np.flatnonzero(kept).tolist()) == oracle(rule, latency_s.tolist(), quality.tolist())
    assert kept.sum() >= rule.smallest(len(measured))
    assert kept[np.isnan(latency_s) & np.isnan(quality)].all()


@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=1, max_size=40, unique=True), share)
def test_the_joint_rule_equals_the_oracle(measured: list[tuple[float, float]], exclude: float) -> None:
    """Nearly equal utilities may be ranked either way."""
    rule = Refinement(combine="joint", exclude=exclude)
    latency_s, quality = (np.array(column) for column in zip(*measured, strict=True))
    kept = refined_population(rule, latency_s, quality)
    expected = oracle(rule, latency_s.tolist(), quality.tolist())
    assert kept.sum() == len(expected) == rule.smallest(len(measured))
    worth = utility(quality, latency_s)
    differing = set(np.flatnonzero(kept).tolist()) ^ expected
    assert not differing or np.ptp(worth[list(differing)]) < 1e-9 * worth.max()


def test_worked_examples_of_or_and_and_joint() -> None:
    latency_s = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 8.0])
    quality = np.array([50.0, 50, 50, 50, 50, 50, 50, 3, 2, 90])
    either, both, joint = (
        refined_population(Refinement(combine=how), latency_s, quality) for how in ("or", "and", "joint")
    )
    assert np.flatnonzero(~either).tolist() == [7, 8, 9]  # slow: 8, 9; of no use: 7, 8
    assert np.flatnonzero(~both).tolist() == [8]
    assert np.flatnonzero(~joint).tolist() == [8, 9]  # 3, 2/81, 90/64


def test_the_smallest_population_is_reached() -> None:
    latency_s, quality = np.arange(10.0), np.arange(10.0)  # the slow ones are the good ones
    for keys, smallest in (({}, 6), ({"combine": "and"}, 8), ({"combine": "joint"}, 8), ({"by": ["loss"]}, 8)):
        assert Refinement(**keys).smallest(10) == smallest
    assert refined_population(Refinement(), latency_s, quality).sum() == 6
    assert refined_population(Refinement(combine="and"), latency_s, -quality).sum() == 8
    assert refined_population(Refinement(combine="joint"), latency_s, quality).sum() == 8


def test_the_fraction_refers_to_measured_clients() -> None:
    """In the first rounds few clients are measured; this alone does not make them the worst."""
    latency_s = np.full(100, NAN)
    latency_s[10:20] = np.arange(10.0)
    kept = refined_population(Refinement(by=["latency"]), latency_s, latency_s)
    assert np.flatnonzero(~kept).tolist() == [18, 19]
    assert refined_population(Refinement(), np.full(100, NAN), np.full(100, NAN)).all()


def test_a_client_without_quality_reports_is_dropped_by_latency() -> None:
    """It timed out whenever it was asked; in the joint utility it has the mean quality of the others."""
    latency_s = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 20.0, NAN])
    quality = np.array([50.0, 50, 50, 50, 50, 10, NAN, NAN])
    for keys, out in (
        ({"by": ["latency"]}, [6]), ({"combine": "or"}, [5, 6]), ({"combine": "joint"}, [6]), ({"by": ["loss"]}, [5]),
        ({"combine": "and"}, []),
    ):  # fmt: skip
        assert np.flatnonzero(~refined_population(Refinement(**keys), latency_s, quality)).tolist() == out
    joint = refined_population(Refinement(combine="joint"), latency_s, np.full(8, NAN))
    assert np.flatnonzero(~joint).tolist() == [6]  # no client has reported one


def test_a_silent_client_gets_the_waiting_time() -> None:
    round_: Any = SimpleNamespace(population=5, memory={})
    one, ones = np.ones(1), np.ones(2)
    store_measurements(
        round_, TrainingReports(np.array([0, 1]), np.array([3, 4]), ones, ones, 7 * ones, np.array([2]), 9.0)
    )
    store_measurements(round_, TrainingReports(np.array([3]), np.array([3]), one, one, one, np.array([0, 2]), 2.0))
    assert round_.memory["latency_s"].tolist() == pytest.approx([7.0, 7.0, 9.0, 1.0, NAN], nan_ok=True)
    assert round_.memory["quality"].tolist() == pytest.approx([3.0, 4.0, NAN, 3.0, NAN], nan_ok=True)


def test_a_rule_that_may_drop_all_clients_is_refused() -> None:
    assert Refinement(exclude=0.9).smallest(100) == 0
    assert Refinement(exclude=0.9, combine="and").smallest(100) == 10


def test_the_share_is_the_written_decimal_fraction() -> None:
    assert worst_clients(np.arange(100.0), 0.29).sum() == 29
    assert worst_clients(np.arange(10.0), 0.3).tolist() == [False] * 7 + [True] * 3


def test_preferred_duration_and_system_utility() -> None:
    times = np.array([4.0, 1.0, 3.0, 2.0])
    assert preferred_duration_s(times, 30) == 2.0
    assert preferred_duration_s(times, 99) == 4.0
    assert preferred_duration_s(times, 100) == math.inf
    assert preferred_duration_s(np.empty(0), 30) == math.inf
    assert system_utility(times, 2.0, 2.0).tolist() == [0.25, 1.0, 4 / 9, 1.0]
    assert system_utility(times, 2.0, 0.0).tolist() == [1.0] * 4
    assert system_utility(times, math.inf, 2.0).tolist() == [1.0] * 4
    assert utility(np.array([10.0, 20, 30, 40]), times).tolist() == pytest.approx([2.5, 20, 40 / 3, 40])
