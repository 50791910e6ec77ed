"""DP-SGD with random participation: Algorithm 1 against a written-out version, its noise, and the server's view."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, kstest, norm

from testbed.aggregation.dp_sgd_random_participation import (
    RandomParticipation,
    RandomParticipationParameters,
    SendGradient,
)
from testbed.errors import ExperimentError
from testbed.experiment.schema import validated
from testbed.privacy.gaussian import coins
from testbed.records.schemas import SCHEMAS
from testbed.workload.contract import Evaluation, LocalUpdate
from tests.messages_named import naming

SUSPICIOUS = 1e-4
P, Q, CLIP, ETA = 0.3, 0.4, 0.5, 0.1


class Points:
    """Each client has points, and a point's loss is half its squared distance: its gradient is model - point."""

    dimension = 400

    def __init__(self, population: int) -> None:
        random = np.random.default_rng(8)
        self.sample_counts = random.integers(5, 12, population)
        self.points = [random.normal(0, 0.04, (count, self.dimension)) for count in self.sample_counts]

    def initial_model(self) -> np.ndarray:
        return np.zeros(self.dimension, np.float32)

    def train(self, client: int, model: np.ndarray, round_number: int) -> LocalUpdate:
        return LocalUpdate(np.float32(0.1) * (self.points[client].mean(0) - model).astype(np.float32), 1, 0.5, 1)

    def check_gradient_sum(self) -> None:
        """Every sample has a gradient."""

    def gradient_sum(
        self, client: int, model: np.ndarray, round_number: int, samples: np.ndarray, clip: float | None
    ) -> LocalUpdate:
        gradients = model - self.points[client][samples]
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        if clip is not None:
            gradients = gradients / np.maximum(1, norms / clip)
        total = gradients.sum(axis=0).astype(np.float32)
        return LocalUpdate(total, int(self.sample_counts[client]), 0.25, len(samples))

    def evaluate(self, model: np.ndarray) -> Evaluation:
        return Evaluation(float(np.square(model).sum()), 0.5, 1)


def keys(**aggregation: Any) -> dict[str, Any]:
    section = {"sample_rate": Q, "clip": CLIP, "sigma": 0.0, "learning_rate": ETA} | aggregation
    return {
        "population": 40,
        "rounds": 5,
        "workload": {"dataset": "a.module:Points"},
        "selection": {"protocol": "bernoulli", "client_rate": P},
        "aggregation": {"protocol": "dp-sgd-random-participation", **section},
        "availability": {"model": "bernoulli", "unavailable": 0.2},
    }


@pytest.fixture
def learn(run: Callable) -> Callable:
    """A run of `Points`."""
    return lambda experiment, name=None, **options: run(experiment, name, workload=Points, **options)


def stage(run: Any, round_number: int, name: str) -> Any:
    found = [one for one in run.exchanges[round_number - 1] if one.stage == name]
    return found[0] if found else None


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_it_is_algorithm_1(momentum: float, learn: Callable) -> None:
    done = learn(keys(momentum=momentum)).rounds()
    points, model, velocity = Points(40), np.zeros(400, np.float32), np.zeros(400)
    for number, outcome in enumerate(done.outcomes, 1):
        there = stage(done, number, "check-in")
        available = there.clients[there.outcome == 0]
        assert outcome.candidates == len(available) < 40
        assert np.isin(outcome.participants, available).all()
        total = np.zeros(400)
        for client in outcome.participants.tolist():
            seed = done.plan.randomness.secret(client, number, "dp-sgd-random-participation/samples")
            for position in np.flatnonzero(coins(seed, int(points.sample_counts[client]), Q)):
                gradient = model - points.points[client][position]
                total += gradient / max(1.0, float(np.linalg.norm(gradient)) / CLIP)
        step = total / (P * Q * points.sample_counts[available].sum())
        velocity = momentum * velocity + step
        model = (model - ETA * velocity).astype(np.float32)
        assert np.allclose(outcome.model, model, atol=1e-7)
        assert outcome.survivors.tolist() == outcome.participants.tolist()
        assert outcome.training_loss is None  # nobody has said it: it would be told without noise


def test_participants_and_samples_are_drawn_at_their_rates(learn: Callable) -> None:
    done = learn(keys() | {"rounds": 60, "availability": {"model": "always"}}).rounds()
    sizes = [len(outcome.participants) for outcome in done.outcomes]
    assert binomtest(sum(sizes), 60 * 40, P).pvalue > SUSPICIOUS
    used = held = 0
    for number, outcome in enumerate(done.outcomes, 1):
        for client in outcome.participants.tolist():
            seed = done.plan.randomness.secret(client, number, "dp-sgd-random-participation/samples")
            count = int(done.workload.sample_counts[client])
            used, held = used + int(coins(seed, count, Q).sum()), held + count
    assert binomtest(used, held, Q).pvalue > SUSPICIOUS


@pytest.mark.parametrize("server", ["trusted", "untrusted"])
def test_the_noise_has_the_size_that_is_said(server: str, learn: Callable) -> None:
    sigma = 2.0
    silent, noisy = (learn(keys(server=server, sigma=value)).rounds(1) for value in (0.0, sigma))
    there = silent.outcomes[0].candidates
    available = stage(silent, 1, "check-in")
    batch = P * Q * Points(40).sample_counts[available.clients[available.outcome == 0]].sum()
    added = (noisy.outcomes[0].model - silent.outcomes[0].model) * -batch / ETA
    total = sigma * (1 if server == "trusted" else math.sqrt(there))
    assert kstest(added / total, norm.cdf).pvalue > SUSPICIOUS


def test_a_round_without_participants_is_one_like_any_other(learn: Callable, run: Callable) -> None:
    nobody = {"selection": {"protocol": "bernoulli", "client_rate": 1e-9}}
    done = learn(keys(sigma=1.0) | nobody, "here").rounds()
    assert [row["outcome"] for row in done.rows("rounds")] == ["completed"] * 5
    assert [len(outcome.participants) for outcome in done.outcomes] == [0] * 5
    assert len({outcome.model.tobytes() for outcome in done.outcomes}) == 5  # noise moves the model
    assert {row["stage"] for row in done.rows("exchanges")} == {"check-in"}
    without = learn(keys() | nobody).rounds()
    assert not without.outcomes[-1].model.any()
    plain = learn(keys() | nobody | {"aggregation": {"protocol": "plain"}}, "plain").rounds(1)
    assert plain.outcomes[0].state == "skipped"
    assert plain.outcomes[0].reason == f"nobody-selected: none of {plain.outcomes[0].candidates} available clients " \
        "was drawn"  # fmt: skip


def test_a_round_without_available_clients_is_skipped(learn: Callable) -> None:
    done = learn(keys(sigma=1.0) | {"availability": {"model": "bernoulli", "unavailable": 1.0}}).rounds(1)
    assert (done.outcomes[0].state, done.outcomes[0].reason) == (
        "skipped", "nobody-available: no available client has samples"
    )  # fmt: skip


def test_participants_alone_answer_an_untrusted_server_with_their_noise(learn: Callable) -> None:
    """The second variant of section 5.5: as many noises as participants, and no message of anybody else."""
    sigma = 2.0
    given = {"server": "untrusted", "answers": "participants"}
    silent, noisy = (learn(keys(sigma=value, **given), f"noise {value:g}").rounds(1) for value in (0.0, sigma))
    trusted = learn(keys()).rounds(1)
    took_part = noisy.outcomes[0].participants
    assert took_part.tolist() == trusted.outcomes[0].participants.tolist()
    assert 0 < len(took_part) < noisy.outcomes[0].candidates
    assert stage(noisy, 1, "train").clients.tolist() == took_part.tolist()
    available = stage(silent, 1, "check-in")
    batch = P * Q * Points(40).sample_counts[available.clients[available.outcome == 0]].sum()
    added = (noisy.outcomes[0].model - silent.outcomes[0].model) * -batch / ETA
    assert kstest(added / (sigma * math.sqrt(len(took_part))), norm.cdf).pvalue > SUSPICIOUS
    charged = {row["client"] for row in noisy.rows("privacy") if row["epsilon"] > 0}
    assert charged == set(took_part.tolist())


def test_an_untrusted_server_sees_the_same_of_all_clients(learn: Callable) -> None:
    done = learn(keys(server="untrusted", sigma=1.0)).rounds()
    took: dict[tuple[str, int], set[float]] = {}
    held = done.workload.sample_counts
    for number, outcome in enumerate(done.outcomes, 1):
        there = stage(done, number, "check-in")
        available = there.clients[there.outcome == 0].tolist()
        assert outcome.participants.tolist() == outcome.survivors.tolist() == available
        for name in ("train", "dp-sgd/gradient"):
            sent = stage(done, number, name)
            assert sent.clients.tolist() == available
            assert len(set(sent.bytes_up.tolist())) == len(set(sent.bytes_down.tolist())) == 1
            for client, seconds in zip(available, sent.compute_s.tolist(), strict=True):
                took.setdefault((name, client), set()).add(seconds)
    assert max(map(len, took.values())) == 1  # whether or not it took part, and with however many samples
    for (name, client), seconds in took.items():
        alike = [of for (stage_, of) in took if stage_ == name and held[of] == held[client]]
        assert {value for of in alike for value in took[name, of]} == seconds
    trusted = learn(keys(sigma=1.0)).rounds()
    traffic = [sum(int(one.bytes_up.sum()) for stages in each.exchanges for one in stages) for each in (done, trusted)]
    assert 2 < traffic[0] / traffic[1] < 5  # 1/p, but for check-in


def test_hidden_participants_are_drawn_at_the_client_rate(learn: Callable) -> None:
    """Without noise the sums of those that take part are there, and zero those of the others."""
    done = learn(keys(server="untrusted", sample_rate=1.0) | {"availability": {"model": "always"}, "rounds": 30})
    took_part = 0
    for _ in range(30):
        done.rounds(1)
        hosts = done.federation.network.hosts
        took_part += sum(
            bool(host.client(number).local_update.delta.any()) for host in hosts.hosts for number in range(40)
        )
    assert binomtest(took_part, 30 * 40, P).pvalue > SUSPICIOUS


class Spoilt(Points):
    """Client 5's sum is not finite."""

    def gradient_sum(self, client: int, *rest: Any) -> LocalUpdate:
        made = super().gradient_sum(client, *rest)
        return replace(made, delta=made.delta + np.float32("inf")) if client == 5 else made


@pytest.mark.parametrize("server", ["trusted", "untrusted"])
def test_a_sum_that_is_not_finite_is_zero_where_noise_hides_it(server: str, run: Callable) -> None:
    everybody = {"selection": {"protocol": "bernoulli", "client_rate": 1.0}, "availability": {"model": "always"}}
    done = run(keys(server=server, sigma=0.1) | everybody, "noise", workload=Spoilt).rounds(1)
    assert done.outcomes[0].survivors.tolist() == list(range(40))
    assert np.isfinite(done.outcomes[0].model).all()
    assert [row for row in done.rows("events") if row["kind"] == "refusal"] == []
    bare = run(keys(server=server) | everybody, "bare", workload=Spoilt).rounds(1)
    refused = [row for row in bare.rows("events") if row["kind"] == "refusal"]
    assert [(row["party"], row["detail"].partition(":")[0]) for row in refused] == [("client:5", "train.diverged")]


def test_a_gradient_is_sent_once(learn: Callable) -> None:
    """Asked again, a client without a seed would draw other noise, and the mean of many answers would be bare."""
    done = learn(keys(server="untrusted", sigma=1.0)).rounds(1)
    host = done.federation.network.hosts.hosts[0]
    sender = host.client(int(done.outcomes[0].participants[0])).role
    from testbed.aggregation.dp_sgd_random_participation import GradientSender
    from testbed.errors import Refusal

    role = sender(GradientSender, done.plan.experiment.aggregation)
    with pytest.raises(Refusal) as refused:
        role.on_send_gradient(SendGradient(1))
    assert refused.value.check == "dp-sgd.repeated-answer"


def result(done: Any) -> tuple[Any, ...]:
    rows = {table: done.rows(table) for table in SCHEMAS}
    rows["events"] = [event for event in rows["events"] if event["kind"] != "resume"]
    state = done.federation.state
    return (*(repr(rows[table]) for table in SCHEMAS), state.model.tobytes(), state.now_s)


@pytest.mark.parametrize("server", ["trusted", "untrusted"])
def test_again_on_three_hosts_and_resumed(server: str, learn: Callable) -> None:
    """Momentum is kept from round to round, also over the end of a session."""
    experiment = keys(server=server, sigma=0.5, momentum=0.9) | {
        "availability": {"model": "bernoulli", "unavailable": 0.2, "dropout": {"rate": 0.1}}
    }
    once = result(learn(experiment, "once").rounds())
    assert result(learn(experiment, "spread", hosts=3).rounds()) == once
    learn(experiment, "stopped").rounds(3)
    resumed = learn(experiment, "stopped", resume=True, hosts=2).rounds()
    assert len(resumed.outcomes) == 2
    assert result(resumed) == once
    assert result(learn(experiment | {"seed": 4}, "other").rounds()) != once


def test_without_a_seed_noise_and_coins_are_the_systems(learn: Callable) -> None:
    models = {learn(keys(sigma=0.5) | {"seed": None}, seed=5).rounds(1).outcomes[0].model.tobytes() for _ in range(2)}
    assert len(models) == 2


@pytest.mark.parametrize(
    ("section", "key", "value", "says"),
    [
        ("aggregation", "sample_rate", 0, "aggregation.sample_rate"),
        ("aggregation", "sample_rate", 1.5, "aggregation.sample_rate"),
        ("aggregation", "sample_rate", None, "aggregation.sample_rate"),
        ("aggregation", "sigma", -1, "aggregation.sigma"),
        ("aggregation", "sigma", float("inf"), "aggregation.sigma"),
        ("aggregation", "sigma", 1e-9, "sigma: 1e-09; must be at least"),
        ("aggregation", "sigma", 2.0**18, "sigma: 262144; must be at most 131072"),
        ("aggregation", "clip", 0, "aggregation.clip"),
        ("aggregation", "clip", -1, "aggregation.clip"),
        ("aggregation", "clip", "none", "clip: none needs sigma: 0"),
        ("aggregation", "weights", "equal", "every sample counts the same"),
        ("aggregation", "learning_rate", 0, "aggregation.learning_rate"),
        ("selection", "client_rate", 0, "selection.client_rate"),
        ("selection", "client_rate", 1.01, "selection.client_rate"),
        ("selection", "participants", 5, "leave out one of the two"),
        ("selection", "protocol", "random", "selection"),
        ("aggregation", "answers", "participants", "needs server: untrusted"),
        ("workload", "epochs", 3, "does not read workload.epochs"),
        ("workload", "learning_rate", 0.7, "set aggregation.learning_rate"),
        ("workload", "proximal", 0.1, "does not read workload.proximal"),
        ("workload", "training", "simulated", "set workload.training to real"),
    ],
)
def test_bad_input_is_refused_in_one_line(section: str, key: str, value: Any, says: str) -> None:
    experiment = keys(sigma=1.0) | {"workload": {"dataset": "digits"}, "time": {"compute": "modelled"}}
    experiment = {name: dict(part) if isinstance(part, dict) else part for name, part in experiment.items()}
    if value is None:
        del experiment[section][key]
    else:
        experiment[section][key] = value
    with pytest.raises(ExperimentError) as refused:
        validated(experiment, "mine.yaml")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_another_selection_is_refused_with_a_hint_at_suitable_ones() -> None:
    experiment = keys() | {"selection": {"protocol": "random"}, "workload": {"dataset": "digits"}}
    with pytest.raises(ExperimentError, match=r"set selection.protocol to bernoulli, with client_rate \(now random\)"):
        validated(experiment, "mine.yaml")


def test_a_workload_without_gradients_is_refused(run: Callable) -> None:
    with pytest.raises(ExperimentError, match=naming("gradient_sum")):
        run(keys())


@pytest.mark.parametrize("clip", [1.0, "none"])
def test_without_noise_nothing_is_promised(clip: Any) -> None:
    parameters = RandomParticipationParameters(sample_rate=0.1, clip=clip, sigma=0.0)
    assert RandomParticipation(parameters).accountant(10, 100).epsilon({1.0: 3}, 1e-5) == math.inf


def test_the_accountant_counts_the_releases_to_the_server() -> None:
    for server, answers, rates in (
        ("trusted", "everybody", (1.0, 1.0)),
        ("untrusted", "everybody", (1.0, 0.01)),
        ("untrusted", "participants", (1.0, 1.0)),
    ):
        parameters = RandomParticipationParameters(sample_rate=0.1, clip=0.5, sigma=0.6, server=server, answers=answers)
        protocol = RandomParticipation(parameters)
        assert protocol.accountant(10, 100).client_rate == rates[0]
        accountant = protocol.accountant(10, 100, client_rate=0.01)
        assert (accountant.noise_multiplier, accountant.sample_rate, accountant.client_rate) == (1.2, 0.1, rates[1])
