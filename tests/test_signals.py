"""Signals at the worst of moments; what they do to runs is in tests/commands/test_resume.py."""

import os
import signal
import threading
from typing import Any

import pytest

from testbed.signals import raise_if_stopped, stopping_on_signals

WAIT_S = 60  # turns a lost signal into a failure
IN_THE_IMPORT_SYSTEM = compile(
    "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nwent_on = True", "<frozen importlib._bootstrap>", "exec"
)


def test_in_the_import_system_it_waits() -> None:
    """Where it is raised there, importlib's lock stays locked: threads that import something wait for ever."""
    names: dict[str, Any] = {}
    with pytest.raises(KeyboardInterrupt), stopping_on_signals():  # noqa: PT012  # where it is raised is the point
        exec(IN_THE_IMPORT_SYSTEM, names)
        assert names["went_on"]
        threading.Event().wait(WAIT_S)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_is_dropped_is_raised_again_and_once_answered_no_more() -> None:
    class Signalling:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    with stopping_on_signals():
        Signalling()
        with pytest.raises(KeyboardInterrupt), stopping_on_signals():
            raise_if_stopped()
        with pytest.raises(KeyboardInterrupt):
            raise_if_stopped()
    with stopping_on_signals():
        raise_if_stopped()
