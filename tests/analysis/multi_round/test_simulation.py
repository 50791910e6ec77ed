"""Simulated selection is the federation's selection."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.multi_round.participation import participation_matrix
from analysis.multi_round.simulation import DROPOUT_PROBABILITIES, dropout_probabilities, simulate
from testbed.errors import ExperimentError
from testbed.experiment.schema import validated
from testbed.records import RunRecords
from testbed.running import run_all
from testbed.selection.batch_partition import BatchPartitionParameters, PartitionParameters
from testbed.selection.contract import SelectionParameters
from testbed.selection.lotto.variants import ClientCentricParameters
from testbed.selection.random_selection import BernoulliParameters, RandomParameters, WeightedRandomParameters
from tests.messages_named import naming

AWAY = [0.1, 0.3, 0.5]
PROTOCOLS = [
    RandomParameters(participants=4),
    WeightedRandomParameters(participants=4),
    BernoulliParameters(participants=4, assumed_unavailable=0.3),
    PartitionParameters(participants=3),
    BatchPartitionParameters(participants=4, privacy=2),
    BatchPartitionParameters(participants=4, privacy=2, mode="uniform"),
]


@pytest.fixture
def federation(tmp_path: Path) -> Callable[..., np.ndarray]:
    """Run a small federation, and return its participation."""

    def run(selection: SelectionParameters, rounds: int, population: int, seed: int) -> np.ndarray:
        data: dict[str, Any] = {
            "name": "small", "seed": seed, "rounds": rounds, "population": population,
            "workload": {"dataset": "digits", "model": "logistic", "evaluate_every": 100},
            "selection": selection.model_dump(), "aggregation": {"protocol": "plain"},
            "availability": {"model": "bernoulli", "unavailable": AWAY},
            "time": {"compute": "modelled"}, "cluster": {"network": "in-process"},
        }  # fmt: skip
        (path,) = run_all(validated(data, "small"), tmp_path / "run", where="small")
        return participation_matrix(RunRecords(path))

    return run


@pytest.mark.parametrize("parameters", PROTOCOLS, ids=lambda one: f"{one.protocol}-{getattr(one, 'mode', '')}")
def test_the_same_clients_take_part_as_in_a_federation(
    federation: Callable[..., np.ndarray], parameters: SelectionParameters
) -> None:
    population, rounds, seed = 13, 12, 5
    ran = federation(parameters, rounds, population, seed)
    simulated = simulate(parameters, np.resize(AWAY, population), rounds, seed)
    assert ran.any()
    np.testing.assert_array_equal(ran, simulated)


def test_rounds_are_skipped_when_too_few_are_there() -> None:
    matrix = simulate(RandomParameters(participants=8), np.full(10, 0.3), 100, 1)
    assert set(matrix.sum(axis=1).tolist()) == {0, 8}
    assert not simulate(PartitionParameters(participants=5), np.ones(10), 3, 1).any()


def test_participations_are_counted_for_the_fair_protocols() -> None:
    everybody = np.zeros(12)
    matrix = simulate(WeightedRandomParameters(participants=4), everybody, 9, 1)
    assert np.ptp(matrix.sum(axis=0)) == 0
    assert np.ptp(simulate(RandomParameters(participants=4), everybody, 9, 1).sum(axis=0)) > 0


def test_dropout_probabilities_are_the_papers() -> None:
    drawn = dropout_probabilities(1000, 3)
    assert set(drawn.tolist()) == set(DROPOUT_PROBABILITIES)
    counts = np.unique(drawn, return_counts=True)[1]
    assert counts.min() > 150
    assert not np.array_equal(drawn, dropout_probabilities(1000, 4))


def test_protocols_with_further_stages_are_refused() -> None:
    with pytest.raises(ExperimentError, match=r"lotto-client-centric has stages .*lotto/announce"):
        simulate(ClientCentricParameters(participants=4), np.zeros(20), 2, 1)


def test_parameters_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ExperimentError, match=naming("selection.participants", 4, 3)):
        simulate(RandomParameters(participants=4), np.zeros(3), 2, 1)
