"""The privacy cost of dishonest participants in real runs of SecAgg with distributed noise: Lotto's Figure 1b."""

from collections.abc import Callable
from typing import Any

import pytest

from analysis.bounds.lotto_rounds import Training, cost_without_lotto
from testbed.privacy.accounting import Skellam

ROUNDS, PARTICIPANTS, DELTA, MULTIPLIER = 4, 10, 0.005, 3.0
EVERYBODY: dict[str, Any] = {
    "rounds": ROUNDS,
    "population": PARTICIPANTS,
    "selection": {"participants": PARTICIPANTS},
    "aggregation": {
        "protocol": "secagg",
        "weights": "equal",
        "noise": {"mechanism": "skellam", "clip": 0.5, "noise_multiplier": MULTIPLIER},
    },
    "privacy": {"delta": DELTA},
}


def mechanism(done: Any) -> Skellam:
    found = done.federation.privacy.ledger.plan.accountant.of_round
    assert isinstance(found, Skellam)
    assert found.noise_multiplier == MULTIPLIER
    return found


@pytest.mark.parametrize("dishonest", [0, 1, 3])
def test_skipped_noise_costs_as_in_figure_1b(dishonest: int, run: Callable[..., Any]) -> None:
    adversary = {"dishonest": list(range(dishonest)), "clients": ["skip-noise"]} if dishonest else {"dishonest": 0}
    done = run({**EVERYBODY, "adversary": adversary}, "run").rounds()
    last = [row for row in done.rows("privacy") if row["round"] == ROUNDS]
    assert len(last) == PARTICIPANTS  # everybody was in every round
    share = 1 - dishonest / PARTICIPANTS
    for row in last:
        assert row["noise"] == 1.0
        assert row["honest_noise"] == pytest.approx(share)
        assert row["planned_epsilon"] == pytest.approx(mechanism(done).epsilon(ROUNDS, DELTA), rel=1e-9)
        assert row["epsilon"] == pytest.approx(mechanism(done).epsilon(ROUNDS, DELTA, share), rel=1e-9)
        assert row["colluding_epsilon"] == row["epsilon"]
    assert (last[0]["epsilon"] > last[0]["planned_epsilon"]) == (dishonest > 0)


def test_four_of_ten_break_the_sum_and_see_each_input_with_its_own_noise(run: Callable[..., Any]) -> None:
    """t = 7 of 10: 2t - s = 4. The ledger then states the cost of Lotto's insecure baseline."""
    done = run({**EVERYBODY, "adversary": {"dishonest": [0, 1, 2, 3], "clients": ["skip-noise"]}}, "run").rounds()
    training = Training(4, PARTICIPANTS, 1.0, PARTICIPANTS, 0.7, ROUNDS, DELTA, mechanism(done))
    for row in done.rows("privacy")[-PARTICIPANTS:]:
        assert row["colluding_epsilon"] == pytest.approx(cost_without_lotto(training).epsilon, rel=1e-9)
        assert row["epsilon"] == pytest.approx(mechanism(done).epsilon(ROUNDS, DELTA, 0.6), rel=1e-9)


def test_collusion_without_skipped_noise_costs_as_much_against_the_server(run: Callable[..., Any]) -> None:
    done = run({**EVERYBODY, "adversary": {"dishonest": [0, 1, 2]}}, "run").rounds()
    row = done.rows("privacy")[-1]
    assert row["epsilon"] == row["planned_epsilon"]
    assert row["colluding_epsilon"] == pytest.approx(mechanism(done).epsilon(ROUNDS, DELTA, 0.7), rel=1e-9)


def test_noise_is_skipped_in_attacked_rounds_alone(run: Callable[..., Any]) -> None:
    adversary = {"dishonest": [0, 1], "clients": ["skip-noise"], "from_round": 2, "every": 2}
    done = run({**EVERYBODY, "adversary": adversary}, "run").rounds()
    shares = {row["round"]: row["honest_noise"] for row in done.rows("privacy")}
    assert shares == {1: 1.0, 2: 0.8, 3: 1.0, 4: 0.8}


def test_dropouts_take_their_noise_along(run: Callable[..., Any]) -> None:
    away = {"dropout": {"rate": 0.1, "stage": "secagg/masked-input"}}
    done = run({**EVERYBODY, "rounds": 6, "availability": away}, "run").rounds()
    survivors = {row["round"]: row["survivors"] for row in done.rows("rounds") if row["outcome"] == "completed"}
    assert len(set(survivors.values())) > 1
    for row in done.rows("privacy"):
        assert row["noise"] == survivors[row["round"]] / PARTICIPANTS
        assert row["noise"] >= done.federation.privacy.ledger.plan.min_share == 0.7


def test_a_resumed_run_records_the_same(run: Callable[..., Any]) -> None:
    keys = {**EVERYBODY, "adversary": {"dishonest": [0, 1, 2, 3], "clients": ["skip-noise"]}}
    whole = run(keys, "whole").rounds()
    run(keys, "parts").rounds(2)
    assert repr(run(keys, "parts", resume=True).rounds().rows("privacy")) == repr(whole.rows("privacy"))


def test_rounds_in_which_the_sum_could_be_unmasked_charge_all_participants(run: Callable[..., Any]) -> None:
    """All drop out in the last stage: the server has the masked sum, and may have got answers to unmask it."""
    late = {"dropout": {"rate": 0.9, "stage": "secagg/unmask"}}
    done = run({**EVERYBODY, "availability": late}, "late").rounds()
    assert {row["outcome"] for row in done.rows("rounds")} == {"aborted"}
    assert len(done.rows("privacy")) == ROUNDS * PARTICIPANTS
    assert {row["noise"] for row in done.rows("privacy")} == {0.7}
    early = {"dropout": {"rate": 0.9, "stage": "secagg/masked-input"}}
    assert run({**EVERYBODY, "availability": early}, "early").rounds().rows("privacy") == []
