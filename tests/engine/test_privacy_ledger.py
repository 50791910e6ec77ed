"""The privacy ledger of whole runs, with an aggregation of one's own that adds noise (examples/own_noise.py)."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.errors import ExperimentError
from testbed.records import RunDirectory
from testbed.records.schemas import SCHEMAS
from testbed.records.tables import STOPPED, stopped
from tests.messages_named import naming
from tests.repository import ROOT

EXAMPLES = ROOT / "examples"
NOISE: dict[str, Any] = {"protocol": "own_noise:GaussianSums", "participants": 5, "noise_multiplier": 4.0}
DROPPING = {"dropout": {"rate": 0.2, "stage": "plain/update"}}
LEDGER: dict[str, Any] = {
    "rounds": 8,
    "selection": {"participants": 5},
    "aggregation": NOISE,
    "availability": DROPPING,
}


@pytest.fixture(autouse=True)
def own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def accountant() -> Any:
    from own_noise import GaussianAccountant

    return GaussianAccountant(4.0)


def in_sums(done: Any) -> list[dict[str, Any]]:
    """The rows of those that are in a sum: under plain sums the server has seen the updates of others, too."""
    return [row for row in done.rows("privacy") if row["noise"] is not None]


def test_every_survivor_is_charged_for_the_rounds_it_was_in(run: Callable[..., Any]) -> None:
    done = run(LEDGER, "run").rounds()
    rows, took_part = done.rows("privacy"), done.rows("participation")
    survivors = {(row["round"], row["client"]) for row in took_part if row["survived"]}
    assert [(row["round"], row["client"]) for row in in_sums(done)] == sorted(survivors)
    lost = {(row["round"], row["client"]) for row in rows} - survivors
    assert lost == {(row["round"], row["client"]) for row in took_part if not row["survived"]}
    assert lost
    left = Counter(number for number, _ in survivors)
    histories: dict[int, Counter[float]] = {}
    for row in in_sums(done):
        share = left[row["round"]] / 5
        assert row["noise"] == row["honest_noise"] == share
        assert row["colluding_noise"] == 1 / 5  # under plain sums the server sees every update, with its own share
        history = histories.setdefault(row["client"], Counter())
        history[share] += 1
        assert row["delta"] == 1 / (10 * 30)
        assert row["epsilon"] == pytest.approx(accountant().epsilon(history, row["delta"]), rel=1e-12)
        assert row["planned_epsilon"] == accountant().epsilon({1.0: history.total()}, row["delta"])
        assert row["colluding_epsilon"] >= row["epsilon"] >= row["planned_epsilon"]
    assert len(histories) > 10


def test_without_noise_there_is_no_ledger(run: Callable[..., Any], tmp_path: Path) -> None:
    done = run({"aggregation": {"protocol": "plain"}, "privacy": {"delta": 1e-3}}, "run").rounds()
    assert done.federation.privacy is None
    assert done.rows("privacy") == []
    assert not list((tmp_path / "run").rglob("privacy.parquet"))
    done.records.finish()
    assert not (tmp_path / "run" / "privacy.parquet").exists()
    assert done.rows("privacy") == []


@pytest.mark.parametrize("stop_after", [1, 3, 7])
def test_a_resumed_run_records_the_same(stop_after: int, run: Callable[..., Any], tmp_path: Path) -> None:
    whole = run(LEDGER, "whole").rounds()
    run(LEDGER, "parts").rounds(stop_after)
    resumed = run(LEDGER, "parts", resume=True).rounds()
    for table in set(SCHEMAS) - {"events"}:
        assert repr(resumed.rows(table)) == repr(whole.rows(table))
    for done in (whole, resumed):
        done.records.finish()
    merged = [(tmp_path / name / "privacy.parquet").read_bytes() for name in ("whole", "parts")]
    assert merged[0] == merged[1]


def test_a_finished_ledger_goes_on(run: Callable[..., Any]) -> None:
    """A run that was finished and then resumed has merged tables, and parts after them."""
    whole = run(LEDGER, "whole").rounds()
    begun = run(LEDGER, "merged").rounds(4)
    begun.records.finish()
    assert repr(run(LEDGER, "merged", resume=True).rounds().rows("privacy")) == repr(whole.rows("privacy"))


def test_the_run_ends_before_a_round_could_exceed_the_budget(run: Callable[..., Any], tmp_path: Path) -> None:
    free = run({**LEDGER, "rounds": 30}, "free").rounds()
    budget = 3.0
    keys = {**LEDGER, "rounds": 30, "privacy": {"budget": budget}}
    done = run(keys, "run").rounds()
    ended = len(done.rows("rounds"))
    assert 3 < ended < 30
    assert done.federation.finished
    histories: dict[int, Counter[float]] = {}
    for row in in_sums(done):
        assert row["epsilon"] <= budget
        histories.setdefault(row["client"], Counter())[row["noise"]] += 1
    after = [accountant().epsilon(history + Counter({0.2: 1}), 1 / 300) for history in histories.values()]
    assert max(after) > budget
    rows = [row for row in in_sums(done) if row["round"] < ended]
    earlier: dict[int, Counter[float]] = {}
    for row in rows:
        earlier.setdefault(row["client"], Counter())[row["noise"]] += 1
    before = [accountant().epsilon(history + Counter({0.2: 1}), 1 / 300) for history in earlier.values()]
    assert max(before) <= budget  # it did not stop a round too early
    assert done.rows("privacy") == [row for row in free.rows("privacy") if row["round"] <= ended]
    (event,) = [row for row in done.rows("events") if row["kind"] == STOPPED]
    assert (event["round"], event["party"]) == (ended, "coordinator")
    assert event["detail"].startswith("privacy budget: client ")
    assert event["detail"] == done.federation.privacy.spent == stopped(tmp_path / "run", ended)
    assert done.rows("rounds")[-1]["accuracy"] is not None  # the last round is evaluated, planned or not
    assert stopped(tmp_path / "free", 30) == ""


def test_a_resumed_run_that_has_spent_its_budget_does_nothing(run: Callable[..., Any]) -> None:
    keys = {**LEDGER, "rounds": 30, "privacy": {"budget": 3.0}}
    done = run(keys, "run").rounds()
    before = {table: repr(done.rows(table)) for table in SCHEMAS}
    again = run(keys, "run", resume=True)
    assert again.federation.finished
    assert again.rounds().outcomes == []
    assert {table: repr(again.rows(table)) for table in SCHEMAS} == before


def test_stopped_and_resumed_it_ends_where_the_uninterrupted_one_ends(run: Callable[..., Any]) -> None:
    keys = {**LEDGER, "rounds": 30, "privacy": {"budget": 3.0}}
    whole = run(keys, "whole").rounds()
    run(keys, "parts").rounds(2)
    parts = run(keys, "parts", resume=True).rounds()
    assert repr(parts.rows("privacy")) == repr(whole.rows("privacy"))
    assert len(parts.rows("rounds")) == len(whole.rows("rounds"))


def test_a_budget_that_no_round_keeps_is_refused(run: Callable[..., Any]) -> None:
    with pytest.raises(ExperimentError, match=r"privacy\.budget: 0\.5 .*epsilon 2\."):
        run({**LEDGER, "privacy": {"budget": 0.5}})
    with pytest.raises(ExperimentError, match=naming("privacy.budget: 3", "secagg")):
        run({"privacy": {"budget": 3.0}})


def test_rounds_that_failed_before_anybody_sent_an_update_are_free(run: Callable[..., Any]) -> None:
    away = {"availability": {"dropout": {"rate": 1.0, "stage": "train"}}}
    done = run({**LEDGER, **away}, "run").rounds(3)
    assert {row["outcome"] for row in done.rows("rounds")} == {"aborted"}
    assert done.rows("privacy") == []


def test_rounds_that_failed_while_updates_were_sent_charge_all_participants(run: Callable[..., Any]) -> None:
    lost = {"availability": {"dropout": {"rate": 1.0, "stage": "plain/update"}}}
    done = run({**LEDGER, **lost}, "run").rounds(3)
    assert {row["outcome"] for row in done.rows("rounds")} == {"aborted"}
    rows = done.rows("privacy")
    assert [(row["round"], row["client"]) for row in rows] == [
        (row["round"], row["client"]) for row in done.rows("participation")
    ]
    assert {row["noise"] for row in rows} == {1 / 5}


def test_accomplices_know_their_noise(run: Callable[..., Any]) -> None:
    """Sums of which the server sees no part would leave the honest share; here it sees all, and they add nothing."""
    done = run({**LEDGER, "adversary": {"dishonest": list(range(15)), "clients": []}}, "run").rounds()
    rows = done.rows("privacy")
    assert {row["colluding_noise"] for row in rows} <= {0.0, 1 / 5}
    assert all(row["honest_noise"] == row["noise"] for row in rows)


def test_the_rows_are_written_with_their_round(run: Callable[..., Any], tmp_path: Path) -> None:
    done = run(LEDGER, "run").rounds(2)
    parts = sorted(path.parent.name for path in (tmp_path / "run").rglob("privacy.parquet"))
    assert parts == ["round-000001", "round-000002"]
    assert done.records.table("privacy").schema.equals(SCHEMAS["privacy"])
    damaged = tmp_path / "run" / "parts" / "round-000001" / "privacy.parquet"
    damaged.unlink()
    with pytest.raises(Exception, match=naming("'privacy'")):
        RunDirectory(tmp_path / "run").table("privacy")


def test_dp_sgd_charges_every_participant(run: Callable[..., Any]) -> None:
    from testbed.privacy.gaussian import SubsampledGaussianAccountant

    class WithGradients:
        """Gradients that are all alike."""

        dimension = 5

        def __init__(self, population: int) -> None:
            self.sample_counts = np.full(population, 4)

        def initial_model(self) -> np.ndarray:
            return np.zeros(5, np.float32)

        def train(self, client: int, model: np.ndarray, round_number: int) -> Any:
            raise AssertionError("gradients are asked for, not training")

        def check_gradient_sum(self) -> None:
            """They can be had."""

        def gradient_sum(self, client: int, model: Any, round_number: int, samples: Any, norm: float | None) -> Any:
            from testbed.workload.contract import LocalUpdate

            return LocalUpdate(np.full(5, 0.1 * len(samples), np.float32), 4, 0.0, len(samples))

        def evaluate(self, model: np.ndarray) -> None:
            """Nothing is learned."""

    aggregation = {"protocol": "dp-sgd-random-participation", "sample_rate": 0.5, "sigma": 2.0}
    keys = {"rounds": 5, "selection": {"protocol": "bernoulli", "client_rate": 0.3}, "aggregation": aggregation}
    done = run(keys, "trusted", workload=WithGradients).rounds()
    rounds: Counter[int] = Counter()
    rows = done.rows("privacy")
    for row in rows:
        rounds[row["client"]] += 1
        of_its_rounds = SubsampledGaussianAccountant(2.0, 0.5).epsilon({1.0: rounds[row["client"]]}, 1 / 1200)
        assert row["epsilon"] == row["planned_epsilon"] == row["colluding_epsilon"] == of_its_rounds
        assert row["delta"] == 1 / (10 * 4 * 30)  # one of the samples is protected
    assert len(rows) == len(done.rows("participation"))
    untrusted = run({**keys, "aggregation": aggregation | {"server": "untrusted"}}, "untrusted", workload=WithGradients)
    rows = untrusted.rounds().rows("privacy")
    assert len(rows) == 5 * 30  # everybody answers, and the rate says how seldom it takes part
    assert {row["epsilon"] for row in rows if row["round"] == 5} == {
        SubsampledGaussianAccountant(2.0, 0.5, 0.3).epsilon({1.0: 5}, 1 / 1200)
    }
    leaving = keys | {"availability": {"dropout": {"rate": 0.5, "stage": "dp-sgd/gradient"}}}
    left = run(
        leaving | {"aggregation": aggregation | {"server": "untrusted"}}, "left", workload=WithGradients
    ).rounds()
    assert {row["survived"] for row in left.rows("participation")} == {True, False}
    assert len(left.rows("privacy")) == 5 * 30  # each was asked, and its answer may have been seen
    left = run(leaving, "left, trusted", workload=WithGradients).rounds()
    took_part = [(row["round"], row["client"]) for row in left.rows("participation") if row["survived"]]
    assert [(row["round"], row["client"]) for row in left.rows("privacy")] == took_part
