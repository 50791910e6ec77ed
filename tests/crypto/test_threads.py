"""Mapping a function on all cores gives the results of a loop."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.crypto import threads


@given(st.lists(st.integers(), max_size=60), st.integers(1, 9))
def test_results_are_in_the_order_of_the_items(items: list[int], cores: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "cores", lambda: cores)
        assert list(threads.thread_map(lambda item: item * 3, items)) == [item * 3 for item in items]


def test_several_threads_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 3)
    both = threading.Barrier(3)
    used = set(
        threads.thread_map(lambda item: (both.wait(10), threading.get_ident())[1] if item % 4 == 0 else 0, range(12))
    )
    assert len(used - {0}) == 3


@pytest.mark.parametrize("at", [0, 5, 11])
def test_exceptions_are_raised(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 2)
    with pytest.raises(ZeroDivisionError):
        threads.thread_map(lambda item: 1 // (item - at), range(12))
