"""Statistics of a trace, compared with counting."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.traces.inspection import availability_over_time, describe, describe_series
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.series import BANDWIDTH, RateSeries, Steps, read_series


@st.composite
def traces(draw: st.DrawFn) -> AvailabilityTrace:
    rows = []
    for client in range(draw(st.integers(1, 5))):
        now = draw(st.integers(-3, 3))
        for gap, length in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=5)):
            rows.append((client, now + gap, now + gap + length))
            now += gap + length
    before, after = draw(st.tuples(st.integers(0, 4), st.integers(0, 4)))
    clients, begin, until = zip(*rows, strict=True)
    horizon = (min(begin) - before, max(until) + after)
    return AvailabilityTrace.from_rows(clients, begin, until, horizon=horizon, clients=[97, 99])


@given(traces(), st.integers(1, 50))
def test_how_many_are_online_is_counted_exactly(trace: AvailabilityTrace, points: int) -> None:
    times, count = availability_over_time(trace, points)
    assert len(times) == points
    assert times[0] == trace.horizon[0]
    assert (times < trace.horizon[1]).all()
    everybody = np.arange(len(trace))
    assert count.tolist() == [int((trace.online_until(everybody, time_s) > -np.inf).sum()) for time_s in times]


@given(traces())
def test_the_numbers_of_a_trace(trace: AvailabilityTrace) -> None:
    facts = describe(trace)
    begin, end = map(int, trace.horizon)
    online: list[int] = []
    offline: list[int] = []
    always = 0
    for device in range(len(trace)):
        there = [bool((trace.online_until(np.array([device]), second) > -np.inf)[0]) for second in range(begin, end)]
        always += all(there)
        text = "".join("x" if second else " " for second in there)
        online += [len(stretch) for stretch in text.split()]
        offline += [len(stretch) for stretch in text.strip().split("x") if stretch]
    assert facts["clients"] == len(trace)
    assert facts["clients_never_online"] == 2
    assert facts["clients_always_online"] == always
    assert facts["stretches"] == len(online)
    assert facts["intervals"] == len(trace.online_from_s)
    assert (facts["begin_s"], facts["end_s"], facts["horizon_s"]) == (begin, end, end - begin)
    assert facts["online_stretch_mean_s"] == pytest.approx(np.mean(online))
    assert facts["online_stretch_median_s"] == np.median(online)
    assert facts["offline_stretch_mean_s"] == pytest.approx(np.mean(offline) if offline else math.nan, nan_ok=True)
    assert facts["offline_stretch_median_s"] == pytest.approx(np.median(offline) if offline else math.nan, nan_ok=True)
    assert facts["online_fraction_mean"] == pytest.approx(sum(online) / (end - begin) / len(trace))
    _, count = availability_over_time(trace, 1000)
    assert facts["online_fraction_least"] == count.min() / len(trace)
    assert facts["online_fraction_most"] == count.max() / len(trace)


def test_the_numbers_of_bandwidth_traces() -> None:
    traces = (
        Steps(np.array([0.0, 60.0]), np.array([1.0, 0.0]), 80.0, repeated=3),
        Steps(np.array([0.0]), np.array([4.0]), 20.0),
    )
    facts = describe_series(RateSeries(BANDWIDTH, ("a", "b"), traces))
    assert facts == {
        "traces": 2,
        "steps": 3,
        "seconds": 100.0,
        "seconds_shortest": 20.0,
        "seconds_longest": 80.0,
        "mean_mbit_s": 1.4,
        "least_mbit_s": 0.0,
        "p5_mbit_s": 0.0,
        "p25_mbit_s": 1.0,
        "median_mbit_s": 1.0,
        "p75_mbit_s": 1.0,
        "p95_mbit_s": 4.0,
        "most_mbit_s": 4.0,
        "share_at_zero": 0.2,
        "repeated_times": 3,
        "traces_with_repeated_times": 1,
    }


def test_the_published_3g_traces(shared: Path) -> None:
    facts = describe_series(read_series(shared / "traces" / "bandwidth-3g", BANDWIDTH))
    assert facts["traces"] == 40
    assert 0 < facts["least_mbit_s"] < facts["p5_mbit_s"] < facts["median_mbit_s"] < facts["p95_mbit_s"]
    assert facts["most_mbit_s"] < 14.4  # the limit of HSDPA in those years
