"""Workers on plain threads: assignment of items, collection of results, and the end of all workers after a failure.

The threads meet at barriers and events, never at times: `WAIT_S` only turns a deadlock into a failure.
"""

import os
import signal
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.running.workers import run_all
from testbed.signals import stopping_on_signals

WAIT_S = 30


class Closed(Exception):
    """The exception of a worker that was closed while it worked."""


class Working:
    """A worker that runs a function; `hold` blocks until the worker is closed."""

    def __init__(self, work: Callable[["Working", int], int]) -> None:
        self.work = work
        self.done: list[int] = []
        self.threads: set[threading.Thread] = set()
        self.closed = threading.Event()

    def run(self, item: int) -> int:
        self.threads.add(threading.current_thread())
        assert not self.closed.is_set()
        made = self.work(self, item)
        self.done.append(item)
        return made

    def hold(self) -> int:
        assert self.closed.wait(WAIT_S)
        raise Closed

    def close(self) -> None:
        self.closed.set()


def ended(workers: list[Working]) -> bool:
    """Whether all workers are closed and none of their threads lives (except for this one)."""
    here = threading.current_thread()
    return all(
        worker.closed.is_set() and not any(thread.is_alive() for thread in worker.threads - {here})
        for worker in workers
    )


@given(st.integers(0, 30), st.integers(1, 5))
def test_everything_is_done_once_and_collected_here(items: int, count: int) -> None:
    workers = [Working(lambda worker, item: -item) for _ in range(count)]
    collected: list[tuple[int, int]] = []
    here = threading.current_thread()

    def collect(item: int, made: int) -> None:
        assert threading.current_thread() is here
        collected.append((item, made))

    run_all(range(items), workers, collect)
    assert sorted(collected) == [(item, -item) for item in range(items)]
    assert sorted(item for worker in workers for item in worker.done) == list(range(items))
    assert ended(workers)
    for worker in workers:
        assert worker.done == sorted(worker.done)  # the next unfinished one
        assert len(worker.threads) <= 1
        assert (here in worker.threads) == (count == 1 and items > 0)


def test_workers_work_at_the_same_time() -> None:
    meeting = threading.Barrier(3)

    def work(worker: Working, item: int) -> int:
        meeting.wait(WAIT_S)  # three items must be under way, or nobody goes on
        return item

    run_all(range(6), [Working(work) for _ in range(3)], lambda item, made: None)


def test_the_lane_that_is_free_takes_the_next() -> None:
    others_done = threading.Event()

    def work(worker: Working, item: int) -> int:
        if item == 0:
            assert others_done.wait(WAIT_S)
        if item == 4:
            others_done.set()
        return item

    workers = [Working(work) for _ in range(2)]
    collected: list[int] = []
    run_all(range(5), workers, lambda item, made: collected.append(item))
    assert sorted(worker.done for worker in workers) == [[0], [1, 2, 3, 4]]
    assert collected == [1, 2, 3, 4, 0]


def test_an_idle_worker_releases_its_resources() -> None:
    workers: list[Working] = []

    def work(worker: Working, item: int) -> int:
        other = workers[1 - workers.index(worker)]
        if item == 0:
            assert other.closed.wait(WAIT_S)  # while this one still works
        return item

    workers += [Working(work), Working(work)]
    run_all([0, 1], workers, lambda item, made: None)
    assert ended(workers)


def test_the_first_error_ends_all_workers_and_is_raised() -> None:
    under_way = threading.Barrier(3)

    def work(worker: Working, item: int) -> int:
        under_way.wait(WAIT_S)
        if item == 1:
            raise ValueError("the second")
        return worker.hold()

    workers = [Working(work) for _ in range(3)]
    with pytest.raises(ValueError, match="the second"):
        run_all(range(9), workers, lambda item, made: None)
    assert ended(workers)
    assert not any(worker.done for worker in workers)


def test_results_from_before_the_error_are_collected() -> None:
    collected = threading.Event()

    def work(worker: Working, item: int) -> int:
        if item == 0:
            return item
        assert collected.wait(WAIT_S)
        raise ValueError("later")

    workers = [Working(work), Working(work)]
    with pytest.raises(ValueError, match="later"):
        run_all(range(2), workers, lambda item, made: collected.set())
    assert ended(workers)


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_of_the_collector_ends_all_workers(count: int) -> None:
    def work(worker: Working, item: int) -> int:
        return item if item == 0 else worker.hold()

    def collect(item: int, made: int) -> None:
        raise ValueError("no room")

    workers = [Working(work) for _ in range(count)]
    with pytest.raises(ValueError, match="no room"):
        run_all(range(9), workers, collect)
    assert ended(workers)


def test_a_lane_that_cannot_be_closed_does_not_keep_the_others_open() -> None:
    class Stuck(Working):
        def close(self) -> None:
            super().close()
            raise OSError("cannot close")

    def work(worker: Working, item: int) -> int:
        return worker.hold()

    workers = [Working(work), Stuck(work), Working(lambda worker, item: 1 // 0)]
    with pytest.raises(OSError, match="cannot close"):
        run_all(range(3), workers, lambda item, made: None)
    assert ended(workers)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_workers(number: signal.Signals) -> None:
    """It reaches this thread, which waits for the workers."""
    under_way = threading.Barrier(2, action=lambda: os.kill(os.getpid(), number))

    def work(worker: Working, item: int) -> int:
        under_way.wait(WAIT_S)
        return worker.hold()

    workers = [Working(work), Working(work)]
    with stopping_on_signals(), pytest.raises(KeyboardInterrupt):
        run_all(range(9), workers, lambda item, made: None)
    assert ended(workers)
    assert not any(worker.done for worker in workers)


def test_an_interrupt_raised_in_a_lane_is_raised_here() -> None:
    def work(worker: Working, item: int) -> int:
        if item == 1:
            raise KeyboardInterrupt
        return worker.hold()

    workers = [Working(work), Working(work)]
    with pytest.raises(KeyboardInterrupt):
        run_all(range(2), workers, lambda item, made: None)
    assert ended(workers)
