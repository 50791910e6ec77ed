"""Seconds of the suite by file: where `make test` spends its time.

    python -m pytest -p tests.durations -m "not slow" tests/analysis
    DURATIONS=before.json python -m pytest -p tests.durations ...   # keep the seconds of each test, too

A plug-in of pytest. Processor seconds are those of this process, its threads and the processes that ended in it; they
stay comparable where other work shares the machine. Fixtures count at the test that needed them first. Seconds of
processes that live on, such as Ray's, show in the wall column alone.
"""

import json
import os
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

SHOWN = 40
KEPT = "DURATIONS"  # the environment variable that names the file with all tests' seconds


@dataclass
class Spent:
    """Seconds of a test, or of all tests of a file."""

    wall_s: float = 0.0
    processor_s: float = 0.0
    tests: int = 0

    def add(self, other: "Spent") -> None:
        """Count `other`, too."""
        self.wall_s += other.wall_s
        self.processor_s += other.processor_s
        self.tests += other.tests


def processor_seconds() -> float:
    """Processor seconds of this process so far, with those of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def by_file(tests: Mapping[str, Spent]) -> dict[str, Spent]:
    """The sums of the files, the most expensive first.

    Args:
        tests: node id of a test, to its seconds.
    """
    files = defaultdict[str, Spent](Spent)
    for test, spent in tests.items():
        files[test.partition("::")[0]].add(spent)
    return dict(sorted(files.items(), key=lambda entry: -entry[1].processor_s))


def table(tests: Mapping[str, Spent], shown: int = SHOWN) -> Iterator[str]:
    """Lines of text: the most expensive files, and the total."""
    files, total = by_file(tests), Spent()
    yield "processor [s]   wall [s]   tests   file"
    for number, (file, spent) in enumerate(files.items()):
        total.add(spent)
        if number < shown:
            yield f"{spent.processor_s:13.1f} {spent.wall_s:10.1f} {spent.tests:7}   {file}"
    yield f"{total.processor_s:13.1f} {total.wall_s:10.1f} {total.tests:7}   all {len(files)} files"


class Clock:
    """Measures each test where it runs, and collects the measurements where pytest reports.

    With xdist tests run in other processes; their reports bring the seconds along.
    """

    def __init__(self) -> None:
        self.tests = defaultdict[str, Spent](Spent)
        self.last_s = processor_seconds()

    def pytest_runtest_logstart(self) -> None:
        """Leave out the time between two tests."""
        self.last_s = processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the processor seconds of a test's phase (setup, call or teardown) to its report."""
        report = yield
        now_s = processor_seconds()
        report.processor_s, self.last_s = now_s - self.last_s, now_s  # type: ignore[attr-defined]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a phase of a test."""
        phase = Spent(report.duration, getattr(report, "processor_s", 0.0), int(report.when == "call"))
        self.tests[report.nodeid.partition("@")[0]].add(phase)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, and keep the seconds of each test if asked to."""
        if self.tests:
            terminalreporter.section("seconds by file")
            for line in table(self.tests):
                terminalreporter.write_line(line)
            if KEPT in os.environ:
                spent = {test: asdict(seconds) for test, seconds in self.tests.items()}
                Path(os.environ[KEPT]).write_text(json.dumps(spent, indent=0))


def pytest_configure(config: pytest.Config) -> None:
    """Register the clock."""
    config.pluginmanager.register(Clock(), "clock of the suite")
