"""Availability by a schedule, against rules written out for one client at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.availability.models import ScheduledAvailability
from testbed.emulation.traces.schedule import Schedule
from testbed.errors import TraceError
from tests.messages_named import naming

POPULATION = 6
SELECTION = ("check-in", "lotto/participants")
AFTER = ("train", "secagg/masked-input", "secagg/unmask")
FOREIGN = ("lotto/announce", "their/stage")
EVERYONE = np.arange(POPULATION, dtype=np.int64)


@st.composite
def schedules(draw: st.DrawFn) -> list[tuple[int, int, str, str]]:
    """Rows of two rounds: any client may take part, and any may have a fate."""
    rows = []
    for number in (1, 2):
        for client in range(POPULATION):
            if draw(st.booleans()):
                rows.append((number, client, "", "participant"))
            fate = draw(st.sampled_from(["", "offline", "dropped"]))
            if fate:
                stages = [*SELECTION, *AFTER, *FOREIGN, *([""] if fate == "offline" else [])]
                rows.append((number, client, draw(st.sampled_from(stages)), fate))
    return rows


def walked(rows: list[tuple[int, int, str, str]], number: int, client: int) -> dict[str, str]:
    """The oracle: the state of one client in each stage of a round, step by step: there, drops or away."""
    mine = [(stage, fate) for at, who, stage, fate in rows if (at, who) == (number, client)]
    takes_part = ("", "participant") in mine
    fates = [entry for entry in mine if entry[1] != "participant"]
    if not fates:
        return dict.fromkeys((*SELECTION, *AFTER), "there")
    ((stage, fate),) = fates
    if stage in FOREIGN:
        stage, fate = ("train", fate) if takes_part else ("", "offline")
    state, result = ("away" if stage == "" else "there"), {}
    for here in (*SELECTION, *AFTER):
        if here == stage:
            state = {"offline": "away", "dropped": "drops"}[fate]
        result[here] = state
        state = "away" if state == "drops" else state
    return result


@given(rows=schedules())
def test_each_client_meets_its_fate(rows: list[tuple[int, int, str, str]]) -> None:
    availability = ScheduledAvailability(Schedule.from_rows(rows), POPULATION, AFTER, SELECTION)
    assert not availability.comes_back
    for number in (1, 2, 3):
        for stage in (*SELECTION, *AFTER):
            presence = availability.presence(number, stage, 5.0, EVERYONE)
            assert np.isinf(presence.leaves_s).all()
            for client in range(POPULATION):
                expected = walked(rows, number, client)[stage]
                assert presence.reachable[client] == (expected != "away")
                assert presence.drops[client] == (expected == "drops")


@given(rows=schedules(), asked=st.sets(st.integers(0, POPULATION - 1)), stage=st.sampled_from((*AFTER, "check-in")))
def test_an_answer_depends_on_the_question_alone(rows: list, asked: set[int], stage: str) -> None:
    schedule = Schedule.from_rows(rows)
    availability = ScheduledAvailability(schedule, POPULATION, AFTER)
    before = availability.presence(2, stage, 0.0, EVERYONE)
    availability.presence(1, "train", 9.0, EVERYONE)
    some = np.array(sorted(asked), np.int64)
    again = availability.presence(2, stage, 70.0, some)
    assert again.reachable.tolist() == before.reachable[some].tolist()
    assert again.drops.tolist() == before.drops[some].tolist()


def test_without_selection_stages_a_fate_applies_to_questions_in_that_stage() -> None:
    rows = [
        (1, 0, "check-in", "dropped"),  # stood for selection, and is asked in a stage of that name
        (1, 1, "lotto/announce", "dropped"),  # was lost where there is nothing here: away for the round
        (1, 2, "", "participant"),
        (1, 2, "lotto/signatures", "dropped"),  # took part: is lost when training begins
        (1, 3, "", "participant"),
        (1, 3, "lotto/signatures", "offline"),
    ]
    availability = ScheduledAvailability(Schedule.from_rows(rows), POPULATION, AFTER)
    check_in = availability.presence(1, "check-in", 0.0, EVERYONE)
    assert check_in.reachable.tolist() == [True, False, True, True, True, True]
    assert check_in.drops.tolist() == [True, False, False, False, False, False]
    train = availability.presence(1, "train", 0.0, EVERYONE)
    assert train.reachable.tolist() == [False, False, True, False, True, True]
    assert train.drops.tolist() == [False, False, True, False, False, False]
    assert not availability.presence(1, "secagg/unmask", 0.0, EVERYONE).reachable[2]


def test_no_client_is_away_beyond_the_schedule_or_with_an_empty_one() -> None:
    for rows in ([], [(1, 0, "", "offline")]):
        presence = ScheduledAvailability(Schedule.from_rows(rows), POPULATION, AFTER).presence(2, "train", 0, EVERYONE)
        assert presence.reachable.all()
        assert not presence.drops.any()


def test_a_client_beyond_the_population_is_an_error() -> None:
    with pytest.raises(TraceError, match=naming("client 6", "round 1", "0 to 5")):
        ScheduledAvailability(Schedule.from_rows([(1, 6, "", "offline")]), POPULATION, AFTER)
