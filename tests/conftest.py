"""Fixtures that all tests share."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ci", deadline=None, print_blob=True)
settings.load_profile("ci")


def pytest_configure() -> None:
    """Stop signals act as in a terminal, for the tests that send them and for the processes that these start.

    A shell script ignores SIGINT in what it starts in the background, nohup ignores SIGHUP, and both are inherited. A
    signal with a handler is a process's default again in what it starts.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)  # the suite itself still survives its terminal


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of third-party data beside the checkout; tests that need it are skipped without it."""
    for candidate in (os.environ.get("TESTBED_SHARED"), Path(__file__).resolve().parents[2] / "shared"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    pytest.skip("no shared data folder beside the checkout")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start Ray stay together in one process (`make test` uses two), the others fill the rest."""
    for item in items:
        if item.get_closest_marker("ray") or item.get_closest_marker("launch"):
            item.add_marker(pytest.mark.xdist_group("ray"))
