"""The examples, from which users start, are valid, and their claims hold."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
import yaml

import workloads
from testbed.emulation.availability.models import RoundwiseAvailability
from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment import load
from testbed.experiment.schema import points, validated
from tests.messages_named import naming
from tests.repository import ROOT

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_a_valid_experiment(path: Path) -> None:
    experiment = load(path)
    assert list(points(experiment, str(path)))


def test_a_selection_protocol_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    data = {
        "seed": 1, "rounds": 3, "population": 10,
        "workload": {"dataset": "digits", "model": "logistic"},
        "selection": {"protocol": "own_selection:TakingTurns", "participants": 4, "start": 2},
    }  # fmt: skip
    experiment = validated(data, "test")
    workload = workloads.build(experiment.workload, 10, 1)
    federation = federation_in_process(RunPlan(experiment, 0), workload, None)
    taken = [asyncio.run(federation.run_next_round()).participants.tolist() for _ in range(3)]
    assert taken == [[2, 3, 4, 5], [6, 7, 8, 9], [0, 1, 2, 3]]
    assert "own_selection" in sys.modules


def test_the_experiment_in_the_readme_is_valid() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    experiment = validated(yaml.safe_load(block), "README.md")
    assert len(list(points(experiment, "README.md"))) == 3


def test_the_multi_round_example_learns_from_shared_and_private_samples() -> None:
    path = EXAMPLES / "multi-round-cifar.yaml"
    whole = load(path)
    assert workloads.build(whole.workload, 120, 1).sample_counts.tolist() == [615] * 120
    shorter = ("workload.samples_per_client=225", "workload.test_samples=200", "rounds=3", "workload.evaluate_every=1")
    experiment = load(path, list(shorter))
    workload = workloads.build(experiment.workload, 120, 1)
    federation = federation_in_process(RunPlan(experiment, 0), workload, None)
    availability = federation.plan.availability(workload)
    assert isinstance(availability, RoundwiseAvailability)
    assert availability.unavailable.min() == 0.1
    outcomes = [asyncio.run(federation.run_next_round()) for _ in range(3)]
    assert [outcome.state for outcome in outcomes] == ["completed"] * 3
    for outcome in outcomes:  # three whole batches of four
        assert len(outcome.participants) == 12


def test_the_example_with_noise_learns_in_the_smallest_ring() -> None:
    path = EXAMPLES / "distributed-noise.yaml"
    experiment = load(path, ["rounds=8"])
    workload = workloads.build(experiment.workload, 100, 1)
    federation = federation_in_process(RunPlan(experiment, 0), workload, None)
    outcomes = [asyncio.run(federation.run_next_round()) for _ in range(8)]
    assert [outcome.state for outcome in outcomes] == ["completed"] * 8
    for outcome in outcomes:
        assert outcome.aggregate is not None
        assert outcome.aggregate.noise == len(outcome.survivors) / 20
    assert federation.accuracy is not None
    assert federation.accuracy > 0.6
    with pytest.raises(ExperimentError, match=naming("13 bits", 12, "aggregation.bits to 13")):
        RunPlan(load(path, ["aggregation.bits=12"]), 0).check_sums(workload)
