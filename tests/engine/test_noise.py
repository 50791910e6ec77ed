"""Experiments whose participants add noise: planned, refused where it cannot be, the same bytes for the same seed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.engine.plan import RunPlan
from testbed.engine.registry import aggregation_protocol
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment, validated
from testbed.records.schemas import SCHEMAS

SKELLAM = {"mechanism": "skellam", "noise_multiplier": 0.5}
SELECTION = {"protocol": "random", "participants": 8}
PROTOCOLS = ["secagg", "secagg-plus", "plain"]


def noisy(protocol: str = "secagg", noise: dict[str, Any] = SKELLAM, **more: Any) -> dict[str, Any]:
    aggregation = {"protocol": protocol, "weights": "equal", "noise": noise} | more
    return {"selection": SELECTION, "aggregation": aggregation}


def result(run: Any) -> tuple[Any, ...]:
    return (repr({table: run.rows(table) for table in SCHEMAS}), run.federation.state.model.tobytes())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_on_more_hosts_and_after_a_resume(protocol: str, run: Callable[..., Any]) -> None:
    keys = noisy(protocol)
    once = run(keys, "once").rounds()
    assert {outcome.state for outcome in once.outcomes} == {"completed"}
    assert {outcome.aggregate.noise for outcome in once.outcomes} == {1.0}
    assert result(run(keys, "spread", hosts=3).rounds()) == result(once)
    run(keys, "stopped").rounds(2)
    resumed = run(keys, "stopped", resume=True, hosts=2).rounds()
    assert resumed.federation.state.model.tobytes() == once.federation.state.model.tobytes()


def test_noise_costs_modelled_compute_and_bytes(run: Callable[..., Any]) -> None:
    """The update of 23 parameters is padded to 32; noise and rotation are in the clients' modelled seconds."""
    seconds = []
    for noise in (None, SKELLAM):
        done = run(noisy(noise=noise), f"noise {noise is not None}").rounds(1)
        rows = [row for row in done.rows("exchanges") if row["stage"] == "secagg/masked-input"]
        seconds.append((sum(row["compute_s"] for row in rows), sum(row["bytes_up"] for row in rows)))
    (plain_s, plain_bytes), (noisy_s, noisy_bytes) = seconds
    assert noisy_s - plain_s == pytest.approx(8 * (32 * (19 + 4 + 11) - 23 * 4.1 + (9 * 8) * 0.6) * 1e-9, rel=0.05)
    assert noisy_bytes - plain_bytes == 8 * (32 - 23) * 4


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_dishonest_clients_may_skip_their_noise(protocol: str, run: Callable[..., Any]) -> None:
    adversary = {"dishonest": 0.4, "clients": ["skip-noise"], "from_round": 2}
    done = run(noisy(protocol) | {"adversary": adversary}, "skipping").rounds(3)
    skips = done.plan.adversary.skips_noise
    assert skips == done.plan.dishonest
    assert len(skips) == 12
    rows = [(row["round"], row["client"]) for row in done.rows("participation")]
    expected = [(f"client:{client}", number) for number, client in rows if client in skips and number > 1]
    found = [(row["party"], row["round"]) for row in done.rows("events") if row["kind"] == "attack"]
    assert sorted(found) == sorted(expected) != []


def test_who_skips_no_noise_is_not_among_those_that_do() -> None:
    adversary = {"dishonest": 0.4, "clients": ["inflate-utility"]}
    keys = {"adversary": adversary, "privacy": {"report_losses": True}}
    plan = RunPlan(Experiment.model_validate(noisy() | keys), 0)
    assert plan.adversary is not None
    assert plan.adversary.skips_noise == frozenset()
    assert len(plan.dishonest) == 40


def test_without_noise_there_is_none_to_skip() -> None:
    adversary = {"dishonest": 0.4, "clients": ["skip-noise"]}
    with pytest.raises(ExperimentError, match="clients: skip-noise applies to none of this run's protocols; leave it"):
        RunPlan(Experiment.model_validate({"adversary": adversary}), 0)


# -- planning -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("same_secrets")
@pytest.mark.parametrize("mechanism", ["skellam", "discrete-gaussian"])
def test_the_least_noise_for_an_epsilon(mechanism: str, run: Callable[..., Any]) -> None:
    given = {"mechanism": mechanism, "epsilon": 6.0}
    done = run(noisy(noise=given), "epsilon").rounds(1)
    noise = done.experiment.aggregation.noise
    assert (noise.rounds, noise.delta) == (6, 1 / 300)  # of the experiment
    accountant = aggregation_protocol(done.experiment.aggregation).accountant(8, 23)
    assert accountant is not None
    assert accountant.mechanism == mechanism
    assert 5.99 < accountant.epsilon({1.0: 6}, 1 / 300) <= 6.0
    again = validated(done.experiment.plain(), "there")
    assert again == done.experiment
    multiplier = noise.multiplier(8, 23)
    same = run(noisy(noise={"mechanism": mechanism, "noise_multiplier": multiplier}), "given").rounds(1)
    assert same.federation.state.model.tobytes() == done.federation.state.model.tobytes()


@pytest.mark.usefixtures("same_secrets")
@pytest.mark.parametrize("mechanism", ["skellam", "discrete-gaussian"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_epsilon_takes_one_multiplier_in_rounds_of_any_size(
    mechanism: str, protocol: str, run: Callable[..., Any]
) -> None:
    """That of the largest round, which is the one that is accounted: sums of fewer discrete Gaussians cost less."""
    keys = noisy(protocol, {"mechanism": mechanism, "epsilon": 60.0, "scale": 4.0})
    keys["selection"] = {"protocol": "bernoulli", "client_rate": 0.3}
    done = run(keys, "coins").rounds(2)
    plan, noise = done.plan, done.experiment.aggregation.noise
    most = noise.multiplier(plan.maximum_participants, 23)
    same = noisy(protocol, {"mechanism": mechanism, "noise_multiplier": most, "scale": 4.0})
    assert len({len(outcome.participants) for outcome in done.outcomes} | {plan.maximum_participants}) > 1
    given = run(same | {"selection": keys["selection"]}, "given").rounds(2)
    assert given.federation.state.model.tobytes() == done.federation.state.model.tobytes()
    if mechanism == "discrete-gaussian":
        assert most > noise.multiplier(len(done.outcomes[0].participants), 23)


def noise_of(experiment: Experiment) -> Any:
    parameters = experiment.aggregation
    assert isinstance(parameters, SecAggParameters)
    return parameters.noise


def test_an_epsilon_over_fewer_rounds_or_at_another_delta() -> None:
    noise = {"mechanism": "skellam", "epsilon": 6.0, "rounds": 2, "delta": 1e-6}
    planned = noise_of(validated(noisy(noise=noise), "here"))
    assert planned is not None
    assert (planned.rounds, planned.delta) == (2, 1e-6)
    assert 5.99 < planned.accountant(8, 650).epsilon({1.0: 2}, 1e-6) <= 6.0


def test_sweeps_over_noise() -> None:
    from testbed.experiment.schema import points

    data = noisy() | {"sweep": {"aggregation.noise": [{"noise_multiplier": 0.5}, {"epsilon": 3.0}, None]}}
    data["aggregation"] = {"protocol": "secagg", "weights": "equal"}
    found = [noise_of(point.experiment) for point in points(validated(data, "here"), "here")]
    assert [noise and (noise.noise_multiplier, noise.epsilon, noise.rounds) for noise in found] == [
        (0.5, None, None), (None, 3.0, 10), None
    ]  # fmt: skip


WRONG = [
    (noisy(weights="samples"), "aggregation: weights: noise hides updates that all count the same; set weights: equal"),
    (noisy(clip=2.0), "aggregation: clip: has no effect with noise; leave it out and set noise.clip"),
    (noisy(levels_bits=8), "aggregation: levels_bits: has no effect with noise; leave it out and set noise.scale"),
    (noisy(noise={}), "aggregation.noise: noise_multiplier: set either this or epsilon, not both"),
    (
        noisy(noise=SKELLAM | {"epsilon": 1.0}),
        "aggregation.noise: noise_multiplier: set either this or epsilon, not both; set the other to null",
    ),
    (noisy(noise=SKELLAM | {"rounds": 3}), "aggregation.noise: delta and rounds: allowed only with epsilon"),
    (noisy(noise=SKELLAM | {"mechanism": "gauss"}), "aggregation.noise.mechanism: "),
    (noisy(noise=SKELLAM | {"clip": 0.0}), "aggregation.noise.clip: "),
    (noisy(noise={"noise_multiplier": -1.0}), "aggregation.noise.noise_multiplier: "),
    (noisy(noise=SKELLAM | {"scale": 0.5}), "aggregation.noise.scale: "),
    (noisy(noise=SKELLAM | {"sigma": 2.0}), "aggregation.noise.sigma: unknown key"),
]


@pytest.mark.parametrize(("keys", "says"), WRONG)
def test_what_does_not_fit_is_one_line(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ExperimentError) as error:
        validated(keys, "here")
    assert str(error.value).startswith(f"here: {says}")
    assert "\n" not in str(error.value)


REFUSED = [
    (noisy(bits=8), r"aggregation.bits: 8 updates of 64 steps .* need (1\d) bits, the ring has 8; set .* to \1, or"),
    (noisy("plain", bits=8), r"aggregation.bits: .* need (1\d) bits, the ring has 8; set aggregation.bits to \1"),
    (noisy(noise={"noise_multiplier": 5000.0}), "aggregation.noise.scale: .* steps, more than 65536, .*; lower it"),
    (noisy(noise={"mechanism": "discrete-gaussian", "noise_multiplier": 0.5, "scale": 2.0}),
     "aggregation.noise.scale: at 2 steps .* noise of 0.3536 steps, less than 0.5, .*; raise it"),
    (noisy(noise={"epsilon": 1e-9, "delta": 1e-12}), "aggregation.noise.epsilon: 1e-09 cannot be kept over 6 rounds"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "says"), REFUSED)
def test_what_the_dimension_does_not_allow_is_refused_before_anything_runs(
    keys: dict[str, Any], says: str, run: Callable[..., Any]
) -> None:
    with pytest.raises(ExperimentError, match=says) as error:
        run(keys)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("same_secrets")
def test_the_smallest_ring_that_is_named_is_accepted(run: Callable[..., Any]) -> None:
    with pytest.raises(ExperimentError) as error:
        run(noisy(bits=8))
    bits = int(str(error.value).partition("set aggregation.bits to ")[2].partition(",")[0])
    done = run(noisy(bits=bits), "smallest").rounds(2)
    wide = run(noisy(bits=40), "wide").rounds(2)
    assert done.federation.state.model.tobytes() == wide.federation.state.model.tobytes()


NO_ACCOUNTANT = '''
from testbed.aggregation.plain import Plain


class Silent(Plain):
    """Has the section `noise`, and does not say what it costs."""

    def accountant(self, participants, dimension, client_rate=1.0):
        return None
'''


@pytest.mark.parametrize("privacy", [{}, {"privacy": {"report_losses": True}}], ids=["losses kept", "losses reported"])
def test_noise_that_the_accountant_denies_is_refused(
    privacy: Any, run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sums_without_accountant.py").write_text(NO_ACCOUNTANT)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = "sums_without_accountant:Silent"
    with pytest.raises(ExperimentError, match=rf"^aggregation\.protocol: {own}: .* its accountant says None"):
        run(noisy(own) | privacy, "refused")
    without = {"selection": SELECTION, "aggregation": {"protocol": own}}
    assert run(without, "without").rounds(1).rows("privacy") == []
