"""Audits of real runs: the canaries, the bounds by both observers, and detection of missing noise."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.privacy.audit import Audit, Canaries, audits, best_guesses
from analysis.privacy.audit_report import draw, rendered
from testbed.engine.canaries import CanaryTrainer
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment, validated
from testbed.privacy.canaries import canary, is_inserted
from testbed.randomness import Randomness
from testbed.records import RunRecords
from testbed.running import run_all
from tests.former_defaults import with_former_defaults
from tests.messages_named import naming

BASE: dict[str, Any] = {
    "name": "audited", "seed": 2, "rounds": 6, "population": 120,
    "workload": {"dataset": "digits", "model": "logistic", "samples_per_client": 2, "evaluate_every": 6},
    "selection": {"participants": 60}, "aggregation": {"protocol": "plain", "weights": "equal"},
    "privacy": {"delta": 1e-5, "canaries": {"clients": 0.5}},
    "records": {"aggregates": "all"}, "time": {"compute": "modelled"}, "cluster": {"network": "in-process"},
}  # fmt: skip
NOISE = {"mechanism": "skellam", "clip": 1.0, "noise_multiplier": 4.0}
Ran = Callable[..., RunRecords]


def experiment(**changes: Any) -> Experiment:
    return validated(with_former_defaults({**BASE, **changes}), "test")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    def ran(**changes: Any) -> RunRecords:
        (path,) = run_all(experiment(**changes), tmp_path_factory.mktemp("audit") / "run", where="test")
        return RunRecords(path)

    return ran


@pytest.fixture(scope="module")
def without_noise(ran: Ran) -> RunRecords:
    return ran()


def both(run: RunRecords) -> tuple[Audit, Audit]:
    server, outsider = audits([run])
    assert (server.observer, outsider.observer) == ("server", "outsider")
    return server, outsider


def test_canaries_are_drawn_among_the_honest_and_keep_their_coin() -> None:
    plan = RunPlan(experiment(adversary={"dishonest": 40}), 2)
    (role,) = [spec for spec in plan.roles if spec.role is CanaryTrainer]
    assert role.only is not None
    assert len(role.only) == 60
    assert not role.only & plan.dishonest
    coins = [is_inserted(Randomness(5), client) for client in range(4000)]
    assert 1850 < sum(coins) < 2150
    assert coins == [is_inserted(Randomness(5), client) for client in range(4000)]
    first, second = canary(Randomness(5), 1, 1000, 2.0), canary(Randomness(5), 2, 1000, 2.0)
    assert np.linalg.norm(first) == pytest.approx(2.0, rel=1e-5)
    assert abs(first @ second) < 4 * 4 / 1000**0.5
    assert canary(Randomness(5), 1, 1000) == pytest.approx(first / 2, rel=1e-5)


def test_a_canary_sends_its_vector_or_zeros(ran: Ran) -> None:
    run = ran(rounds=1, population=2, selection={"participants": 1}, privacy={"canaries": {"clients": 2, "norm": 3.0}})
    aggregate = run.aggregate(1)
    assert aggregate is not None
    (client,) = run.participation.loc[run.participation["survived"], "client"]
    expected = canary(Randomness(2), client, len(aggregate.mean), 3.0)
    there = is_inserted(Randomness(2), client)
    assert aggregate.mean == pytest.approx(expected if there else 0 * expected, abs=1e-6)


def test_without_noise_the_server_tells_all_that_took_part_apart(without_noise: RunRecords) -> None:
    server, outsider = both(without_noise)
    assert server.guessed.right >= server.guessed.guesses - 1
    assert server.guessed.epsilon > 1.5
    assert server.estimate > 2 * server.guessed.epsilon
    assert outsider.guessed.epsilon > 0.5
    assert (server.achieved, server.planned, server.guaranteed, server.refuted) == (None, None, None, False)


def test_measured_epsilon_is_below_the_ledgers(ran: Ran, without_noise: RunRecords) -> None:
    noisy = ran(aggregation={"protocol": "secagg", "weights": "equal", "noise": {**NOISE, "noise_multiplier": 1.0}})
    server, outsider = both(noisy)
    assert server.achieved is not None
    assert 0 < server.guessed.epsilon < server.achieved
    assert outsider.guessed.epsilon <= server.guessed.epsilon < both(without_noise)[0].guessed.epsilon
    assert server.estimate < server.achieved
    assert not server.refuted


def test_noise_that_is_declared_and_not_added_is_detected(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    from testbed.aggregation.kit.ring_elements import NoisyRole

    monkeypatch.setattr(NoisyRole, "noise_to_add", lambda *_: [])
    claimed = {"protocol": "plain", "weights": "equal", "noise": {**NOISE, "noise_multiplier": 30.0}}
    server, _ = both(ran(aggregation=claimed, seed=9))
    assert server.achieved is not None
    assert server.achieved < 1
    assert server.guessed.epsilon > 1.5
    assert server.refuted
    text = rendered([server], "text", 0.95)
    assert "≥ " in text
    assert "! " in text
    assert "larger than the ledger's" in text


def test_coins_that_nothing_depends_on_prove_nothing() -> None:
    rng, proven = np.random.default_rng(3), []
    for _ in range(300):
        scores, inserted = rng.normal(size=80), rng.integers(0, 2, 80) == 1
        proven.append(best_guesses(scores, inserted, 1e-5, 0.95).epsilon > 0)
    assert np.mean(proven) <= 0.05 + 3 * (0.05 * 0.95 / 300) ** 0.5
    tied = best_guesses(np.zeros(5), np.array([True, False, True, False, True]), 0.0, 0.95)
    assert tied.epsilon == 0.0


def test_the_table_its_json_and_the_picture(without_noise: RunRecords, tmp_path: Path) -> None:
    found = audits([without_noise], confidence=0.99)
    rows = json.loads(rendered(found, "json", 0.99))["rows"]
    assert [row["observer"] for row in rows] == ["server", "outsider"]
    assert rows[0]["audited_epsilon"] == found[0].guessed.epsilon < both(without_noise)[0].guessed.epsilon
    assert rows[0]["achieved_epsilon"] is None
    assert "the server adds the noise" not in rendered(found, "text", 0.99)
    assert rendered(found, "markdown", 0.99).startswith("| Run |")
    written = draw(found, tmp_path)
    assert [path.suffix for path in written] == [".png", ".pdf", ".csv"]
    drawn = written[2].read_text()
    assert f"{found[0].guessed.epsilon:.6g}"[:6] in drawn


def test_a_server_that_adds_the_noise_has_seen_more_than_its_row(ran: Ran) -> None:
    noise = {"mechanism": "correlated", "noise_multiplier": 4.0, "strategy": "identity"}
    found = audits([ran(aggregation=BASE["aggregation"] | {"noise": noise}, rounds=2)])
    said = "audited: the server adds the noise, and sees sums without it; the row is for observers of its releases.\n"
    assert rendered(found, "text", 0.95).count(said) == 1
    assert said not in rendered(found[1:], "text", 0.95)
    assert found[0].plan is not None
    assert [one.server for one in found[0].plan.guarantees] == ["trusted", "malicious"]


def test_missing_views_are_refused(ran: Ran, without_noise: RunRecords) -> None:
    with pytest.raises(ExperimentError, match=r"has no canaries; run it with --set privacy\.canaries\.clients"):
        Canaries(ran(privacy={"delta": 1e-5}, rounds=1))
    unseen = ran(rounds=1, records={})
    with pytest.raises(ExperimentError, match=naming("aggregate of round 1", "--observer outsider")):
        audits([unseen], ["server"])
    assert len(audits([unseen], ["outsider"])) == 1
    alone = ran(rounds=1, privacy={"canaries": {"clients": 1}})
    with pytest.raises(ExperimentError, match=r"set privacy\.canaries\.clients higher"):
        audits([alone])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"privacy": {"canaries": {"clients": 121}}}, "privacy.canaries.clients: 121 canaries among 120 honest"),
        ({"privacy": {"canaries": {"clients": 0.001}}}, "privacy.canaries.clients: 0 canaries among 120 honest"),
        (
            {"adversary": {"dishonest": 100}, "privacy": {"canaries": {"clients": 0.5}}},
            "privacy.canaries.clients: 60 canaries among 20 honest",
        ),
        ({"privacy": {"canaries": {"clients": 0}}}, "privacy.canaries.clients"),
        ({"aggregation": {"protocol": "plain", "compression": {"name": "top-k", "share": 0.1}}}, "compression"),
        (
            {"workload": {**BASE["workload"], "momentum": 0, "drift_correction": {"name": "scaffold"}}},
            "privacy.canaries excludes workload.drift_correction: scaffold",
        ),
    ],
    ids=["too many", "none", "not enough honest", "zero", "compressed", "scaffold"],
)
def test_options_that_canaries_exclude_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        experiment(**changes)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
