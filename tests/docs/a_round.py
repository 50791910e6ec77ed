"""Which files one round runs through: `python -m tests.docs.a_round` prints their number, and names them with --files.

The experiment is the one of docs/explanation/a-round.md. Counted are the project's files of which a function is called
while the experiment file is loaded, the clients are made, and one round is run and recorded, in this process.
"""

import argparse
import asyncio
import re
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

from tests.repository import ROOT

PAGE = ROOT / "docs" / "explanation" / "a-round.md"
PACKAGES = ("testbed", "cluster", "workloads", "analysis")


def experiment_text() -> str:
    """The experiment that the page shows."""
    return PAGE.read_text().split("```yaml\n")[1].split("```")[0]


def linked() -> list[Path]:
    """The files that the page tells a reader to open."""
    targets = re.findall(r"\]\((\.\./\.\./[^)]+)\)", PAGE.read_text())
    return [(PAGE.parent / target).resolve() for target in dict.fromkeys(targets)]


class _Files:
    """The project's files of which a function has been called."""

    def __init__(self) -> None:
        self.by_phase: dict[str, set[str]] = {}
        self.phase = ""

    def begin(self, phase: str) -> None:
        self.phase = phase
        self.by_phase[phase] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        is_function = frame.f_code.co_flags & 1  # CO_OPTIMIZED: neither a module nor the body of a class
        if event == "call" and is_function and path.is_relative_to(ROOT):
            name = path.relative_to(ROOT)
            if name.parts[0] in PACKAGES:
                self.by_phase[self.phase].add(str(name))


def run() -> dict[str, set[str]]:
    """The files by phase: load, prepare, round, finish."""
    import workloads
    from testbed import Experiment
    from testbed.engine.in_process import federation_in_process
    from testbed.engine.plan import RunPlan
    from testbed.records import RunDirectory

    files = _Files()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a-round.yaml"
        path.write_text(experiment_text())
        sys.setprofile(files)
        try:
            files.begin("load")
            experiment = Experiment.load(path)
            files.begin("prepare")
            plan = RunPlan(experiment, 1)
            workload = workloads.build(experiment.workload, experiment.population, plan.seed)
            records = RunDirectory.create(Path(folder) / "run", {"name": experiment.name})
            federation = federation_in_process(plan, workload, records)
            files.begin("round")
            outcome = asyncio.run(federation.run_next_round())
            files.begin("finish")
            records.finish()
        finally:
            sys.setprofile(None)
    assert outcome.state == "completed", outcome.reason
    return files.by_phase


def main() -> None:
    """Print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", action="store_true", help="name the files, too")
    named = parser.parse_args().files
    found = run()
    print(f"the page links {len(linked())} files; a function is called in")
    for phase, files in found.items():
        print(f"{len(files):4d} to {phase}")
        if named:
            print("".join(f"       {name}\n" for name in sorted(files)), end="")
    print(f"{len(set().union(*found.values())):4d} in all")


if __name__ == "__main__":
    main()
