"""The profile of the suite: setup and teardown count, files are summed, the most expensive come first."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.durations import Clock, Spent, by_file, processor_seconds, table


def report(test: str, when: str, processor_s: float) -> Any:
    return SimpleNamespace(nodeid=test, when=when, duration=2 * processor_s, processor_s=processor_s)


def measured() -> Clock:
    clock = Clock()
    for test, seconds in (("a.py::one", 1.0), ("a.py::two[x::y]", 2.0), ("b.py::three@ray", 4.0)):
        for when in ("setup", "call", "teardown"):
            clock.pytest_runtest_logreport(report(test, when, seconds))
    return clock


def test_all_phases_of_a_test_count() -> None:
    assert measured().tests["a.py::two[x::y]"] == Spent(12.0, 6.0, 1)


def test_a_group_of_xdist_is_no_part_of_a_tests_name() -> None:
    assert measured().tests["b.py::three"] == Spent(24.0, 12.0, 1)


def test_files_are_summed_and_the_most_expensive_come_first() -> None:
    assert list(by_file(measured().tests).items()) == [("b.py", Spent(24.0, 12.0, 1)), ("a.py", Spent(18.0, 9.0, 2))]


def test_what_is_not_shown_is_in_the_total() -> None:
    heads, first, total = table(measured().tests, shown=1)
    assert heads.split()[0] == "processor"
    assert first.split() == ["12.0", "24.0", "1", "b.py"]
    assert total.split() == ["21.0", "42.0", "3", "all", "2", "files"]


def test_work_between_two_reports_is_measured() -> None:
    clock = Clock()
    clock.pytest_runtest_logstart()
    began = processor_seconds()
    while processor_seconds() - began < 0.05:  # times of the system have steps of 0.01 s
        pass
    hook = clock.pytest_runtest_makereport()
    next(hook)
    made = SimpleNamespace()
    with pytest.raises(StopIteration) as end:
        hook.send(made)
    assert end.value.value is made
    assert made.processor_s >= 0.04
