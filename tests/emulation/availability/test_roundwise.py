"""Availability models that draw anew for each round."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from testbed.emulation.availability.models import RoundwiseAvailability
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment.schema import validated
from testbed.randomness import Randomness
from tests.emulation.availability.models import model_of
from tests.engine.federations import Pulling

POPULATION = 3000
EVERYBODY = np.arange(POPULATION)
SUSPICIOUS = 1e-6


def roundwise(population: int, **section: Any) -> RoundwiseAvailability:
    model = model_of(population, **section)
    assert isinstance(model, RoundwiseAvailability)
    return model


def test_always_means_always() -> None:
    model = model_of(POPULATION)
    for stage in ("check-in", "train", "first"):
        presence = model.presence(1, stage, 1e9, EVERYBODY)
        assert presence.reachable.all()
        assert not presence.drops.any()
        assert np.isposinf(presence.leaves_s).all()
    assert not model.comes_back


def test_each_client_is_away_at_its_own_rate() -> None:
    model = model_of(POPULATION, model="bernoulli", unavailable=[0.1, 0.5, 0.0, 1.0])
    rounds = np.stack([model.presence(number, "check-in", 0.0, EVERYBODY).reachable for number in range(1, 21)])
    for position, probability in enumerate((0.1, 0.5)):
        away = (~rounds[:, position::4]).sum()
        assert binomtest(int(away), rounds[:, position::4].size, probability).pvalue > SUSPICIOUS
    assert rounds[:, 2::4].all()
    assert not rounds[:, 3::4].any()
    per_client = rounds[:, 1::4].sum(axis=0)
    assert per_client.std() > 0  # drawn anew in each round, not once
    assert not model.comes_back


def test_probabilities_may_be_drawn_from_a_list() -> None:
    """Multi-RoundSecAgg, section 5: p_i is selected from {0.1, ..., 0.5} uniformly at random."""
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    section = {"model": "bernoulli", "unavailable": values, "drawn": True}
    drawn = roundwise(POPULATION, seed=3, **section).unavailable
    for value in values:
        assert binomtest(int((drawn == value).sum()), POPULATION, 0.2).pvalue > SUSPICIOUS
    assert set(drawn) == set(values)
    assert not np.array_equal(drawn, np.resize(values, POPULATION))
    assert np.array_equal(roundwise(POPULATION, seed=3, **section).unavailable, drawn)
    assert not np.array_equal(roundwise(POPULATION, seed=4, **section).unavailable, drawn)


def test_the_draws_of_a_round_are_those_of_earlier_versions() -> None:
    """Recorded runs can be repeated: one uniform number per client, those below its p are away."""
    model = model_of(7, seed=5, model="bernoulli", unavailable=[0.3, 0.6])
    for number in (1, 2, 40):
        draws = Randomness(5).generator("availability", number, "present").random(7)
        there = [draws[client] >= (0.3, 0.6)[client % 2] for client in range(7)]
        assert model.presence(number, "check-in", 0.0, np.arange(7)).reachable.tolist() == there


def test_a_clients_fate_does_not_depend_on_other_questions_or_their_order() -> None:
    some = np.array([5, 17, 2999])
    section = {"model": "bernoulli", "unavailable": 0.4, "dropout": {"rate": 0.5, "hazard": 0.3}}
    first, second = (model_of(POPULATION, **section) for _ in range(2))
    expected = {number: first.presence(number, "train", 0.0, EVERYBODY) for number in (1, 2, 3)}
    for number in (3, 1, 2, 1):
        presence = second.presence(number, "train", 99.0, some)
        assert (presence.reachable == expected[number].reachable[some]).all()
        assert (presence.drops == expected[number].drops[some]).all()
    other = model_of(POPULATION, seed=2, **section).presence(1, "train", 0.0, EVERYBODY)
    assert (other.reachable != expected[1].reachable).any()
    assert (other.drops != expected[1].drops).any()


def test_a_label_decides_how_often_a_client_is_away() -> None:
    """The first version of Multi-RoundSecAgg: label 0 -> 0.1, .., label 9 -> 0.5."""
    labels = np.zeros((POPULATION, 10), np.int64)
    labels[EVERYBODY, EVERYBODY % 10] = 600
    model = roundwise(POPULATION, model="label-dependent", labels=labels)
    table = [0.1, 0.1444, 0.1889, 0.2333, 0.2778, 0.3222, 0.3667, 0.4111, 0.4556, 0.5]
    assert model.unavailable[:20] == pytest.approx([*table, *table], abs=5e-5)
    assert (model.unavailable[0], model.unavailable[9]) == (0.1, 0.5)
    rounds = np.stack([model.presence(number, "check-in", 0.0, EVERYBODY).reachable for number in range(1, 21)])
    for label, probability in enumerate(table):
        away = (~rounds[:, label::10]).sum()
        assert binomtest(int(away), rounds[:, label::10].size, probability).pvalue > SUSPICIOUS


def test_a_clients_label_is_its_most_frequent_one() -> None:
    labels = [[0, 3, 3], [1, 0, 5], [0, 0, 0], [2, 2, 2], [0, 9, 1]]
    model = roundwise(5, model="label-dependent", labels=labels, lowest=0.2, highest=0.8)
    assert model.unavailable == pytest.approx([0.5, 0.8, 0.2, 0.2, 0.5])
    assert roundwise(2, model="label-dependent", labels=[[4], [0]]).unavailable == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize("labels", [[[1, 2]], [1, 2, 3], np.zeros((3, 0)), np.zeros((3, 2, 2))])
def test_labels_of_other_clients_are_refused(labels: object) -> None:
    with pytest.raises(ExperimentError, match=r"availability\.model: the workload's label_counts\(\) has shape"):
        model_of(3, model="label-dependent", labels=labels)


def test_a_large_population() -> None:
    model = model_of(1_000_000, model="bernoulli", unavailable=0.3, dropout={"rate": 0.1})
    presence = model.presence(1, "train", 0.0, np.arange(1_000_000))
    assert binomtest(int(presence.reachable.sum()), 1_000_000, 0.7).pvalue > SUSPICIOUS
    assert binomtest(int(presence.drops.sum()), 1_000_000, 0.7 * 0.1 / 3).pvalue > SUSPICIOUS


def test_shared_samples_do_not_set_a_clients_label() -> None:
    """Shared-data strategy: p_i depends on the label of the private data, even where there is less of it."""

    class TwoLabels(Pulling):
        """Two clients with the labels 0 and 9, and five shared samples of label 4."""

        def label_counts(self) -> np.ndarray:
            counts = self.own_label_counts()
            counts[:, 4] += 5
            return counts

        def own_label_counts(self) -> np.ndarray:
            counts = np.zeros((2, 10), np.int64)
            counts[[0, 1], [0, 9]] = 3
            return counts

    data = {"seed": 1, "population": 2, "selection": {"participants": 2}, "availability": {"model": "label-dependent"}}
    plan = RunPlan(validated(data, "test"), 0)
    availability = plan.availability(TwoLabels(2))
    assert isinstance(availability, RoundwiseAvailability)
    assert availability.unavailable.tolist() == [0.1, 0.5]
