"""The shared link against exact textbook water-filling, and the properties that any fair link has."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.links import Rates
from testbed.network.fair_sharing.transfers import transfer

CLOSE = 1e-9


def transfer_finish(start: Any, size: Any, rate: Any, capacity: float) -> Any:
    """When each transfer at a constant rate is complete."""
    return transfer(start, size, Rates.constant(rate), capacity).finish_s


def water_level(caps: list[Fraction], capacity: Fraction) -> Fraction | None:
    """The level at which the rates add up to the capacity, or None if the caps do not reach it (textbook)."""
    if sum(caps) <= capacity:
        return None
    spare = capacity
    for position, cap in enumerate(sorted(caps)):
        level = spare / (len(caps) - position)
        if cap > level:
            return level
        spare -= cap
    raise AssertionError("unreachable: the caps exceed the capacity")


def exact_finish(transfers: list[tuple[int, int, int]], capacity: int) -> list[Fraction]:
    """(start, size, cap) each: the model's definition, event by event, in rational numbers."""
    left = [Fraction(size) for _, size, _ in transfers]
    finish = [Fraction(start) for start, _, _ in transfers]
    now = Fraction(min(start for start, _, _ in transfers))
    while any(left):
        active = [i for i, (start, _, _) in enumerate(transfers) if left[i] and start <= now]
        coming = [Fraction(start) for i, (start, _, _) in enumerate(transfers) if left[i] and start > now]
        if not active:
            now = min(coming)
            continue
        caps = {i: Fraction(transfers[i][2]) for i in active}
        level = water_level(list(caps.values()), Fraction(capacity))
        rate = caps if level is None else {i: min(cap, level) for i, cap in caps.items()}
        then = min([now + left[i] / rate[i] for i in active] + coming)
        for i in active:
            left[i] -= rate[i] * (then - now)
            finish[i] = then
        now = then
    return finish


def delivered(start, size, cap, capacity, finish) -> np.ndarray:
    """Return the bytes of each transfer between its start and `finish`, by water-filling over the active transfers."""
    moments = np.unique(np.concatenate((start, finish)))
    got = np.zeros(len(start))
    for begin, end in itertools.pairwise(moments):
        active = np.flatnonzero((start <= begin) & (finish >= end) & (size > 0))
        if len(active):
            level = water_level([Fraction(c) for c in cap[active]], Fraction(capacity))
            got[active] += np.minimum(cap[active], np.inf if level is None else float(level)) * (end - begin)
    return got


# Few distinct values, so that ties and exactly full links are frequent; and arbitrary ones.
coarse = st.tuples(st.integers(0, 6), st.sampled_from([0, 1, 2, 3, 6, 60]), st.sampled_from([1, 2, 3, 5, 8]))
fine = st.tuples(st.integers(0, 10**4), st.integers(0, 10**6), st.integers(1, 10**4))
transfers_of = st.one_of(st.lists(coarse, min_size=1, max_size=14), st.lists(fine, min_size=1, max_size=14))
capacities = st.one_of(st.integers(1, 30), st.integers(1, 10**5))


def columns(transfers: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    start, size, cap = np.array(transfers, dtype=np.float64).T
    return start, size, cap


@given(transfers_of, capacities)
def test_equals_the_definition(transfers, capacity: int) -> None:
    expected = np.array([float(finish) for finish in exact_finish(transfers, capacity)])
    found = transfer_finish(*columns(transfers), capacity)
    np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE)


@given(st.lists(st.tuples(*[st.floats(0.01, 100)] * 3), min_size=1, max_size=25), st.floats(0.1, 1000))
def test_every_byte_is_delivered_and_no_rate_is_exceeded(transfers, capacity: float) -> None:
    start, size, cap = columns(transfers)
    finish = transfer_finish(start, size, cap, capacity)
    np.testing.assert_allclose(delivered(start, size, cap, capacity, finish), size, rtol=1e-7)
    assert (finish - start >= size / cap * (1 - CLOSE) - CLOSE).all()
    assert finish.max() - start.min() >= size.sum() / capacity * (1 - CLOSE)


@given(transfers_of, capacities, st.randoms(use_true_random=False))
def test_the_order_of_the_transfers_does_not_matter(transfers, capacity, random) -> None:
    start, size, cap = columns(transfers)
    order = np.array(random.sample(range(len(start)), len(start)))
    finish = transfer_finish(start, size, cap / 7, capacity / 3)
    shuffled = transfer_finish(start[order], size[order], cap[order] / 7, capacity / 3)
    assert shuffled.tobytes() == finish[order].tobytes()


def test_the_order_does_not_matter_for_rounding_either() -> None:
    generator = np.random.default_rng(8)
    start, size, cap = generator.integers(0, 3, 400) / 7, generator.random(400), generator.random(400)
    for capacity in (1.3, 20.0, 150.0):
        finish = transfer_finish(start, size, cap, capacity)
        for _ in range(5):
            order = generator.permutation(400)
            shuffled = transfer_finish(start[order], size[order], cap[order], capacity)
            assert shuffled.tobytes() == finish[order].tobytes()


@given(transfers_of, capacities, st.floats(-1e6, 1e6))
def test_a_later_start_shifts_everything(transfers, capacity: int, shift: float) -> None:
    start, size, cap = columns(transfers)
    moved = transfer_finish(start + shift, size, cap, capacity)
    unmoved = transfer_finish(start, size, cap, capacity)
    np.testing.assert_allclose(moved - shift, unmoved, rtol=1e-6, atol=1e-6)


@given(transfers_of, capacities, st.integers(1, 1000))
def test_more_capacity_never_makes_anybody_later(transfers, capacity: int, more: int) -> None:
    before = transfer_finish(*columns(transfers), capacity)
    after = transfer_finish(*columns(transfers), capacity + more)
    assert (after <= before * (1 + CLOSE)).all()


def test_equal_transfers_share_equally() -> None:
    finish = transfer_finish(np.zeros(10), np.full(10, 100), np.full(10, 50.0), 100.0)
    assert finish.tolist() == [10.0] * 10


def test_a_slow_link_leaves_its_share_to_the_others() -> None:
    # Caps 1, 10, 10 on 11: the slow one gets 1, the others 5 each; 50 bytes take 10 s, then the link is free.
    finish = transfer_finish([0, 0, 0], [20, 50, 50], [1, 10, 10], 11)
    np.testing.assert_allclose(finish, [20, 10, 10])


def test_an_unlimited_server_leaves_only_the_own_link() -> None:
    finish = transfer_finish([0.0, 5.0], [10, 10], [1.0, 2.0], math.inf)
    assert finish.tolist() == [10.0, 10.0]


def test_transfers_that_never_meet_are_not_held_back() -> None:
    start = np.arange(100.0)
    assert transfer_finish(start, np.full(100, 7.0), np.full(100, 7.0), 7.0).tolist() == (start + 1).tolist()


def test_nothing_to_send_never_started_never_ending() -> None:
    finish = transfer_finish([3, np.inf, np.inf, 1, 1], [0, 0, 5, 5, 0], [0, 1, 1, 0, 1], 0.5)
    assert finish.tolist() == [3, np.inf, np.inf, np.inf, 1]
    assert transfer_finish([1, 2], [5, 0], [1, 1], 0).tolist() == [np.inf, 2]
    assert transfer_finish([], [], [], 5).shape == (0,)


def test_unlimited_links_on_a_limited_server() -> None:
    finish = transfer_finish([0, 0, 4], [10, 10, 10], [np.inf, np.inf, 1], 5)
    # Two at 2.5 each are done at 4; the third then has its own cap.
    np.testing.assert_allclose(finish, [4, 4, 14])


def test_byte_counts_may_be_integers() -> None:
    size = np.array([2**40, 3], dtype=np.int64)
    assert transfer_finish(np.zeros(2), size, np.ones(2), 2).tolist() == [2.0**40, 3.0]


def test_many_transfers_agree_with_the_definition() -> None:
    generator = np.random.default_rng(5)
    drawn = [generator.integers(low, high, 150).tolist() for low, high in ((0, 40), (1, 1000), (1, 60))]
    transfers = list(zip(*drawn, strict=True))
    for capacity in (20, 800, 1500):
        expected = [float(finish) for finish in exact_finish(transfers, capacity)]
        np.testing.assert_allclose(transfer_finish(*columns(transfers), capacity), expected, rtol=CLOSE)


@pytest.mark.parametrize(
    ("start", "size", "rate", "capacity"),
    [
        ([0.0], [1.0, 2.0], [1.0], 1.0),
        ([np.nan], [1.0], [1.0], 1.0),
        ([-np.inf], [1.0], [1.0], 1.0),
        ([0.0], [-1.0], [1.0], 1.0),
        ([0.0], [np.inf], [1.0], 1.0),
        ([0.0], [1.0], [-1.0], 1.0),
        ([0.0], [1.0], [np.nan], 1.0),
        ([0.0], [1.0], [1.0], -1.0),
        ([0.0], [1.0], [1.0], np.nan),
    ],
)
def test_impossible_transfers_are_refused(start, size, rate, capacity) -> None:
    with pytest.raises(ValueError, match=r"start|size|rate"):
        transfer_finish(start, size, rate, capacity)
