"""What Linux 6.18 did on a wire of 44 Mbit/s and 100 ms there and back."""

import numpy as np
import pytest

from testbed.emulation.transport.section import Transport
from testbed.emulation.transport.senders import Senders
from tests.emulation.transport.alone import HUGE, SEGMENT, path, send, transport

WAY = path(44, 0.1)
ONE_WAY_S = 0.05


def arrival_s(how: Transport, size: int, senders: Senders | None = None) -> float:
    """From the send to the last byte at the client."""
    segments = -(-size // SEGMENT)
    sent = send(how, WAY, [segments], senders=senders)
    short = (segments * SEGMENT - size) / SEGMENT * WAY.segment_s[0]
    return float(sent.through_s[0] - short + ONE_WAY_S)


@pytest.mark.parametrize(
    ("size", "measured_s"), [(20_000, 0.152), (100_000, 0.262), (1_000_000, 0.671), (10_000_000, 2.39)]
)
def test_reno_on_a_new_connection(size: int, measured_s: float) -> None:
    assert arrival_s(transport(), size) == pytest.approx(measured_s, rel=0.01)


def test_bbr_paces_a_new_connection() -> None:
    how = transport("bbr")
    senders = Senders.new(how, 1)
    assert arrival_s(how, 100_000, senders) == pytest.approx(0.366, rel=0.03)
    assert arrival_s(how, 100_000, senders) == pytest.approx(0.121, rel=0.05)


@pytest.mark.parametrize(
    ("idle_s", "window"), [(0.0, 80), (0.3, 80), (0.31, 40), (0.61, 20), (0.92, 10), (3.0, 10), (1e6, 10), (1e300, 10)]
)
def test_an_idle_window_halves_with_each_time_out(idle_s: float, window: float) -> None:
    how = transport()
    senders = Senders.new(how, 1)
    senders.begin(how, np.array([0.1]), np.zeros(1))
    senders.window[:], senders.last_sent_s[:] = 80, 7.0
    assert senders.time_out_s(how)[0] == pytest.approx(0.304)
    senders.begin(how, np.array([0.1]), np.array([7.0 + idle_s]))
    assert senders.window[0] == window


def test_the_threshold_keeps_three_quarters_of_an_idle_window() -> None:
    how = transport()
    for before, after in ((20.0, 60.0), (70.0, 70.0), (np.inf, np.inf)):
        senders = Senders.new(how, 1)
        senders.begin(how, np.array([0.1]), np.zeros(1))
        senders.window[:], senders.threshold[:], senders.last_sent_s[:] = 80, before, 0.0
        senders.begin(how, np.array([0.1]), np.array([1.0]))
        assert senders.threshold[0] == after


@pytest.mark.parametrize("how", [transport(slow_start_after_idle=False), transport("bbr")])
def test_a_window_is_kept_where_nothing_restarts(how: Transport) -> None:
    senders = Senders.new(how, 1)
    senders.window[:], senders.last_sent_s[:] = 80, 0.0
    senders.begin(how, np.array([0.1]), np.array([100.0]))
    assert (senders.window[0], senders.threshold[0]) == (80, np.inf)


def test_an_idle_window_below_the_first_one_is_kept() -> None:
    how = transport()
    senders = Senders.new(how, 1)
    senders.window[:], senders.last_sent_s[:] = 4, 0.0
    senders.begin(how, np.array([0.1]), np.array([100.0]))
    assert senders.window[0] == 4


def test_hystart_leaves_slow_start_when_a_flight_fills_half_a_round_trip() -> None:
    how = transport("cubic")
    senders = Senders.new(how, 1)
    send(how, WAY, [6907], senders=senders)
    assert senders.threshold[0] == pytest.approx(506, rel=0.02)
    assert senders.peak_window[0] == 0


def test_no_more_is_under_way_than_the_limit() -> None:
    how = transport(window_limit_bytes=20 * SEGMENT)
    sent = send(how, path(1000, 0.1), [100])
    assert sent.segments.tolist() == [10, 20, 20, 20, 20, 10]
    assert sent.gap_s[1:] == pytest.approx(path(1000, 0.1).round_trip_s[0])
    assert transport().window_limit_bytes == HUGE
