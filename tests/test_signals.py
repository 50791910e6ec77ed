"""Signals at the worst of moments; what they do to runs is in tests/commands/test_resume.py."""

import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any

import pytest

from testbed.signals import raise_if_stopped, stop_code, stopping_on_signals
from tests.repository import ROOT

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


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([], 130),
        ([signal.SIGINT], 130),
        ([signal.SIGTERM], 143),
        ([signal.SIGHUP], 129),
        ([signal.SIGTERM, signal.SIGHUP], 143),
    ],
)
def test_the_exit_code_names_the_first_signal(numbers: list[signal.Signals], code: int) -> None:
    if signal.SIGHUP in numbers and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        pytest.skip("started with nohup")
    with stopping_on_signals():
        for number in numbers:
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
        inside = stop_code()
    assert inside == stop_code() == code
    with stopping_on_signals():
        assert stop_code() == 130


WITHOUT_ITS_TERMINAL = """
import sys, threading
from testbed.signals import stop_code, stopping_on_signals
try:
    with stopping_on_signals():
        print("ready", flush=True)
        threading.Event().wait({wait_s})
except KeyboardInterrupt:
    print("stopped", flush=True)
    print("stopped", file=sys.stderr, flush=True)
    open(sys.argv[1], "w").write(str(stop_code()))
"""


def test_a_terminal_that_goes_away_stops_it_in_good_order(tmp_path: Path) -> None:
    """A display that prints at its end must not raise an error in place of the end of the run."""
    ours, theirs = os.openpty()

    def own_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    program = WITHOUT_ITS_TERMINAL.format(wait_s=WAIT_S)
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "code")],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=own_terminal, cwd=ROOT,
    )  # fmt: skip
    os.close(theirs)
    assert os.read(ours, 5) == b"ready"
    os.close(ours)
    assert child.wait(WAIT_S) == 0
    assert (tmp_path / "code").read_text() == "129"
