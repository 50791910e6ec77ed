"""Pictures of traces: what they show, and that they are the same each time."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import StepPatch

from analysis import trace_figures
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.schedule import Schedule
from testbed.emulation.traces.series import BANDWIDTH, RateSeries, Steps

pytestmark = pytest.mark.usefixtures("quick_fonts")

DAY = 86_400.0


def steps(axes: Axes) -> list[StepPatch]:
    """What is drawn as steps."""
    return [patch for patch in axes.patches if isinstance(patch, StepPatch)]


def random_trace(days: float, begin_s: float = 0.0) -> AvailabilityTrace:
    generator = np.random.default_rng(3)
    client = np.repeat(np.arange(20), 5)
    ends = np.sort(generator.uniform(begin_s, begin_s + days * DAY, (20, 10)), axis=1)
    return AvailabilityTrace.from_rows(
        client, ends[:, ::2].ravel(), ends[:, 1::2].ravel(), horizon=(begin_s, begin_s + days * DAY)
    )


def test_online_seconds_are_exact() -> None:
    """Against adding up the intervals one by one."""
    trace = random_trace(3)
    times = np.linspace(-5.0, 3 * DAY + 5, 50)
    expected = [
        np.clip(time - trace.online_from_s, 0, trace.online_until_s - trace.online_from_s).sum() for time in times
    ]
    assert trace_figures._online_seconds(trace, times) == pytest.approx(np.array(expected))


@pytest.mark.parametrize("begin_s", [0.0, 6 * 3600.0, DAY])
def test_the_mean_day_is_by_the_time_of_day(begin_s: float) -> None:
    """Everybody is online from 12 to 13 o'clock of each day, whenever the trace begins."""
    noon = 12 * 3600.0 + DAY * np.arange(1, 4)
    trace = AvailabilityTrace.from_rows([0, 0, 0], noon, noon + 3600, horizon=(begin_s, 5 * DAY))
    axes = trace_figures.availability(trace).axes[1]
    share, hours, _ = steps(axes)[1].get_data()
    assert share[(hours[:-1] >= 12) & (hours[:-1] < 13)].min() > 0
    assert share[(hours[:-1] < 12) | (hours[:-1] >= 13)].max() == 0


@pytest.mark.parametrize("days", [0.001, 0.04, 0.5, 1.5, 2.0, 9.7])
def test_any_length_can_be_drawn(days: float, tmp_path: Path) -> None:
    paths = trace_figures.draw(random_trace(days, 1000.0), tmp_path / "trace.png")
    assert [path.name for path in paths] == ["trace.png", "trace.pdf"]
    first = [path.read_bytes() for path in paths]
    trace_figures.draw(random_trace(days, 1000.0), tmp_path / "trace.pdf")
    assert [path.read_bytes() for path in paths] == first


def test_bandwidth_and_schedules_can_be_drawn(tmp_path: Path) -> None:
    traces = Steps(np.array([0.0, 1.0]), np.array([0.0, 2.0]), 2.0), Steps(np.array([0.0]), np.array([1.0]), 8.0)
    one = RateSeries(BANDWIDTH, ("a", "b"), traces)
    distribution = trace_figures.series(one).axes[1]
    share, rates, _ = steps(distribution)[0].get_data()
    assert rates[:3].tolist() == [0.0, 1.0, 2.0]  # Mbit/s
    assert share.tolist() == [10.0, 90.0, 100.0]
    assert len(trace_figures.draw(one, tmp_path / "links")) == 2
    rows = [(1, 0, "", "participant"), (2, 0, "", "participant"), (2, 0, "train", "dropped")]
    axes = trace_figures.schedule(Schedule.from_rows(rows)).axes[0]
    assert {patch.get_label(): patch.get_data()[0].tolist() for patch in steps(axes)} == {
        "participants": [1, 1],
        "dropped out": [0, 1],
    }
    assert len(trace_figures.draw(Schedule.from_rows(rows), tmp_path / "lost")) == 2
