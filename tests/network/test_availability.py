"""Who is there and who leaves: rates, and what they may depend on."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import binomtest, chisquare

from testbed.availability import AvailabilitySection, RoundwiseAvailability
from testbed.links import BYTES_PER_MBIT, ClientLinks, Links, cycled
from testbed.randomness import Randomness

STAGES = ("train", "first", "second")
POPULATION = 3000
SUSPICIOUS = 1e-4


def available(seed: int = 1, population: int = POPULATION, **section: Any) -> RoundwiseAvailability:
    return RoundwiseAvailability(AvailabilitySection.model_validate(section), population, STAGES, Randomness(seed))


def test_always_means_always() -> None:
    model = available()
    everybody = np.arange(POPULATION)
    assert model.reachable(1, 0.0, everybody).all()
    assert not any(model.drops(1, stage, everybody).any() for stage in (*STAGES, "check-in"))


def test_each_client_is_away_at_its_own_rate() -> None:
    model = available(model="bernoulli", unavailable=[0.1, 0.5, 0.0, 1.0])
    rounds = np.stack([model.reachable(number, 0.0, np.arange(POPULATION)) for number in range(1, 21)])
    for position, probability in enumerate((0.1, 0.5)):
        away = (~rounds[:, position::4]).sum()
        assert binomtest(int(away), rounds[:, position::4].size, probability).pvalue > SUSPICIOUS
    assert rounds[:, 2::4].all()
    assert not rounds[:, 3::4].any()
    per_client = rounds[:, 1::4].sum(axis=0)
    assert per_client.std() > 0  # drawn anew in each round, not once


def test_no_clients_fate_depends_on_who_is_asked_or_on_the_order() -> None:
    some = np.array([5, 17, 2999])
    first, second = (available(model="bernoulli", unavailable=0.4, dropout={"rate": 0.5}) for _ in range(2))
    everybody = np.arange(POPULATION)
    expected = {number: first.reachable(number, 0.0, everybody)[some] for number in (1, 2, 3)}
    drops = {number: first.drops(number, "train", everybody)[some] for number in (1, 2, 3)}
    for number in (3, 1, 2, 1):
        assert (second.drops(number, "train", some) == drops[number]).all()
        assert (second.reachable(number, 99.0, some) == expected[number]).all()
    other = available(2, model="bernoulli", unavailable=0.4)
    assert (other.reachable(1, 0.0, everybody) != first.reachable(1, 0.0, everybody)).any()


def test_a_random_drop_out_leaves_once_in_one_of_the_stages_after_selection() -> None:
    model = available(dropout={"rate": [0.3, 0.0]})
    leaving = np.stack([model.drops(1, stage, np.arange(POPULATION)) for stage in STAGES])
    assert not model.drops(1, "check-in", np.arange(POPULATION)).any()
    assert leaving.sum(axis=0).max() == 1
    assert not leaving[:, 1::2].any()
    assert binomtest(int(leaving.sum()), POPULATION // 2, 0.3).pvalue > SUSPICIOUS
    assert chisquare(leaving.sum(axis=1)).pvalue > SUSPICIOUS


def test_a_drop_out_at_a_chosen_stage_leaves_there_and_nowhere_else() -> None:
    model = available(dropout={"rate": 0.25, "stage": "lotto/participants"})
    everybody = np.arange(POPULATION)
    assert not any(model.drops(1, stage, everybody).any() for stage in STAGES)
    leaving = model.drops(1, "lotto/participants", everybody)
    assert binomtest(int(leaving.sum()), POPULATION, 0.25).pvalue > SUSPICIOUS


@pytest.mark.parametrize(
    "section",
    [
        {"unavailable": 0.5},
        {"unavailable": [0.0]},
        {"model": "bernoulli", "unavailable": -0.1},
        {"model": "bernoulli", "unavailable": 1.1},
        {"model": "bernoulli", "unavailable": float("nan")},
        {"model": "bernoulli", "unavailable": []},
        {"model": "bernoulli", "unavailable": [0.5, 2]},
        {"model": "sometimes"},
        {"dropout": {"rate": float("nan")}},
        {"dropout": {"rate": [0.1, -1]}},
        {"dropout": {"rate": []}},
    ],
)
def test_sections_that_mean_nothing_are_refused(section: dict) -> None:
    with pytest.raises(ValidationError) as refused:
        AvailabilitySection.model_validate(section)
    assert refused.value.error_count() == 1


def test_a_large_population() -> None:
    model = available(population=1_000_000, model="bernoulli", unavailable=0.3, dropout={"rate": 0.1})
    everybody = np.arange(1_000_000)
    assert abs(model.reachable(1, 0.0, everybody).mean() - 0.7) < 0.01
    assert abs(model.drops(1, "train", everybody).mean() - 0.1 / 3) < 0.01


# -- links --------------------------------------------------------------------------------------------------------


@given(values=st.lists(st.floats(0.1, 10), min_size=1, max_size=7), population=st.integers(1, 30))
def test_a_list_is_given_out_in_turn(values: list[float], population: int) -> None:
    given_out = cycled(values, population)
    assert given_out.shape == (population,)
    assert given_out.tolist() == [values[client % len(values)] for client in range(population)]
    assert (cycled(values[0], population) == values[0]).all()


def test_links_become_bytes_and_seconds() -> None:
    section = Links(down_mbit_s=[8, 16], up_mbit_s=44, latency_ms=[50, 0, 20], server_up_mbit_s=1000)
    links = ClientLinks.of(section, 4)
    assert links.down_bytes_s.tolist() == [1e6, 2e6, 1e6, 2e6]
    assert links.up_bytes_s.tolist() == [5.5e6] * 4
    assert links.latency_s.tolist() == [0.05, 0.0, 0.02, 0.05]
    assert (links.server_up_bytes_s, links.server_down_bytes_s) == (125e6, 25_000 * BYTES_PER_MBIT)


@pytest.mark.parametrize("key", ["down_mbit_s", "up_mbit_s", "latency_ms"])
@pytest.mark.parametrize("value", [-1, [1, -1], [], float("nan"), [float("inf")], "fast", [[1]], None, {}])
def test_links_that_mean_nothing_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        Links.model_validate({key: value})
    assert refused.value.error_count() == 1


def test_only_latency_may_be_nothing() -> None:
    assert Links(latency_ms=0).latency_ms == 0
    for key in ("down_mbit_s", "up_mbit_s", "server_down_mbit_s", "server_up_mbit_s"):
        with pytest.raises(ValidationError):
            Links.model_validate({key: 0})
        with pytest.raises(ValidationError):
            Links.model_validate({key: float("inf")})
