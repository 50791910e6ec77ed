"""Batches of like reliability: their record, their order, and what a false record can and cannot do."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from analysis.bounds.batch_partition import average_cardinality, unavailable_round
from analysis.multi_round import strong_privacy
from analysis.multi_round.simulation import simulate
from testbed.batches import Batches
from testbed.emulation.traces.schedule import Schedule
from testbed.errors import TraceError
from testbed.selection.batch_partition import BatchPartitionParameters, BatchPartitionSelection
from testbed.selection.reliability import like_reliability, read_lost_rounds


def record(tmp_path: Path, rows: list[tuple[int, int, str, str]]) -> Path:
    path = tmp_path / "record.csv"
    Schedule.from_rows(rows).write(path)
    return path


def parameters(path: Path | None, privacy: int = 2, participants: int = 2) -> BatchPartitionParameters:
    return BatchPartitionParameters(participants=participants, privacy=privacy, reliability_from=path)


def test_rounds_are_lost_by_being_away_or_by_dropping_out(tmp_path: Path) -> None:
    rows = [(1, 0, "", "participant"), (1, 0, "train", "dropped"), (1, 2, "", "offline"), (2, 2, "", "offline"),
            (2, 1, "", "participant")]  # fmt: skip
    path = record(tmp_path, rows)
    assert read_lost_rounds(path, 4).tolist() == [1, 0, 2, 0]
    assert BatchPartitionSelection(parameters(path), 4).batches.of.tolist() == [1, 0, 1, 0]


def test_batches_have_t_members_or_one_more_and_ties_follow_the_numbers() -> None:
    batches = like_reliability(np.array([5, 5, 0, 0, 0, 9, 9]), size=3)
    assert batches.of.tolist() == [1, 1, 0, 0, 0, 1, 1] or batches.sizes.tolist() == [4, 3]
    assert sorted(batches.sizes.tolist()) == [3, 4]
    assert like_reliability(np.zeros(6, np.int64), 2).of.tolist() == Batches.consecutive(6, 2).of.tolist()


def test_no_partition_has_fewer_skipped_rounds() -> None:
    generator = np.random.default_rng(3)
    for size, users in ((2, 6), (3, 6), (2, 8), (3, 9)):
        away = generator.uniform(0, 1, users)
        orders = (
            list(itertools.permutations(range(users))) if users < 8 else [*map(generator.permutation, [users] * 300)]
        )
        for selected in range(size, users + 1, size):
            # Sorted like a record without errors.
            best = unavailable_round(users, selected, size, np.sort(away).tolist())
            every = [unavailable_round(users, selected, size, away[list(order)].tolist()) for order in orders]
            assert min(every) >= best - 1e-12
            assert max(every) > best + 1e-3 or selected == users


def test_a_false_record_chooses_who_shares_a_batch_but_keeps_t(tmp_path: Path) -> None:
    victim, accomplices = 7, {1, 4}
    rows = [(1, client, "", "offline") for client in range(9) if client not in accomplices | {victim}]
    path = record(tmp_path, rows)
    selection = BatchPartitionSelection(parameters(path, privacy=3, participants=3), 9)
    assert set(selection.batches.mates(victim).tolist()) == accomplices
    matrix = simulate(parameters(path, privacy=3, participants=3), [0.1] * 9, 40, seed=1)
    assert strong_privacy(matrix) == 3


def test_reliable_batches_take_part_more_often_in_the_simulated_selection(tmp_path: Path) -> None:
    away = np.array([0.0, 0.6] * 6)
    path = record(tmp_path, [(number, client, "", "offline") for number in (1, 2) for client in range(1, 12, 2)])
    means = [simulate(parameters(where, 3, 3), away, 300, seed=2).sum(axis=1).mean() for where in (None, path)]
    assert means[1] > means[0] * 1.2
    assert means[1] == pytest.approx(average_cardinality(12, 3, 3, sorted(away)), abs=0.2)


@pytest.mark.parametrize(
    ("rows", "message"), [([], "no rounds"), ([(1, 4, "", "offline")], "the population has clients 0 to 3")]
)
def test_a_record_that_cannot_be_used_is_refused(
    rows: list[tuple[int, int, str, str]], message: str, tmp_path: Path
) -> None:
    selection = BatchPartitionSelection(parameters(record(tmp_path, rows)), 4)
    with pytest.raises(TraceError, match=message) as refused:
        selection.check_files()
    assert "\n" not in str(refused.value)


def test_no_warning_is_computed_from_one_probability() -> None:
    assert parameters(None).supply(12, 0.7) is not None
    assert parameters(Path("x.csv")).supply(12, 0.7) is None


def test_the_parameters_are_written_only_if_set() -> None:
    assert "reliability_from" not in BatchPartitionParameters().model_dump()
    assert "membership" not in BatchPartitionParameters().model_dump()
    assert parameters(Path("x.csv")).model_dump()["reliability_from"] == Path("x.csv")
