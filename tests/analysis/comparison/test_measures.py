"""Measures against numbers worked out by hand, and against slow loops over the same tables."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.comparison.measures import by_stage, outcomes_of, per_round
from analysis.multi_round import aggregation_cardinality, fairness_gap
from analysis.multi_round.participation import participation_matrix
from analysis.statistics import mean_interval, per_update_interval
from testbed.records import RunRecords
from tests.analysis import recorded

MakeRun = Callable[..., RunRecords]
EXPERIMENT = {"name": "by-hand", "seed": 7, "population": 4, "selection": {"protocol": "random"}}


@pytest.fixture
def by_hand(tmp_path: Path) -> RunRecords:
    """Three rounds of four clients: completed with a lost participant, skipped, aborted."""
    asked, made = recorded.asked, recorded.RecordedRound
    completed = made(
        started_s=10.0,
        ended_s=40.0,
        exchanges=[
            asked("check-in", 11.0, [0, 1, 2, 3], [12.0, 12.5, 13.0, None], down=10, up=[5, 5, 5, 0],
                  outcome=[0, 0, 0, 2], as_participant=False),
            asked("train", 14.0, [0, 1, 2], [20.0, 24.0, 29.0], down=1000, up=8, pki=(3, 4)),
            asked("plain/update", 30.0, [0, 1, 2], [32.0, 35.0, None], down=20, up=[500, 500, 0], outcome=[0, 0, 3]),
        ],
        participants=[0, 1, 2],
        survivors=[0, 1],
        accuracy=0.5,
    )  # fmt: skip
    skipped = made(
        40.0, 42.0, [asked("check-in", 40.0, [0, 1, 2, 3], [41.0, None, None, None], down=10, up=[5, 0, 0, 0],
                           outcome=[0, 2, 2, 2], as_participant=False)],
        outcome="skipped", reason="too-few-available",
    )  # fmt: skip
    aborted = made(
        42.0, 60.0, [asked("train", 43.0, [1, 3], [None, 50.0], down=1000, up=[0, 8], outcome=[3, 0])],
        participants=[1, 3], outcome="aborted", reason="too-few-survivors",
    )  # fmt: skip
    return recorded.write_run(tmp_path / "run", EXPERIMENT, [completed, skipped, aborted])


def test_rounds_by_hand(by_hand: RunRecords) -> None:
    frame = per_round(by_hand)
    assert frame["round_s"].tolist() == [30.0, 2.0, 18.0]
    # From the training request (14 s; check-in is nobody's participation) to the last answers at 32, 35 and 29 s.
    assert frame["client_s"][0] == pytest.approx((18 + 21 + 15) / 3)
    assert np.isnan(frame["client_s"][1])  # nobody took part
    assert frame["client_s"][2] == pytest.approx(7.0)  # client 1 never answered
    assert frame["server_bytes"].tolist() == [40 + 15 + 3000 + 24 + 60 + 1000, 40 + 5, 2000 + 8]
    # Check-in 15, training 1008 and 7 with the PKI, update 520 or (lost) 20.
    assert frame["client_bytes"][0] == pytest.approx(15 + 1008 + 7 + (520 + 520 + 20) / 3)
    assert frame["client_bytes"][2] == pytest.approx((1000 + 1008) / 2)


def test_stages_by_hand(by_hand: RunRecords) -> None:
    frame = by_stage(by_hand)
    first = frame[frame["round"] == 1].set_index("stage")
    # Check-in begins with the round: the second before it is the server's work.
    assert first["duration_s"].to_dict() == {"check-in": 4.0, "train": 16.0, "plain/update": 10.0}
    assert first["bytes_up"].to_dict() == {"check-in": 15, "train": 24, "plain/update": 1000}
    assert first.loc["train", ["pki_bytes_down", "pki_bytes_up"]].tolist() == [9, 12]
    assert frame[frame["round"] == 3]["duration_s"].tolist() == [18.0]


def test_outcomes_by_hand(by_hand: RunRecords) -> None:
    frame = outcomes_of(per_round(by_hand))
    assert frame["rounds"].to_dict() == {"completed": 1, "skipped": 1, "aborted": 1}
    assert frame["seconds"].to_dict() == {"completed": 30.0, "skipped": 2.0, "aborted": 18.0}
    assert frame["bytes"].to_dict() == {"completed": 4139, "skipped": 45, "aborted": 2008}


def test_participation_by_hand(by_hand: RunRecords) -> None:
    assert participation_matrix(by_hand).tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert participation_matrix(by_hand, compact=True).tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 0]]


def test_a_stage_without_duration_keeps_its_place_and_a_repeated_one_is_added_up(tmp_path: Path) -> None:
    asked = recorded.asked
    stages = [
        asked("train", 0.0, [0], [2.0], down=1),
        asked("secagg/share-keys", 2.0, [0], [None], down=2, outcome="offline"),
        asked("secagg/advertise-keys", 2.0, [0], [3.0], down=4),
        asked("train", 3.0, [1], [7.0], down=8),
    ]
    made = recorded.RecordedRound(0.0, 7.5, stages, [0, 1], [0])
    frame = by_stage(recorded.write_run(tmp_path / "run", EXPERIMENT, [made])).set_index("stage")
    assert frame["duration_s"].to_dict() == {"train": 6.5, "secagg/share-keys": 0.0, "secagg/advertise-keys": 1.0}
    assert frame["bytes_down"].to_dict() == {"train": 9, "secagg/share-keys": 2, "secagg/advertise-keys": 4}


@pytest.mark.parametrize("protocol", ["random", "lotto-client-centric", "batch-partition"])
def test_measures_equal_loops_over_the_tables(make_run: MakeRun, protocol: str) -> None:
    run = make_run("run", protocol, failing={2: "skipped", 4: "aborted"}, rounds=6)
    frame, stages = per_round(run).set_index("round"), by_stage(run)
    exchanges = run.exchanges.to_dict("records")
    for row in run.rounds.to_dict("records"):
        mine = [e for e in exchanges if e["round"] == row["round"]]
        participants = run.participation.query("round == @row['round']")["client"].tolist()
        times, traffic = [], []
        for client in participants:
            own = [e for e in mine if e["client"] == client]
            asked = [e for e in own if e["as_participant"]]
            answers = [e["received_s"] for e in asked if not np.isnan(e["received_s"])]
            times += [max(answers) - min(e["sent_s"] for e in asked)] if answers else []
            traffic.append(sum(e[f"{pki}bytes_{way}"] for e in own for pki in ("", "pki_") for way in ("up", "down")))
        measured = frame.loc[row["round"]]
        assert measured["server_bytes"] == row["bytes_down"] + row["bytes_up"]
        if participants:
            assert measured["client_s"] == pytest.approx(np.mean(times))
            assert measured["client_bytes"] == pytest.approx(np.mean(traffic))
        own_stages = stages[stages["round"] == row["round"]]
        assert own_stages["stage"].tolist() == list(dict.fromkeys(e["stage"] for e in mine))
        assert own_stages["duration_s"].sum() == pytest.approx(row["ended_s"] - row["started_s"])
        assert own_stages["bytes_down"].sum() == row["bytes_down"]


def test_a_run_that_goes_on_reads_like_a_finished_one(make_run: MakeRun) -> None:
    going_on, finished = make_run("one", finish=False), make_run("two", finish=True)
    pd.testing.assert_frame_equal(per_round(going_on), per_round(finished))
    pd.testing.assert_frame_equal(by_stage(going_on), by_stage(finished))


def test_a_run_without_rounds_has_empty_frames(make_run: MakeRun) -> None:
    run = make_run("run", rounds=0)
    assert per_round(run).empty
    assert by_stage(run).empty
    assert outcomes_of(per_round(run))["rounds"].tolist() == [0, 0, 0]
    assert participation_matrix(run).shape == (0, 100)


def test_the_compact_matrix_has_the_same_metrics(make_run: MakeRun) -> None:
    run = make_run("run", population=60, participants=12, rounds=7, failing={3: "aborted"})
    full, compact = participation_matrix(run), participation_matrix(run, compact=True)
    assert compact.shape[1] < full.shape[1]
    assert fairness_gap(full) == fairness_gap(compact)
    assert aggregation_cardinality(full) == aggregation_cardinality(compact)


finite = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(finite, min_size=2, max_size=30))
def test_the_interval_is_students(values: list[float]) -> None:
    interval = mean_interval(values)
    assert interval.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-6)
    assert interval.half_width is not None
    if np.std(values) > 1e-6:
        low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
        assert interval.half_width == pytest.approx((high - low) / 2, rel=1e-6)


def test_one_observation_has_no_interval_and_none_no_mean() -> None:
    assert mean_interval([]) == mean_interval([np.nan])
    assert (mean_interval([]).mean, mean_interval([]).half_width) == (None, None)
    assert (mean_interval([3.0, np.nan]).mean, mean_interval([3.0]).half_width) == (3.0, None)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.booleans()), max_size=30))
def test_the_cost_per_update_charges_failed_rounds_to_the_completed(rounds: list[tuple[float, bool]]) -> None:
    costs, completed = [cost for cost, _ in rounds], [done for _, done in rounds]
    interval = per_update_interval(costs, completed)
    if not any(completed):
        assert interval.mean is None
    else:
        assert interval.mean == pytest.approx(sum(costs) / sum(completed))
    assert (interval.half_width is None) == (sum(completed) < 2)


def test_the_interval_of_the_cost_per_update_covers_the_truth() -> None:
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        completed = generator.random(40) < 0.7
        costs = np.where(completed, generator.normal(30, 4, 40), generator.normal(60, 8, 40))
        interval = per_update_interval(costs, completed)
        assert interval.mean is not None
        assert interval.half_width is not None
        covered += abs(interval.mean - (30 + 60 * 0.3 / 0.7)) <= interval.half_width
    assert 0.91 <= covered / 400 <= 0.98


def test_in_asynchronous_rounds_a_buffer_is_filled_while_others_train(tmp_path: Path) -> None:
    asked = recorded.asked
    first = recorded.RecordedRound(
        0.0, 10.0, [asked("train", 0.0, [0], [9.0]), asked("plain/update", 9.0, [0], [10.0])]
    )
    stages = [
        asked("train", 2.0, [3], [None], outcome="dropped"),  # long before the round, and known in it
        asked("train", 10.0, [1], [14.0], down=1),
        asked("plain/update", 14.0, [1], [15.0], down=2),
        asked("train", 4.0, [2], [11.0], down=4),
        asked("plain/update", 11.0, [2], [12.0], down=8),
    ]
    second = recorded.RecordedRound(10.0, 15.0, stages, [1, 2], [1, 2])
    experiment = EXPERIMENT | {"asynchronous": {"concurrency": 3}}
    frame = by_stage(recorded.write_run(tmp_path / "run", experiment, [first, second]))
    assert frame["stage"].tolist() == ["train", "plain/update"] * 2
    assert frame["duration_s"].tolist() == [10.0, 0.0, 5.0, 0.0]
    assert frame["bytes_down"].tolist() == [0, 0, 5, 10]
