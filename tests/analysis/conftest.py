"""Runs that are recorded without being run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.records import RunRecords
from tests.analysis.recorded import synthetic_run


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunRecords]:
    """`synthetic_run` below a temporary directory: ``make_run("name", protocol, ...)``."""

    def make(name: str, protocol: str = "random", **options: Any) -> RunRecords:
        return synthetic_run(tmp_path / name, protocol, **options)

    return make
