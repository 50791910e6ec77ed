"""Dropouts in the middle of a round: by rate, by hazard, with any model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scipy.stats import binomtest, chisquare

from testbed.emulation.availability import AvailabilitySection, availability_model
from testbed.randomness import Randomness
from tests.emulation.availability.models import model_of

STAGES = ("train", "first", "second")
POPULATION = 3000
EVERYBODY = np.arange(POPULATION)
SUSPICIOUS = 1e-6
AT_RANDOM = {"model": "markov", "mean_online_s": 40, "mean_offline_s": 20}


def test_a_random_drop_out_leaves_once_in_one_of_the_stages_after_selection() -> None:
    model = model_of(POPULATION, dropout={"rate": [0.3, 0.0]})
    leaving = np.stack([model.presence(1, stage, 0.0, EVERYBODY).drops for stage in STAGES])
    assert not model.presence(1, "check-in", 0.0, EVERYBODY).drops.any()
    assert leaving.sum(axis=0).max() == 1
    assert not leaving[:, 1::2].any()
    assert binomtest(int(leaving.sum()), POPULATION // 2, 0.3).pvalue > SUSPICIOUS
    assert chisquare(leaving.sum(axis=1)).pvalue > SUSPICIOUS


def test_a_drop_out_at_a_chosen_stage_leaves_there_and_nowhere_else() -> None:
    model = model_of(POPULATION, dropout={"rate": 0.25, "stage": "lotto/participants"})
    assert not any(model.presence(1, stage, 0.0, EVERYBODY).drops.any() for stage in STAGES)
    leaving = model.presence(1, "lotto/participants", 0.0, EVERYBODY).drops
    assert binomtest(int(leaving.sum()), POPULATION, 0.25).pvalue > SUSPICIOUS


@pytest.mark.parametrize("stage", ["random", "first"])
def test_the_draws_of_a_round_are_those_of_earlier_versions(stage: str) -> None:
    """Recorded runs can be repeated: each round first draws the dropouts, then their stages, for all clients."""
    model = model_of(8, seed=3, dropout={"rate": [0.4, 0.9], "stage": stage})
    for number in (1, 2, 30):
        generator = Randomness(3).generator("availability", number, "dropout")
        leaves, where = generator.random(8), generator.integers(0, 3, 8)
        for position, asked in enumerate(STAGES):
            there = where == position if stage == "random" else np.full(8, asked == "first")
            drops = [bool(leaves[client] < (0.4, 0.9)[client % 2] and there[client]) for client in range(8)]
            assert model.presence(number, asked, 0.0, np.arange(8)).drops.tolist() == drops


def test_one_hazard_holds_for_every_stage_after_selection() -> None:
    model = model_of(POPULATION, dropout={"hazard": 0.2})
    leaving = np.stack([model.presence(1, stage, 0.0, EVERYBODY).drops for stage in STAGES])
    for of_stage in leaving:
        assert binomtest(int(of_stage.sum()), POPULATION, 0.2).pvalue > SUSPICIOUS
    both = int((leaving[0] & leaving[1]).sum())
    assert binomtest(both, POPULATION, 0.04).pvalue > SUSPICIOUS  # independent draws
    assert not model.presence(1, "check-in", 0.0, EVERYBODY).drops.any()
    again = model.presence(2, "train", 0.0, EVERYBODY).drops
    assert (again != leaving[0]).any()


def test_stages_have_hazards_of_their_own() -> None:
    model = model_of(POPULATION, dropout={"hazard": {"check-in": 0.5, "first": 1.0, "second": 0.0}})
    drops = {stage: model.presence(1, stage, 0.0, EVERYBODY).drops for stage in ("check-in", *STAGES)}
    assert binomtest(int(drops["check-in"].sum()), POPULATION, 0.5).pvalue > SUSPICIOUS
    assert drops["first"].all()
    assert not drops["train"].any()
    assert not drops["second"].any()


def test_rate_and_hazard_add_up_and_change_nothing_in_each_other() -> None:
    rate, hazard = {"rate": 0.3, "stage": "train"}, {"hazard": {"train": 0.2, "first": 0.1}}
    alone = [model_of(POPULATION, dropout=keys) for keys in (rate, hazard)]
    both = model_of(POPULATION, dropout=rate | hazard)
    for stage in STAGES:
        by_rate, by_hazard = (model.presence(4, stage, 0.0, EVERYBODY).drops for model in alone)
        assert (both.presence(4, stage, 0.0, EVERYBODY).drops == by_rate | by_hazard).all()


def test_clients_that_are_away_do_not_drop_out() -> None:
    presence = model_of(POPULATION, model="bernoulli", unavailable=0.5, dropout={"hazard": 0.5}).presence(
        1, "train", 0.0, EVERYBODY
    )
    assert presence.drops.any()
    assert not presence.drops[~presence.reachable].any()


@given(
    seed=st.integers(0, 50),
    rate=st.sampled_from([0.0, 0.4]),
    at=st.sampled_from(["random", "check-in", "first"]),
    hazard=st.sampled_from([0.0, 0.3, {"check-in": 0.3}, {"train": 0.5, "second": 0.5}]),
)
def test_with_returning_clients_only_dropouts_are_added(
    seed: int, rate: float, at: str, hazard: float | dict[str, float]
) -> None:
    """With a model of returning clients, presence is unchanged; the network remembers the dropouts."""
    section = {**AT_RANDOM, "dropout": {"rate": rate, "stage": at, "hazard": hazard}}
    bare, dropping = (
        availability_model(
            TypeAdapter(AvailabilitySection).validate_python(keys),
            40,
            STAGES,
            Randomness(seed),
            lambda: np.ones((40, 1), np.int64),
        )
        for keys in (AT_RANDOM, section)
    )
    assert bare.comes_back
    assert dropping.comes_back
    everybody = np.arange(40)
    for number in (1, 2):
        for place, stage in enumerate(("check-in", *STAGES)):
            now_s = 1000.0 * number + 10 * place
            there, presence = (model.presence(number, stage, now_s, everybody) for model in (bare, dropping))
            assert (presence.reachable == there.reachable).all()
            assert (presence.leaves_s == there.leaves_s).all()
            # Whether a client is online or not, the draw that makes it leave is the same.
            always = availability_model(
                TypeAdapter(AvailabilitySection).validate_python({"dropout": section["dropout"]}),
                40, STAGES, Randomness(seed), lambda: np.ones((40, 1), np.int64),
            )  # fmt: skip
            leaving = always.presence(number, stage, now_s, everybody).drops
            assert (presence.drops == presence.reachable & leaving).all()
