"""Tests that share something stay in one process: otherwise each process would start a Ray, and more than once."""

import os

import pytest

TOGETHER = "together"


@pytest.mark.xdist_group(TOGETHER)
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="pytest has one process")
def test_xdist_knows_the_groups(request: pytest.FixtureRequest) -> None:
    """With pytest 9.2, xdist 3.8 distributes tests as if they had none, and says nothing."""
    assert request.node.nodeid.endswith(f"@{TOGETHER}"), "install what constraints.txt says"


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="pytest has one process")
def test_tests_on_ray_are_one_group(request: pytest.FixtureRequest) -> None:
    """`tests/conftest.py` makes them one."""
    on_ray = [item for item in request.session.items if item.get_closest_marker("ray")]
    assert [item.nodeid for item in on_ray if not item.nodeid.endswith("@ray")] == []
