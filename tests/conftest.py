"""Fixtures that all tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ci", deadline=None, print_blob=True)
settings.load_profile("ci")


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
