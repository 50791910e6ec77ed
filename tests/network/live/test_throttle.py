"""Token buckets against the fluid model, on an event loop on which time passes only by waiting."""

import asyncio
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.emulation.links import BandwidthTraces, Rates
from testbed.network.fair_sharing.transfers import transfer
from testbed.network.live.links import (
    DEPTH_S,
    LARGEST_PIECE,
    SMALLEST_PIECE,
    ThrottledTransfer,
    TokenBucket,
    UnthrottledTransfer,
    constant,
    sleep_until,
    varying,
)
from tests.network.live.jumping import clock, run
from tests.thoroughness import examples


async def send(own: TokenBucket, shared: TokenBucket, size: int, start_s: float = 0.0, factor: float = 1.0) -> Any:
    """Returns when the transfer is complete, and its pieces as (time, bytes)."""
    await sleep_until(start_s, clock)
    pieces, left = [], size
    with ThrottledTransfer(own, shared, factor, clock) as passage:
        while left:
            piece = await passage.next_piece(left)
            left -= piece
            pieces.append((clock(), piece))
    return clock(), pieces


async def all_of(start: list[float], size: list[int], rate: list[float], capacity: float) -> list[float]:
    shared = TokenBucket(constant(capacity), clock)
    work = [
        send(TokenBucket(constant(own), clock), shared, amount, begin)
        for begin, amount, own in zip(start, size, rate, strict=True)
    ]
    return [finished for finished, _ in await asyncio.gather(*work)]


@given(st.integers(1, 10**7), st.floats(1e3, 1e9))
@settings(max_examples=examples(50))
def test_a_lone_transfer_takes_its_size_over_its_rate(size: int, rate: float) -> None:
    (finish,) = run(all_of([0.0], [size], [rate], math.inf))
    assert finish == pytest.approx(size / rate, rel=1e-6)
    assert finish >= size / rate * (1 - 1e-9)


@given(
    st.lists(st.tuples(st.floats(0, 2), st.integers(1, 3_000_000), st.floats(1e5, 1e7)), min_size=1, max_size=6),
    st.floats(2e5, 2e7),
)
@settings(max_examples=examples(40))
def test_concurrent_transfers_share_the_servers_link_as_the_fluid_model_says(
    transfers: list[tuple[float, int, float]], capacity: float
) -> None:
    start, size, rate = (list(column) for column in zip(*transfers, strict=True))
    finish = np.array(run(all_of(start, size, rate, capacity)))
    expected = transfer(start, size, Rates.constant(rate), capacity).finish_s
    # A piece of every transfer, one of its own, and the buckets' depth.
    slack_s = 2 * len(size) * max(SMALLEST_PIECE, 0.01 * capacity) / capacity + 2 * DEPTH_S
    assert (np.abs(finish - expected) <= slack_s + 0.03 * (expected - start)).all(), (finish, expected)
    assert finish.max() >= sum(size) / capacity * (1 - 1e-9)


def test_equal_transfers_finish_together_and_a_slow_link_keeps_its_own_rate() -> None:
    finish = run(all_of([0.0] * 4, [1_000_000] * 3 + [100_000], [1e9, 1e9, 1e9, 1e5], 3.1e6))
    assert finish[3] == pytest.approx(1.0, rel=0.05)
    assert finish[:3] == pytest.approx([1.0] * 3, rel=0.05)


def test_transport_headers_take_their_part_of_the_link() -> None:
    async def work() -> float:
        own, shared = TokenBucket(constant(1e6), clock), TokenBucket(constant(1e9), clock)
        finish: float = (await send(own, shared, 1_000_000, factor=1.05))[0]
        return finish

    assert run(work()) == pytest.approx(1.05)


def test_at_no_time_more_has_passed_than_the_rate_allows() -> None:
    async def work() -> Any:
        return await send(TokenBucket(constant(2e6), clock), TokenBucket(constant(1e9), clock), 1_000_000)

    _, pieces = run(work())
    passed = 0
    for when, size in pieces:
        passed += size
        assert passed <= 2e6 * when * (1 + 1e-9)
        assert SMALLEST_PIECE <= size <= LARGEST_PIECE or passed == 1_000_000


def test_a_late_wake_up_is_made_up_for_but_an_idle_link_saves_nothing() -> None:
    async def work() -> tuple[float, float]:
        bucket = TokenBucket(constant(1e6), clock)
        bucket.begin()
        bucket.reserve(10_000)
        await sleep_until(0.03, clock)  # woken 0.02 s late
        made_up = bucket.reserve(10_000)
        await sleep_until(10.0, clock)
        long_after = bucket.reserve(100_000)
        bucket.end()
        bucket.begin()
        return made_up, long_after - 10.0 + 1000 * (bucket.reserve(100_000) - 10.1)

    made_up, rest = run(work())
    assert made_up == pytest.approx(0.02)
    assert rest == pytest.approx(0.1 - DEPTH_S)


def test_a_link_that_is_down_waits_until_it_is_up() -> None:
    traces = BandwidthTraces.of(
        np.array([0, 3]), np.array([0.0, 1.0, 3.0]), np.array([1e6, 0.0, 2e6]), np.array([100.0])
    )
    rates = Rates.traced(traces, np.array([0]))

    async def work(rate: Any, size: int) -> Any:
        return await send(TokenBucket(rate, clock), TokenBucket(constant(math.inf), clock), size)

    finish, pieces = run(work(varying(rates, 0), 3_000_000))
    assert finish == pytest.approx(4.0)
    assert not [when for when, _ in pieces if 1.001 < when < 3.0]
    with pytest.raises(RuntimeError, match="for ever"):
        run(work(constant(0.0), 10))


def test_a_constant_link_among_rates_is_its_rate() -> None:
    assert varying(Rates.constant([5.0, 10.0]), 1)(1.0, 20) == 3.0
    assert constant(math.inf)(1.0, 1e9) == 1.0
    assert constant(0.0)(1.0, 0) == 1.0


def test_an_open_passage_holds_nothing_back() -> None:
    async def work() -> tuple[int, int, float]:
        with UnthrottledTransfer() as passage:
            return await passage.next_piece(10), await passage.next_piece(10**9), clock()

    assert run(work()) == (10, LARGEST_PIECE, 0.0)


async def stalling(
    own: TokenBucket, shared: TokenBucket, size: int, stalls_s: list[float], ready_s: float | None = None
) -> tuple[float, int]:
    """A transfer on a machine that is away for `stalls_s` after its first pieces; behind_s, and its pieces."""
    left, pieces = size, 0
    with ThrottledTransfer(own, shared, 1.0, clock, ready_s) as passage:
        while left:
            left -= await passage.next_piece(left)
            pieces += 1
            if stalls_s:
                await asyncio.sleep(stalls_s.pop(0))
    return passage.behind_s, pieces


@pytest.mark.parametrize(
    ("stalls_s", "expected_s"), [([], 0.0), ([0.04], 0.0), ([0.25, *[0.0] * 8, 1.05], 1.2), ([0.55], 0.5)]
)
def test_idle_time_of_links_caused_by_the_machine_is_added_up(stalls_s: list[float], expected_s: float) -> None:
    async def work() -> tuple[float, int]:
        return await stalling(TokenBucket(constant(1e6), clock), TokenBucket(constant(1e9), clock), 10**6, stalls_s)

    behind_s, pieces = run(work())
    assert pieces > 3
    assert behind_s == pytest.approx(expected_s)


def test_waiting_for_a_link_that_others_use_is_not_the_machines() -> None:
    async def work() -> list[tuple[float, int]]:
        shared = TokenBucket(constant(1e6), clock)
        each = (stalling(TokenBucket(constant(rate), clock), shared, 10**6, []) for rate in (1e9, 1e9, 1e5))
        return list(await asyncio.gather(*each))

    assert [behind_s for behind_s, _ in run(work())] == pytest.approx([0.0] * 3)


def test_the_last_piece_and_a_late_beginning_count_too() -> None:
    async def work(stalls_s: list[float], ready_s: float) -> tuple[float, int]:
        await sleep_until(2.0, clock)
        own = TokenBucket(constant(1e9), clock)
        return await stalling(own, TokenBucket(constant(1e9), clock), SMALLEST_PIECE, stalls_s, ready_s)

    assert run(work([], 2.0)) == (0.0, 1)
    assert run(work([], 0.5))[0] == pytest.approx(1.5 - DEPTH_S)
    assert run(work([1.0], 2.0))[0] == pytest.approx(1.0 - DEPTH_S)
