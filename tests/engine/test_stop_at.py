"""A run that ends at a target: the time of the end, its records, and resumption."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.aggregation.plain import Plain
from testbed.errors import RoundAborted
from testbed.records.schemas import SCHEMAS
from testbed.records.tables import STOPPED, stopped
from tests.engine.federations import Pulling, Quality

KEYS: dict[str, Any] = {
    "rounds": 12,
    "selection": {"participants": 6},
    "aggregation": {"protocol": "plain"},
    "availability": {"dropout": {"rate": 0.2, "stage": "random"}},
}


def tables(run: Any) -> dict[str, str]:
    return {table: repr(run.rows(table)) for table in SCHEMAS}


@pytest.fixture
def keys(run: Callable[..., Any]) -> dict[str, Any]:
    """With a target that is between the accuracies after rounds 2 and 3 of the whole run, which rise until then."""
    rows = run(KEYS, "free").rounds().rows("rounds")
    accuracies = [row["accuracy"] for row in rows]
    assert max(accuracies[:2]) < accuracies[2]
    return KEYS | {"stop_at": {"accuracy": (max(accuracies[:2]) + accuracies[2]) / 2}}


def test_it_ends_after_the_round_with_an_evaluation_that_meets_it(
    run: Callable[..., Any], keys: dict[str, Any], tmp_path: Path
) -> None:
    done = run(keys, "run").rounds()
    assert done.federation.finished
    free = run(KEYS, "free", resume=True)
    for table in ("rounds", "exchanges", "participation"):
        assert done.rows(table) == [row for row in free.rows(table) if row["round"] <= 3]
    (event,) = [row for row in done.rows("events") if row["kind"] == STOPPED]
    assert (event["round"], event["party"]) == (3, "coordinator")
    assert event["detail"].startswith("target: accuracy ≥ ")
    assert event["detail"].endswith(" % after round 3)")
    assert stopped(tmp_path / "run", 3) == event["detail"]


def test_resumed_it_ends_where_the_uninterrupted_one_ends(run: Callable[..., Any], keys: dict[str, Any]) -> None:
    whole = run(keys, "whole").rounds()
    run(keys, "parts").rounds(2)
    resumed = run(keys, "parts", resume=True, hosts=2).rounds()
    for table in ("rounds", "exchanges", "participation"):
        assert resumed.rows(table) == whole.rows(table)
    assert [row for row in resumed.rows("events") if row["kind"] != "resume"] == whole.rows("events")


def test_resumed_after_its_end_it_does_nothing(run: Callable[..., Any], keys: dict[str, Any]) -> None:
    before = tables(run(keys, "run").rounds())
    again = run(keys, "run", resume=True)
    assert again.federation.finished
    assert again.rounds().outcomes == []
    assert tables(again) == before


def test_only_an_evaluation_can_meet_it(run: Callable[..., Any], keys: dict[str, Any]) -> None:
    rare = keys | {"workload": {"evaluate_every": 2}}
    rows = run(rare, "run").rounds().rows("rounds")
    free = run(KEYS, "free", resume=True).rows("rounds")
    meeting = [row["round"] for row in free if row["accuracy"] >= keys["stop_at"]["accuracy"]]
    assert meeting[0] == 3
    assert len(rows) == next(number for number in meeting if number % 2 == 0)
    assert [row["round"] for row in rows if row["accuracy"] is not None] == list(range(2, len(rows) + 1, 2))


async def refuse(*_: Any) -> Any:
    """Aggregation that ends every round."""
    raise RoundAborted("refused", "for the test")


EASY = KEYS | {"stop_at": {"loss": 1000.0}}
"""With a target that the initial model meets."""


def test_a_model_that_no_round_has_changed_does_not_meet_it(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Plain, "aggregate", refuse)
        run(EASY, "run").rounds(2)
        assert not run(EASY, "run", resume=True).rounds(1).federation.finished
    resumed = run(EASY, "run", resume=True).rounds()
    assert [row["outcome"] for row in resumed.rows("rounds")] == ["aborted", "aborted", "aborted", "completed"]
    assert stopped(tmp_path / "run", 4).endswith("after round 4)")


def test_a_resumed_run_knows_that_a_round_had_changed_its_model(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare = EASY | {"workload": {"evaluate_every": 2}}
    run(rare, "run").rounds(1)
    monkeypatch.setattr(Plain, "aggregate", refuse)
    resumed = run(rare, "run", resume=True).rounds()
    assert [row["outcome"] for row in resumed.rows("rounds")] == ["completed", "aborted"]
    assert stopped(tmp_path / "run", 2).endswith("after round 2)")


def test_a_target_reached_in_the_last_round_has_not_stopped_the_run(
    run: Callable[..., Any], keys: dict[str, Any], tmp_path: Path
) -> None:
    done = run(keys | {"rounds": 3}, "run").rounds()
    assert not [row for row in done.rows("events") if row["kind"] == STOPPED]
    assert stopped(tmp_path / "run", 3) == ""
    never = run(KEYS | {"stop_at": {"loss": 1e-12}}, "never").rounds()
    assert len(never.rows("rounds")) == 12


def test_a_loss_that_is_no_number_meets_nothing(run: Callable[..., Any]) -> None:
    class Diverging(Pulling):
        def evaluate(self, model: Any) -> Quality:
            return Quality(float("nan"), 0.1)

    done = run(KEYS | {"rounds": 3, "stop_at": {"loss": 0.5}}, "run", workload=Diverging).rounds()
    assert len(done.rows("rounds")) == 3


def test_a_workload_that_evaluates_nothing_runs_to_its_end(run: Callable[..., Any]) -> None:
    class Unevaluated(Pulling):
        def evaluate(self, model: Any) -> Any:
            return None

    assert len(run(KEYS | {"rounds": 3, "stop_at": {"loss": 0.5}}, workload=Unevaluated).rounds().outcomes) == 3
