"""Clients that decide by their own coins whether they take part: their rate, and the limits of a malicious server."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from testbed.aggregation.dp_sgd_random_participation import RandomParticipation, RandomParticipationParameters
from testbed.errors import ExperimentError, Refusal
from testbed.experiment.schema import validated
from testbed.messages import Vector
from testbed.selection.own_coins import AskDecision, DecidingClient
from testbed.training import Train, Trainer
from tests.engine.test_dp_sgd import P, Points, keys, result, stage
from tests.messages_named import naming

SUSPICIOUS = 1e-4


def decided(**aggregation: Any) -> dict[str, Any]:
    experiment = keys(**aggregation)
    return experiment | {"selection": experiment["selection"] | {"coins": "clients"}}


@pytest.fixture
def learn(run: Callable) -> Callable:
    """A run of `Points`."""
    return lambda experiment, name=None, **options: run(experiment, name, workload=Points, **options)


def test_exactly_the_clients_that_decide_to_take_part_do(learn: Callable) -> None:
    """Algorithm 1 with a trusted server: N_t scales the sum, and the coins are the clients'."""
    done = learn(decided(sigma=1.0) | {"rounds": 12}).rounds()
    there, took_part = 0, 0
    for number, outcome in enumerate(done.outcomes, 1):
        asked = stage(done, number, "check-in")
        available = asked.clients[asked.outcome == 0]
        assert outcome.candidates == len(available)
        trained = stage(done, number, "train")
        assert outcome.participants.tolist() == ([] if trained is None else trained.clients.tolist())
        assert set(outcome.participants.tolist()) <= set(available.tolist())
        assert len(set(asked.bytes_up[asked.outcome == 0].tolist())) == 1  # yes and no are as long
        there, took_part = there + len(available), took_part + len(outcome.participants)
    assert binomtest(took_part, there, P).pvalue > SUSPICIOUS
    drawn = learn(keys(sigma=1.0) | {"rounds": 12}).rounds()
    assert [one.participants.tolist() for one in drawn.outcomes] != [one.participants.tolist() for one in done.outcomes]


def test_the_step_is_that_of_algorithm_1(learn: Callable) -> None:
    """Every sample is used, and nothing clipped: the sum over those that decided, by p and the samples of all there."""
    done = learn(decided(sample_rate=1.0, clip="none", learning_rate=1.0) | {"rounds": 1}).rounds()
    asked, points = stage(done, 1, "check-in"), Points(40)
    available = asked.clients[asked.outcome == 0]
    took_part = done.outcomes[0].participants.tolist()
    total = sum(-points.points[client].sum(axis=0) for client in took_part)
    expected = -total / (P * points.sample_counts[available].sum())
    assert np.allclose(done.outcomes[0].model, expected, atol=1e-5)


def test_a_client_pays_for_the_rounds_that_it_decided_on(learn: Callable) -> None:
    done = learn(decided(sigma=2.0), "charged").rounds()
    took_part = {(number, c) for number, one in enumerate(done.outcomes, 1) for c in one.participants.tolist()}
    spent: dict[int, float] = {}
    for row in done.rows("privacy"):
        more = row["epsilon"] > spent.get(row["client"], 0.0)
        assert more == ((row["round"], row["client"]) in took_part)
        spent[row["client"]] = row["epsilon"]
    assert set(spent) >= {client for _, client in took_part}


@pytest.mark.parametrize("aggregation", [{}, {"server": "untrusted", "answers": "participants"}])
def test_again_on_three_hosts_and_resumed(aggregation: dict[str, str], learn: Callable) -> None:
    experiment = decided(sigma=0.5, **aggregation)
    once = result(learn(experiment, "once").rounds())
    assert result(learn(experiment, "spread", hosts=3).rounds()) == once
    learn(experiment, "stopped").rounds(3)
    assert result(learn(experiment, "stopped", resume=True, hosts=2).rounds()) == once


def test_a_server_cannot_have_a_client_that_says_no_nor_ask_its_coin_again(learn: Callable) -> None:
    done = learn(decided(sigma=1.0)).rounds(1)
    host, chosen = done.federation.network.hosts.hosts[0], done.outcomes[0].participants
    asked = stage(done, 1, "check-in")
    others = np.setdiff1d(asked.clients[asked.outcome == 0], chosen)

    def refused(client: int, kind: type, name: str, message: Any) -> str:
        with pytest.raises(Refusal) as found:
            getattr(host.client(client).role(kind, None), name)(message)
        return found.value.check

    def train(number: int) -> Train:
        return Train(number, Vector(np.zeros(Points.dimension, np.float32), 0))

    says_no, says_yes = int(others[0]), int(chosen[0])
    assert refused(says_no, Trainer, "on_train", train(1)) == "train.not-participating"
    assert refused(says_no, DecidingClient, "on_ask_decision", AskDecision(1, 40)) == "check-in.round-reused"
    assert refused(says_yes, Trainer, "on_train", train(1)) == "train.round-reused"  # it has trained
    assert refused(says_yes, Trainer, "on_train", train(2)) == "train.round-reused"  # and decided on no other round
    beyond = AskDecision(6, 40)
    assert refused(says_no, DecidingClient, "on_ask_decision", beyond) == "check-in.after-last-round"


def test_any_sum_can_be_of_those_that_decided(learn: Callable) -> None:
    experiment = decided() | {"aggregation": {"protocol": "secagg", "clip": 4.0}, "rounds": 3}
    done = learn(experiment).rounds()
    assert [outcome.state for outcome in done.outcomes] == ["completed"] * 3
    assert all(0 < len(outcome.participants) < outcome.candidates for outcome in done.outcomes)


def test_hidden_values_are_not_reported() -> None:
    experiment = decided(sigma=1.0, server="untrusted") | {"workload": {"dataset": "digits"}}
    with pytest.raises(ExperimentError, match=naming("answers: everybody")) as refused:
        validated(experiment, "x.yaml")
    assert "\n" not in str(refused.value)
    parameters = RandomParticipationParameters(sample_rate=0.1, sigma=1.0, server="untrusted", answers="participants")
    assert not RandomParticipation(parameters).broadcasts_to_all
