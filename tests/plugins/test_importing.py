"""Permission to import code that a file names, with several threads that read files at once."""

import threading
from collections.abc import Callable

import pytest

from testbed.plugins.classes import NotImportedError, check_allowed, importing_classes


def is_allowed() -> bool:
    try:
        check_allowed("key", "name", "code")
    except NotImportedError:
        return False
    return True


def in_thread(call: Callable[[], bool]) -> bool:
    """What `call` returns in a thread of its own."""
    results = list[bool]()
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def test_a_thread_that_ends_its_refusal_does_not_end_that_of_another() -> None:
    """Two readers overlap: the second is still refused after the first has ended, and nothing is once both have."""
    first = importing_classes(False)
    entered, may_end = threading.Event(), threading.Event()
    seen = list[bool]()

    def second() -> None:
        with importing_classes(False):
            entered.set()
            may_end.wait(10)
            seen.append(is_allowed())

    thread = threading.Thread(target=second)
    with first:
        thread.start()
        assert entered.wait(10)
    assert not is_allowed()  # a thread without a context of its own, while another refuses
    may_end.set()
    thread.join()
    assert seen == [False]
    assert is_allowed()


@pytest.mark.parametrize("allowed", [True, False])
def test_the_threads_of_a_command_may_what_the_command_may(allowed: bool) -> None:
    with importing_classes(False), importing_classes(allowed):
        assert is_allowed() is in_thread(is_allowed) is allowed


def test_a_run_beside_a_reader_is_no_leave_for_the_reader() -> None:
    with importing_classes(False):

        def run() -> bool:
            with importing_classes(True):
                return is_allowed()

        assert in_thread(run)
        assert not is_allowed()


def test_a_refusal_tells_a_program_how_it_allows_the_code() -> None:
    with importing_classes(False), pytest.raises(NotImportedError, match=r"--import-classes \(in Python: importing_"):
        check_allowed("key", "name", "code")
