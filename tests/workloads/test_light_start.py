"""Imports of a process that trains: without torch's compiler and its dependencies, which take 160 MB and 1 s."""

import subprocess
import sys

from tests.repository import ROOT

TRAINING = """
import sys
import workloads
from testbed.workload.section import WorkloadSection
keys = {"model": "logistic", "samples_per_client": 5, "test_samples": 20, "momentum": 0.9}
section = WorkloadSection(dataset="synthetic-femnist", **keys)
made = workloads.build(section, 10, 1)
assert made.train(3, made.initial_model(), 1).delta.any()
made.evaluate(made.initial_model())
print(*sorted({"torch._dynamo", "torch._inductor", "sympy"} & sys.modules.keys()))
"""


def test_training_and_evaluating_need_no_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAINING], capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
