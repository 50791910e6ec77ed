"""Cost tables are measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.compute.cost import REFERENCE_COSTS
from testbed.engine import calibration
from testbed.engine.calibration import TRAINING, Work, measured_costs, participant_seconds


class Clock:
    """CPU time that only the work itself makes pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(calibration, "thread_cpu_s", lambda: self.now_s)

    def works(self, *seconds: float) -> None:
        """One call, which takes the next of `seconds`, the last of them for ever."""
        self.calls = getattr(self, "calls", 0)
        self.now_s += seconds[min(self.calls, len(seconds) - 1)]
        self.calls += 1


def test_the_median_of_batches_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    # The first call, to fill caches, is not counted; then five batches of one call each.
    assert calibration.seconds_per_call(lambda: clock.works(9, 0.5, 0.1, 0.3, 0.2, 0.4), 5) == pytest.approx(0.3)


@given(st.floats(1e-7, 0.1))
def test_batches_are_long_enough(seconds: float) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        clock = Clock(monkeypatch)
        found = calibration.seconds_per_call(lambda: clock.works(seconds), 1)
        assert found == pytest.approx(seconds, rel=1e-6)
        assert clock.calls * seconds >= 0.02


def test_every_operation_of_the_reference_table_is_measured() -> None:
    asked: list[str] = []

    def training() -> Work:
        return lambda: sum(range(10_000)), 1e6

    costs = measured_costs(training, repeat=1, doing=asked.append)
    assert list(costs) == list(REFERENCE_COSTS)
    assert sorted(asked) == sorted(REFERENCE_COSTS)
    assert all(0 < seconds < 0.1 for seconds in costs.values())
    # Orders of magnitude that hold on any machine: a proof costs more than a signature, a mask less than a HMAC.
    assert costs["vrf.verify"] > costs["ed25519.sign"] > costs["hmac"] > costs["mask.element"]
    assert participant_seconds(costs | {TRAINING: 1.0}) > participant_seconds(costs | {TRAINING: 0.5})
