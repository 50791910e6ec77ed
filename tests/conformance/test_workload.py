"""Workloads that lack one property: the check of that property fails, with the remedy in its line."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from testbed.conformance.results import Result, results
from testbed.conformance.subjects import subject
from testbed.conformance.workload import PROPERTIES, WorkloadEvidence
from testbed.workload.contract import Evaluation, LocalUpdate


class Whole:
    """A workload that has all properties."""

    dimension: Any = 3

    def __init__(self, section: Any, population: int, seed: int) -> None:
        self.seed = seed
        self.sample_counts: Any = np.arange(1, population + 1)

    def initial_model(self) -> Any:
        return np.zeros(3, np.float32)

    def train(self, client: int, model: Any, round_number: int) -> LocalUpdate:
        delta = np.random.default_rng([self.seed, client, round_number]).normal(size=3).astype(np.float32)
        return LocalUpdate(delta, client + 1, 0.5, client + 1)

    def evaluate(self, model: Any) -> Evaluation | None:
        return Evaluation(0.5, 0.25, 4)


class NoDimension(Whole):
    dimension = 2.5


class OtherCounts(Whole):
    def __init__(self, section: Any, population: int, seed: int) -> None:
        super().__init__(section, population, seed)
        self.sample_counts = self.sample_counts[1:]


class NegativeCounts(Whole):
    def __init__(self, section: Any, population: int, seed: int) -> None:
        super().__init__(section, population, seed)
        self.sample_counts = self.sample_counts - 2


class Doubles(Whole):
    def initial_model(self) -> Any:
        return np.zeros(3)


class NotFinite(Whole):
    def train(self, client: int, model: Any, round_number: int) -> LocalUpdate:
        right = super().train(client, model, round_number)
        return replace(right, delta=right.delta * np.float32("inf")) if client == 4 else right


class OtherSamples(Whole):
    def train(self, client: int, model: Any, round_number: int) -> LocalUpdate:
        return replace(super().train(client, model, round_number), samples=7)


class ChangesTheModel(Whole):
    def train(self, client: int, model: Any, round_number: int) -> LocalUpdate:
        model += 1
        return super().train(client, model, round_number)


class Percent(Whole):
    def evaluate(self, model: Any) -> Evaluation | None:
        return Evaluation(0.5, 25.0, 4)


class RemembersCalls(Whole):
    calls = 0

    def train(self, client: int, model: Any, round_number: int) -> LocalUpdate:
        self.calls += 1
        right = super().train(client, model, round_number)
        return replace(right, delta=right.delta + np.float32(self.calls))


class Unseeded(Whole):
    def initial_model(self) -> Any:
        return np.random.default_rng().normal(size=3).astype(np.float32)


def checked(kind: type) -> list[Result]:
    return list(results(WorkloadEvidence(subject(f"{__name__}:{kind.__name__}")), PROPERTIES))


def test_a_workload_with_all_properties_passes() -> None:
    assert {result.verdict for result in checked(Whole)} == {"passed"}


@pytest.mark.parametrize(
    ("kind", "detail"),
    [
        (NoDimension, r"dimension is 2\.5; return the number of the model's parameters"),
        (OtherCounts, r"OtherCounts must have sample_counts of shape \(10,\) and dtype int64, not \(9,\)"),
        (NegativeCounts, "sample_counts: client 0 has -1 samples"),
        (Doubles, r"initial_model is float64 of shape \(3,\); return \(3,\) float32"),
        (NotFinite, "train of client 4 in round 1: delta has numbers that are not finite"),
        (OtherSamples, "train of client 0 in round 1: 7 samples, but sample_counts has 1"),
        (ChangesTheModel, "ValueError: output array is read-only"),
        (Percent, "evaluate: accuracy 25.0 of 4 samples; return a share"),
        (RemembersCalls, "differs when another object trains the clients in another order"),
        (Unseeded, "initial_model differs between two objects with one seed"),
    ],
)
def test_a_broken_workload_is_caught(kind: type, detail: str) -> None:
    failures = [result.detail for result in checked(kind) if result.verdict == "failed"]
    assert any(re.search(detail, line) for line in failures), failures
