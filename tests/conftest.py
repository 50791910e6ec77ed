"""Fixtures that all tests share."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.finished_runs import FinishedRuns
from tests.repeated_crypto import kept_results
from tests.thoroughness import examples

settings.register_profile("suite", deadline=None, print_blob=True, max_examples=examples())
settings.load_profile("suite")


def pytest_configure() -> None:
    """Stop signals act as in a terminal, for the tests that send them and for the processes that these start.

    A shell script ignores SIGINT in its background processes, nohup ignores SIGHUP, and children inherit both. A signal
    with a handler has its default action again in children.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)  # the suite itself still survives its terminal
    # Ray gives its processes the lowest priority but for a few: beside a second process of tests they would starve.
    os.environ.setdefault("RAY_worker_niceness", "0")


class _ImportedModules:
    """Keeps Python's search for circles out of imported modules.

    The product searches before each run. With torch, pandas and Ray imported a search takes a quarter of a small run's
    time. Modules stay until the process ends, so the search can skip them.
    """

    WORTH_IT = 100  # modules imported since

    def __init__(self) -> None:
        self.frozen = 0

    def freeze(self) -> None:
        """Freeze the objects of recent imports if there are many."""
        if len(sys.modules) >= self.frozen + self.WORTH_IT:
            self.frozen = len(sys.modules)
            gc.collect()
            gc.freeze()


_IMPORTED = _ImportedModules()


def pytest_collection_finish() -> None:
    """All test files are imported by now."""
    _IMPORTED.freeze()


def pytest_runtest_logfinish() -> None:
    """A test can import more."""
    _IMPORTED.freeze()


def pytest_unconfigure() -> None:
    """At the end they go like everything else: triton would report them as leaks."""
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """A file is safe from the loss of power only when the disk has it: no test cuts the power.

    It is safe from the end of a process before that.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _check_open)
        yield


def _check_open(file: Any) -> None:
    """Raise as `os.fsync` does where `file` is no open file."""
    os.fstat(file.fileno() if hasattr(file, "fileno") else file)


@pytest.fixture(autouse=True, scope="module")
def _keys_are_computed_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Seeded federations repeat their keys and shares; only the tests of the primitives compute each anew, and tests
    that measure memory (`COMPUTES_KEYS_ANEW` in their module).
    """
    if "crypto" in request.path.parts or getattr(request.module, "COMPUTES_KEYS_ANEW", False):
        yield
        return
    with kept_results():
        yield


@pytest.fixture(autouse=True)
def _import_path_as_before() -> Iterator[None]:
    """Restore the import path after a test: each command that runs in this process adds its folder."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture(scope="session")
def finished_runs(tmp_path_factory: pytest.TempPathFactory) -> FinishedRuns:
    """Runs that more than one test looks at."""
    return FinishedRuns(tmp_path_factory.mktemp("finished-runs"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of third-party data beside the checkout; tests that need it are skipped without it."""
    for candidate in (os.environ.get("TESTBED_SHARED"), Path(__file__).resolve().parents[2] / "shared"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    pytest.skip("no shared data folder beside the checkout")


@pytest.fixture
def quick_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fonts that PDFs embed in a fraction of the time, for tests that draw many figures and read no PDF."""
    monkeypatch.setitem(pytest.importorskip("analysis.style")._STYLE, "pdf.fonttype", 3)


@pytest.fixture
def ray_here() -> None:
    """A Ray of this process. The first test that asks for it starts it, and it stays for those after it."""
    from cluster.hosts.connection import connect

    connect(None)


@pytest.fixture
def no_ray() -> Iterator[None]:
    """No Ray in this process, for a test that starts one of its own; none is left."""
    import ray

    ray.shutdown()
    yield
    ray.shutdown()


@pytest.hookimpl(tryfirst=True)  # before xdist looks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start Ray stay together in one process (`make test` uses two), the others fill the rest.

    xdist begins with the largest group, which is theirs. Those that share a Ray come first, so that it is started once.
    """
    alone = dict[pytest.Item, None]()
    for item in items:
        if item.get_closest_marker("ray") or item.get_closest_marker("launch"):
            item.add_marker(pytest.mark.xdist_group("ray"))
            if "ray_here" not in getattr(item, "fixturenames", ()):
                alone[item] = None
    items[:] = [item for item in items if item not in alone] + list(alone)
