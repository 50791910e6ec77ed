"""`random` with recorded participants: available participants of the recorded round take part again."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from testbed.emulation.traces.schedule import Schedule
from testbed.errors import RoundSkipped, TraceError
from testbed.selection.random_selection import RandomParameters, RandomSelection
from tests.messages_named import naming
from tests.selection.federations import Selecting

POPULATION = 12
ROWS = [
    *((1, client, "", "participant") for client in (3, 4, 9)),
    (1, 4, "train", "dropped"),
    (2, 5, "", "offline"),
    *((3, client, "", "participant") for client in (0, 11)),
]


@pytest.fixture
def protocol(tmp_path: Path) -> Callable[..., RandomSelection]:
    """Return the protocol that replays these rows."""

    def protocol(rows: list = ROWS, participants: int = 3, population: int = POPULATION) -> RandomSelection:
        path = tmp_path / "schedule.csv"
        Schedule.from_rows(rows).write(path)
        return RandomSelection(RandomParameters(participants=participants, recorded=path), population)

    return protocol


def test_the_recorded_clients_take_part_again(protocol: Callable) -> None:
    run = Selecting(protocol(), POPULATION)
    for number, expected in ((1, [3, 4, 9]), (3, [0, 11])):
        chosen = run.select(number)
        assert chosen.participants.tolist() == expected
        assert chosen.candidates == POPULATION


@pytest.mark.parametrize("number", [2, 4])
def test_a_round_without_recorded_participants_is_skipped(protocol: Callable, number: int) -> None:
    replaying = protocol()
    with pytest.raises(RoundSkipped) as skipped:
        Selecting(replaying, POPULATION).select(number)
    assert skipped.value.reason == "nobody-recorded"
    assert skipped.value.detail == f"no participants in round {number} of {replaying.parameters.recorded}"


def test_available_recorded_clients_take_part(protocol: Callable) -> None:
    replaying = protocol()
    there = replaying._recorded(np.array([0, 1, 4, 5, 9]), 1)
    assert there.tolist() == [4, 9]
    with pytest.raises(RoundSkipped, match=naming("too-few-available", 3)):
        replaying._recorded(np.array([0, 1, 2]), 1)


def test_an_honest_server_may_have_fewer_than_k(protocol: Callable) -> None:
    assert protocol().minimum_participants == 2
    assert RandomSelection(RandomParameters(participants=3), POPULATION).minimum_participants == 3


def test_errors_of_unsuitable_files_are_one_line(protocol: Callable, tmp_path: Path) -> None:
    protocol().check_files()
    RandomSelection(RandomParameters(), POPULATION).check_files()
    for changes, parts in (
        ({"participants": 2}, ("round 1", "3 participants", "selection.participants", 2)),
        ({"population": 11}, ("client 11", "round 3", "0 to 10")),
        ({"rows": [(1, 2, "", "offline")]}, ("participants", "testbed trace record")),
    ):
        with pytest.raises(TraceError, match=naming(*parts)) as error:
            protocol(**changes).check_files()
        assert str(error.value).startswith(f"{tmp_path / 'schedule.csv'}: ")
        assert "\n" not in str(error.value)
    missing = RandomSelection(RandomParameters(recorded=tmp_path / "missing.csv"), POPULATION)
    with pytest.raises(TraceError, match=naming("missing.csv", "No such file")):
        missing.check_files()


def test_only_the_server_reads_the_file(tmp_path: Path) -> None:
    """Client processes create the protocol, too, perhaps on a machine without the file."""
    replaying = RandomSelection(RandomParameters(recorded=tmp_path / "elsewhere.csv"), POPULATION)
    assert replaying.roles
    assert replaying.minimum_participants == 2
