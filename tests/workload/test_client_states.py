"""Client states in the run's directory: files never change, and those that a checkpoint may name exist."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import ClusterError, RunError
from testbed.workload.client_states import FOLDER, ClientStates
from tests.messages_named import naming
from tests.thoroughness import examples


def state_of(round_number: int, basis: int) -> np.ndarray:
    return np.array([round_number, basis, 0.1 * round_number], np.float32)


@given(
    st.lists(st.sampled_from(["away", "trained", "summed"]), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(1, 2)), max_size=3),
)
@settings(max_examples=examples(60), deadline=None)
def test_whatever_is_lost_a_run_goes_on_from_the_last_checkpoint_or_the_one_before(
    fates: list[str], losses: list[tuple[int, int]]
) -> None:
    """`losses`: after which rounds a run goes on anew, and how many checkpoints earlier."""
    states, checkpoints = ClientStates(None), [0]  # the round of the current state, after each round
    repeated = dict(losses)
    while len(checkpoints) <= len(fates):
        number = len(checkpoints)
        basis, fate = checkpoints[-1], fates[number - 1]
        if fate != "away":
            if basis:
                assert states.read(0, basis, 3).tolist() == state_of(basis, checkpoints[basis - 1]).tolist()
            states.write(0, number, state_of(number, basis), basis)
            assert len(list(states.path.rglob("*.f32"))) <= 3 + len(repeated)
        checkpoints.append(number if fate == "summed" else basis)
        for kept in checkpoints[-2:]:
            states.check(np.array([kept]), 3)
        back = repeated.pop(number - 1, 0)
        if 0 < back < 2 <= len(checkpoints):
            del checkpoints[-back:]


def test_at_most_two_files_of_a_client_that_is_in_every_other_sum() -> None:
    states, last = ClientStates(None), 0
    for number in range(1, 30):
        states.write(7, number, state_of(number, last), last)
        last = number if number % 2 else last
    assert sorted(int(file.stem) for file in states.path.rglob("*.f32")) == [27, 29]
    assert states.read(7, 27, 3).tolist() == state_of(27, 25).tolist()
    with pytest.raises(RunError, match="has 3 numbers, not 4"):
        states.read(7, 27, 4)


def test_without_a_directory_they_go_with_the_object() -> None:
    states = ClientStates(None)
    states.write(0, 1, state_of(1, 0), 0)
    path = states.path
    assert path.exists()
    del states
    assert not path.exists()


def test_a_directory_that_another_machine_does_not_see(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for path in (here, there):
        path.mkdir()
    mark = ClientStates(here).share()
    ClientStates(here).check_shared(mark)
    ClientStates(there).share()  # of an earlier run, with another mark
    for other in (there, tmp_path / "nowhere"):
        with pytest.raises(ClusterError) as error:
            ClientStates(other).check_shared(mark)
        assert str(error.value).startswith(f"{other}: ")
        assert "--out" in str(error.value)
        assert "\n" not in str(error.value)


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("in the way")
    with pytest.raises(RunError, match=naming("Not a directory", "--resume")) as error:
        ClientStates(tmp_path).write(0, 1, state_of(1, 0), 0)
    assert "\n" not in str(error.value)
