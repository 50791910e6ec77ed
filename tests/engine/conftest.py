"""Whole federations in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.federations import Run


@pytest.fixture
def same_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give runs with one seed the same masks and noise even if other settings differ; users' runs never have them."""
    monkeypatch.setattr("testbed.engine.plan.secrets_context", lambda experiment: b"the same")


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Run]:
    """See `Run`; `name` is the directory to record in."""

    def make(keys: dict[str, Any], name: str | None = None, **options: Any) -> Run:
        return Run(keys, None if name is None else tmp_path / name, **options)

    return make
