"""Whole experiments without a seed, with secrets from the operating system: a second draw gives other values."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from testbed.randomness import Randomness
from testbed.workload.contract import Evaluation, LocalUpdate

POPULATION, PARTICIPANTS, ROUNDS = 20, 8, 4
CLIP, MULTIPLIER, RATE = 1.0, 2.0, 0.4
SIGMA, ETA, SAMPLE_RATE = 3.0, 0.1, 0.5
BAND = 1e-6  # each way: of the variance, so that chance alone fails a run in no lifetime


class Zeros:
    """Clients learn nothing: all there is in a model is noise."""

    dimension = 2000

    def __init__(self, population: int) -> None:
        self.sample_counts = np.full(population, 6)

    def initial_model(self) -> np.ndarray:
        return np.zeros(self.dimension, np.float32)

    def train(self, client: int, model: np.ndarray, round_number: int) -> LocalUpdate:
        return LocalUpdate(np.zeros(self.dimension, np.float32), 6, 0.5, 6)

    def check_gradient_sum(self) -> None:
        """Every sample has a gradient."""

    def gradient_sum(
        self, client: int, model: np.ndarray, round_number: int, samples: np.ndarray, clip: float | None
    ) -> LocalUpdate:
        return LocalUpdate(np.zeros(self.dimension, np.float32), 6, 0.25, len(samples))

    def evaluate(self, model: np.ndarray) -> Evaluation:
        return Evaluation(0.0, 0.5, 1)


def summed(protocol: str, dropouts: float = 0.0, enforced: bool = False) -> dict[str, Any]:
    section = {"mechanism": "skellam", "clip": CLIP, "noise_multiplier": MULTIPLIER, "scale": 64.0}
    section |= {"enforcement": {"tolerated_dropouts": 3}} if enforced else {}
    more = {"threshold": 5} if enforced else {}
    return {
        "selection": {"protocol": "random", "participants": PARTICIPANTS},
        "aggregation": {"protocol": protocol, "weights": "equal", "noise": section, **more},
        "availability": {"dropout": {"rate": dropouts, "stage": f"{protocol.partition('-')[0]}/masked-input"}},
    }


def dp_sgd(server: str) -> dict[str, Any]:
    return {
        "selection": {"protocol": "bernoulli", "client_rate": RATE},
        "aggregation": {
            "protocol": "dp-sgd-random-participation", "sample_rate": SAMPLE_RATE, "clip": CLIP, "sigma": SIGMA,
            "server": server, "learning_rate": ETA,
        },
    }  # fmt: skip


EXPERIMENTS = {
    "secagg": summed("secagg"),
    "secagg-plus": summed("secagg-plus"),
    "plain": summed("plain") | {"availability": {"model": "always"}},
    "xnoise": summed("secagg", enforced=True),
    "xnoise, dropouts": summed("secagg", 0.15, enforced=True),
    "dp-sgd, trusted": dp_sgd("trusted"),
    "dp-sgd, untrusted": dp_sgd("untrusted"),
}


def deviation(experiment: dict[str, Any], outcome: Any) -> float:
    """Of the noise that a round's model should have in each parameter."""
    aggregation = experiment["aggregation"]
    if "noise" in aggregation:
        return MULTIPLIER * CLIP / len(outcome.survivors) * outcome.aggregate.noise**0.5
    batch = RATE * SAMPLE_RATE * Zeros(POPULATION).sample_counts.sum()
    return ETA * SIGMA / batch * (1 if aggregation["server"] == "trusted" else POPULATION**0.5)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_noise_is_as_large_as_said_and_no_secret_is_drawn_twice(
    name: str, run: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: Counter[tuple[Any, ...]] = Counter()
    draw = Randomness.secret

    def noted(self: Randomness, *of: Any) -> bytes:
        drawn[of] += 1
        return draw(self, *of)

    monkeypatch.setattr(Randomness, "secret", noted)
    experiment = EXPERIMENTS[name] | {"seed": None, "population": POPULATION, "rounds": ROUNDS}
    done = run(experiment, workload=Zeros, seed=5).rounds()
    assert done.plan.randomness.secrets_from_system
    assert [outcome.state for outcome in done.outcomes] == ["completed"] * ROUNDS
    before = np.zeros(Zeros.dimension)
    for outcome in done.outcomes:
        step, before = outcome.model - before, outcome.model
        part = np.square(step.astype(np.float64) / deviation(experiment, outcome)).sum()
        rounding = 1.01  # conditional rounding, and the effect of a rotation
        assert chi2.ppf(BAND, Zeros.dimension) <= part <= chi2.isf(BAND, Zeros.dimension) * rounding
    if "dropout" in experiment.get("availability", {}):
        left = {len(outcome.survivors) for outcome in done.outcomes}
        assert (left != {PARTICIPANTS}) == (experiment["availability"]["dropout"]["rate"] > 0)
    assert len(drawn) >= ROUNDS
    assert {of for of, times in drawn.items() if times > 1} == set()


def test_a_noisy_update_is_sent_once_in_the_clear_too(run: Callable) -> None:
    from testbed.aggregation.plain import PlainClient, SendNoisyUpdate
    from testbed.errors import Refusal

    done = run(EXPERIMENTS["plain"] | {"seed": None, "population": POPULATION}, workload=Zeros).rounds(1)
    number = int(done.outcomes[0].participants[0])
    client = done.federation.network.hosts.hosts[0].client(number)
    role = client.role(PlainClient, done.plan.experiment.aggregation)
    with pytest.raises(Refusal) as refused:
        role.on_send_noisy_update(SendNoisyUpdate(1, PARTICIPANTS))
    assert refused.value.check == "plain.repeated-answer"
