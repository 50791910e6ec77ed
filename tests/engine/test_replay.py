"""Misfortunes recorded under one protocol and replayed under another: the same clients, rounds, stages and fates."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.emulation.availability.models import ScheduledAvailability
from testbed.emulation.traces.schedule import Schedule
from testbed.records import RunRecords
from testbed.records.reader import recorded_schedule

LOTTO = {"selection": {"protocol": "lotto-server-centric", "participants": 8, "over_selection": 2.0, "signatures": 4}}
SECAGG = {"aggregation": {"protocol": "secagg", "threshold": 5}, "rounds": 10}
SLOW = {"links": {"latency_ms": [200, 700]}}
Row = tuple[int, int, str, str]


def dropouts(stage: str) -> dict[str, Any]:
    """Clients are away, and drop out at this stage (or at a random one)."""
    return {"availability": {"model": "bernoulli", "unavailable": 0.2, "dropout": {"rate": 0.25, "stage": stage}}}


@pytest.fixture
def replayed(run: Callable, tmp_path: Path) -> Callable[..., tuple[Schedule, Schedule]]:
    """Record a run in a file and run `keys` on its schedule: both runs' schedules."""

    def replayed(first: dict[str, Any], keys: dict[str, Any], **selection: Any) -> tuple[Schedule, Schedule]:
        path = tmp_path / "schedule.csv"
        run(first, "first").rounds()
        recorded_schedule(RunRecords(tmp_path / "first")).write(path)
        if selection:
            keys = keys | {"selection": selection | {"recorded": path}}
        again = run(keys, "again")
        stages = ("train", *again.plan.aggregation.stages)
        again.federation.network.availability = ScheduledAvailability(Schedule.read(path), 30, stages)
        again.rounds()
        return Schedule.read(path), recorded_schedule(RunRecords(tmp_path / "again"))

    return replayed


def among_participants(schedule: Schedule) -> list[Row]:
    """The rows of clients in rounds in which they took part."""
    rows = list(schedule.rows())
    took_part = {(number, client) for number, client, _, fate in rows if fate == "participant"}
    return [row for row in rows if row[:2] in took_part]


def test_random_meets_the_dropouts_of_lotto(replayed: Callable) -> None:
    first, again = replayed(LOTTO | SECAGG | dropouts("random"), SECAGG | SLOW, protocol="random", participants=8)
    rows = among_participants(first)
    assert among_participants(again) == rows
    fates = [fate for *_, fate in rows]
    assert fates.count("participant") > 60
    assert fates.count("dropped") > 8
    assert len({stage for _, _, stage, fate in rows if fate == "dropped"}) > 3
    away = [[row for row in schedule.rows() if row[2:] == ("", "offline")] for schedule in (first, again)]
    assert away[0] == away[1] != []


def test_a_client_that_was_lost_during_selection_is_lost_when_training_begins(replayed: Callable) -> None:
    lost = dropouts("lotto/participants")
    first, again = replayed(LOTTO | SECAGG | lost, SECAGG | SLOW, protocol="random", participants=8)
    rows = among_participants(first)
    assert ("lotto/participants", "dropped") in {row[2:] for row in rows}
    renamed = [(*row[:2], "train" if row[2] == "lotto/participants" else row[2], row[3]) for row in rows]
    assert among_participants(again) == renamed


def test_the_same_protocol_meets_all_of_it_again(replayed: Callable) -> None:
    keys = LOTTO | SECAGG
    first, again = replayed(keys | dropouts("random"), keys)
    assert list(again.rows()) == list(first.rows())


def test_lotto_meets_the_dropouts_of_a_random_run(replayed: Callable) -> None:
    """Lotto selects other clients, but the clients that it asks in a stage drop out as scheduled."""
    first, again = replayed(SECAGG | dropouts("random") | {"selection": {"participants": 8}}, LOTTO | SECAGG)
    fates = {row[:2]: row[2:] for row in first.rows() if row[3] != "participant"}
    met = {row[:2]: row[2:] for row in again.rows() if row[3] != "participant"}
    assert met
    assert all(fates[key] == fate for key, fate in met.items())
