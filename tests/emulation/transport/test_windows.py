"""Flights compared with packets one by one, and properties that hold for any path."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.emulation.transport.congestion import BBR_FULL_ROUNDS
from testbed.emulation.transport.senders import Path
from tests.emulation.transport.alone import path, send, transport, warm
from tests.emulation.transport.packets import Flow, Link
from tests.thoroughness import examples

mbit_s = st.floats(1, 1000)
delay_s = st.floats(0.001, 0.5)
sizes = st.integers(1, 3000)
factors = st.floats(1, 10)
algorithms = st.sampled_from(["reno", "cubic", "bbr"])


def link(of: Path) -> Link:
    return Link(float(of.segment_s[0]), float(of.round_trip_s[0]))


@settings(max_examples=examples(60), deadline=None)
@given(mbit_s, delay_s, sizes)
def test_slow_start_is_as_if_packets_went_one_by_one(mbit: float, delay: float, segments: int) -> None:
    way = path(mbit, delay)
    sent = send(transport(), way, [segments])
    assert sent.through_s[0] == pytest.approx(Flow(segments, link(way)).run().finish_s, rel=1e-6)


@settings(max_examples=examples(60), deadline=None)
@given(mbit_s, delay_s, st.integers(1, 1000), st.integers(2, 400), st.integers(2, 400) | st.just(np.inf))
def test_a_warm_window_is_as_if_packets_went_one_by_one(
    mbit: float, delay: float, segments: int, window: int, threshold: float
) -> None:
    """Within 5 %, of a message that is up to four segments longer or shorter: one left over costs a round trip."""
    how, way = transport(), path(mbit, delay)
    sent = send(how, way, [segments], senders=warm(how, window, threshold))
    ends_s = [
        Flow(size, link(way), window=window, threshold=threshold).run().finish_s
        for size in (max(1, segments - 4), segments, segments + 4)
    ]
    assert 0.95 * min(ends_s) <= sent.through_s[0] <= 1.05 * max(ends_s)


@pytest.mark.parametrize(("loss", "error"), [(0.001, 0.05), (0.01, 0.1), (0.05, 0.15)])
@pytest.mark.parametrize(("mbit", "delay"), [(44, 0.1), (10, 0.02)])
@pytest.mark.parametrize("segments", [14, 120])
def test_mean_cost_of_loss_equals_that_packet_by_packet(
    loss: float, error: float, mbit: float, delay: float, segments: int
) -> None:
    generator = np.random.default_rng(5)
    flows = [
        Flow(segments, link(path(mbit, delay)), lost=lambda: generator.random() < loss).run()
        for _ in range(600 if segments < 100 else 250)
    ]
    ends_s = np.array([flow.finish_s for flow in flows])
    sent = send(transport(), path(mbit, delay, 4000, loss), [segments] * 4000, seed=5)
    luck = 3 * ends_s.std() / len(ends_s) ** 0.5
    assert abs(sent.through_s.mean() - ends_s.mean()) <= error * ends_s.mean() + luck
    assert sent.segments.sum() / 4000 == pytest.approx(segments / (1 - loss), rel=0.01)


@pytest.mark.parametrize("segments", [1, 2, 5])
def test_the_end_of_a_message_is_found_to_be_lost_by_a_probe(segments: int) -> None:
    """With so few losses only the delay is not random: the delay added by loss is compared."""
    generator, way, loss = np.random.default_rng(6), path(10, 0.02), 0.05
    flows = [Flow(segments, link(way), lost=lambda: generator.random() < loss).run() for _ in range(3000)]
    ends_s = np.array([flow.finish_s for flow in flows]) - segments * way.segment_s[0]
    sent = send(transport(), path(10, 0.02, 20_000, loss), [segments] * 20_000, seed=6)
    more_s = sent.through_s.mean() - segments * way.segment_s[0]
    assert abs(more_s - ends_s.mean()) <= 0.15 * ends_s.mean() + 3 * ends_s.std() / len(ends_s) ** 0.5


def test_the_oracle_in_numbers() -> None:
    """30 segments of 1 ms, 100 ms: windows of 10 and 20. One that is lost alone is sent again by the time-out."""
    assert Flow(30, Link(0.001, 0.1)).run().finish_s == pytest.approx(0.12)
    losses = iter([True])
    alone = Flow(1, Link(0.001, 0.1), lost=lambda: next(losses, False)).run()
    assert (alone.finish_s, alone.sent) == (pytest.approx(0.1 + 0.2 + 0.004 + 0.001), 2)
    losses = iter([False] * 4 + [True])
    found = Flow(10, Link(0.001, 0.1), lost=lambda: next(losses, False)).run()
    assert (found.sent, found.window) == (11, 5 + 4 / 2)


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(["reno", "bbr"]), mbit_s, delay_s, sizes, factors, factors, st.integers(1, 90))
def test_more_rate_less_delay_or_a_larger_first_window_never_end_later(
    algorithm: str, mbit: float, delay: float, segments: int, faster: float, nearer: float, more: int
) -> None:
    how = transport(algorithm)
    end_s = send(how, path(mbit, delay), [segments]).through_s[0] * (1 + 1e-9)
    assert send(how, path(mbit * faster, delay), [segments]).through_s[0] <= end_s
    assert send(how, path(mbit, delay / nearer), [segments]).through_s[0] <= end_s
    larger = transport(algorithm, initial_window_segments=10 + more)
    assert send(larger, path(mbit, delay), [segments]).through_s[0] <= end_s


@given(st.sampled_from(["reno", "cubic"]), mbit_s, delay_s, st.integers(1, 1000))
@settings(max_examples=examples(60))
def test_a_window_that_holds_all_is_no_window(algorithm: str, mbit: float, delay: float, segments: int) -> None:
    way = path(mbit, delay)
    sent = send(transport(algorithm, initial_window_segments=1000), way, [segments])
    assert sent.through_s[0] == pytest.approx(segments * way.segment_s[0])


@given(algorithms, mbit_s, delay_s)
@settings(max_examples=examples(30))
def test_one_segment_is_one_flight(algorithm: str, mbit: float, delay: float) -> None:
    sent = send(transport(algorithm), path(mbit, delay), [1])
    assert (sent.segments.tolist(), sent.gap_s.tolist()) == ([1.0], [pytest.approx(0, abs=1e-12)])


Messages = list[tuple[int, float, float]]
many = st.lists(st.tuples(sizes, mbit_s, delay_s), min_size=1, max_size=6)


def paths(of: Messages, loss: float = 0.0) -> tuple[list[int], Path]:
    single = [path(mbit, delay, 1, loss).columns() for _, mbit, delay in of]
    return [size for size, _, _ in of], Path(*(np.concatenate(column) for column in zip(*single, strict=True)))


@given(algorithms, many, st.randoms(use_true_random=False))
@settings(max_examples=examples(60), deadline=None)
def test_each_message_goes_as_if_it_were_alone_and_whole(algorithm: str, of: Messages, random: Random) -> None:
    how, (segments, way) = transport(algorithm), paths(of)
    together = send(how, way, segments)
    assert np.bincount(together.owner, together.segments) == pytest.approx(segments)
    assert (together.segments > 0).all()
    assert (together.gap_s >= 0).all()
    singly = [send(how, way.take(np.array([one])), [segments[one]]).through_s[0] for one in range(len(of))]
    assert together.through_s == pytest.approx(singly, rel=1e-12)
    order = np.array(random.sample(range(len(of)), len(of)))
    shuffled = send(how, way.take(order), [segments[one] for one in order])
    assert shuffled.through_s.tolist() == together.through_s[order].tolist()


@given(algorithms, many, st.floats(0.001, 0.5), st.sampled_from([1.0, 4.0]), st.integers(0, 99))
@settings(max_examples=examples(30), deadline=None)
def test_lost_segments_are_sent_again_and_losses_are_repeatable(
    algorithm: str,
    of: Messages,
    loss: float,
    burst: float,
    seed: int,
) -> None:
    how, (segments, way) = (
        transport(algorithm),
        paths([(size % 300 + 1, mbit, delay) for size, mbit, delay in of], loss),
    )
    once, twice = (send(how, way, segments, seed=seed, burst=burst) for _ in range(2))
    for name in ("owner", "segments", "gap_s"):
        assert getattr(once, name).tolist() == getattr(twice, name).tolist()
    assert (np.bincount(once.owner, once.segments) >= np.array(segments) - 1e-9).all()
    assert (once.gap_s >= 0).all()
    assert np.isfinite(once.through_s).all()
    assert (once.sending.senders.window >= 1).all()


@pytest.mark.parametrize("algorithm", ["reno", "cubic", "bbr"])
def test_more_loss_takes_longer_on_average(algorithm: str) -> None:
    means = [
        send(transport(algorithm), path(44, 0.1, 1500, loss), [200] * 1500, seed=1).through_s.mean()
        for loss in (0.0, 0.001, 0.01, 0.05)
    ]
    assert means == sorted(means)
    assert means[3] > 1.2 * means[0]


def test_loss_does_not_stop_bbr() -> None:
    slow, fast = (
        send(transport(name), path(44, 0.1, 500, 0.02), [700] * 500, seed=1).through_s.mean()
        for name in ("reno", "bbr")
    )
    assert fast < slow / 3


@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_bbr_estimates_the_links_rate_with_and_without_loss(loss: float) -> None:
    senders = send(transport("bbr"), path(10, 0.05, 20, loss), [5000] * 20, seed=1).sending.senders
    assert (senders.full == BBR_FULL_ROUNDS).all()
    short = send(transport("bbr"), path(10, 0.05, 20, loss), [50] * 20, seed=1).sending.senders
    assert (short.full < BBR_FULL_ROUNDS).all()
