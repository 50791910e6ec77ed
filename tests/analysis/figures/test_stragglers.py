"""Who holds rounds up: numbers of a run that is written by hand, and of runs without classes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.comparison.rows import rows_of
from analysis.figures.elements import FigureWithData
from analysis.figures.stragglers import kinds_of, stragglers
from testbed.network.exchanges import OUTCOMES
from testbed.records import RunDirectory, RunRecords
from testbed.records.clients import clients_table
from tests.analysis import recorded

MakeRun = Callable[..., RunRecords]
ANSWERED, DROPPED, LATE = map(OUTCOMES.index, ("answered", "dropped", "late"))


def with_clients(run: RunRecords, factors: Sequence[float], names: Sequence[str] = ("",)) -> RunRecords:
    """The run with a table of clients; client i is of the class i modulo their number."""
    count = len(factors)
    columns: dict[str, Any] = {name: np.ones(count) for name in ("down_mbit_s", "up_mbit_s", "latency_ms", "loss")}
    columns |= {"device_factor": np.asarray(factors, float), "samples": np.ones(count, np.int64)}
    class_of = np.arange(count) % len(names)
    RunDirectory(run.path).write_clients(clients_table(tuple(names), class_of.astype(np.int16), columns))
    return RunRecords(run.path)


@pytest.fixture
def run(tmp_path: Path) -> RunRecords:
    """Two rounds of clients 0 (fibre), 1 (phone) and 2 (fibre): 1 is the slowest; 2 drops out of the second round."""
    experiment = {
        "name": "by-hand", "seed": 1, "rounds": 2, "population": 4, "selection": {"protocol": "random"},
        "classes": {"phone": {}, "fibre": {}},
    }  # fmt: skip
    whole = [
        recorded.asked("train", 10.0, [0, 1, 2], [11.0, 14.0, 12.0]),
        recorded.asked("plain/update", 20.0, [0, 1, 2], [20.5, 21.0, 20.5]),
    ]
    lost = [
        recorded.asked("train", 40.0, [0, 1, 2], [42.0, 43.0, 43.5]),
        recorded.asked("plain/update", 50.0, [0, 1, 2], [51.0, 52.0, None], outcome=[ANSWERED, ANSWERED, DROPPED]),
    ]
    rounds = [
        recorded.RecordedRound(10.0, 30.0, whole, [0, 1, 2], [0, 1, 2]),
        recorded.RecordedRound(40.0, 60.0, lost, [0, 1, 2], [0, 1]),
    ]
    made = recorded.write_run(tmp_path / "by-hand", experiment, rounds)
    return with_clients(made, [1, 1, 1, 1], ("fibre", "phone"))


def test_time_to_answer_leaves_out_the_waiting_for_others(run: RunRecords) -> None:
    found = stragglers(rows_of([run]))
    assert isinstance(found, FigureWithData)
    values = found.data.set_index(["measure", "class"])["value"]
    assert found.data["class"].drop_duplicates().tolist() == ["phone", "fibre"]  # as in the experiment
    assert values["answer_s", "phone"] == pytest.approx(((4 + 1) + (3 + 2)) / 2)
    assert values["answer_s", "fibre"] == pytest.approx((((1 + 0.5) + (2 + 0.5)) / 2 + (2 + 1)) / 2)
    assert values["is_slowest"].tolist() == [1.0, 0.0]
    assert values["is_lost", "phone"] == 0.0
    assert values["is_lost", "fibre"] == pytest.approx((0 + 1 / 2) / 2)
    assert [axes.get_ylabel().replace("\n", " ").split(" [")[0] for axes in found.figure.axes] == [
        "Time to answer", "Slowest of the round", "Late or lost",
    ]  # fmt: skip


def test_devices_stand_for_classes(make_run: MakeRun) -> None:
    few = with_clients(make_run("few", rounds=2, population=20), [1.0, 3.0] * 10)
    assert list(kinds_of(few).cat.categories) == ["device 1", "device 3"]
    many = with_clients(make_run("many", rounds=2, population=20), list(range(20, 0, -1)))
    kinds = kinds_of(many)
    assert kinds.value_counts().to_dict() == {"fastest third": 7, "middle third": 7, "slowest third": 6}
    assert kinds[0] == "slowest third"
    assert kinds[19] == "fastest third"


def test_there_is_no_such_figure_of_clients_that_are_alike(make_run: MakeRun) -> None:
    unknown = make_run("unknown", rounds=2, population=20)
    alike = with_clients(make_run("alike", rounds=2, population=20), [2.0] * 20)
    for run in (unknown, alike):
        assert isinstance(stragglers(rows_of([run])), str)


def test_intervals_are_over_seeds(make_run: MakeRun) -> None:
    runs = [
        with_clients(make_run(f"seed-{seed}", seed=seed, rounds=3, population=20, participants=6), [1.0, 3.0] * 10)
        for seed in (1, 2, 3)
    ]
    found, alone = stragglers(rows_of(runs)), [stragglers(rows_of([run])) for run in runs]
    assert isinstance(found, FigureWithData)
    means = [each.data["value"] for each in alone if isinstance(each, FigureWithData)]
    assert found.data["value"].tolist() == pytest.approx((sum(means) / 3).tolist())
    assert (found.data["seeds"] == 3).all()
    assert found.data["half_width"].notna().all()


def test_a_client_for_which_the_round_waited_in_vain_is_the_slowest(tmp_path: Path) -> None:
    experiment = {
        "name": "late", "seed": 1, "rounds": 1, "population": 3, "selection": {"protocol": "random"},
        "classes": {"phone": {}, "fibre": {}}, "time": {"deadline_s": 5.0, "disconnects": "visible"},
    }  # fmt: skip
    stages = [
        recorded.asked("train", 0.0, [0, 1, 2], [1.0, 2.0, 1.0]),
        recorded.asked("plain/update", 2.0, [0, 1, 2], [4.0, None, None], outcome=[ANSWERED, LATE, DROPPED]),
    ]
    made = recorded.write_run(tmp_path / "late", experiment, [recorded.RecordedRound(0.0, 7.5, stages, [0, 1, 2], [0])])
    found = stragglers(rows_of([with_clients(made, [1.0] * 3, ("fibre", "phone"))]))
    assert isinstance(found, FigureWithData)
    values = found.data.set_index(["measure", "class"])
    assert values.loc[("is_slowest", "phone"), "value"] == 1.0
    assert values.loc[("answer_s", "phone"), "value"] == pytest.approx(2 + 5)  # up to the deadline
    assert values.loc[("answer_s", "phone"), "is_bound"]
    assert values.loc[("answer_s", "fibre"), "value"] == pytest.approx(1 + 2)  # of the client that has not dropped out
    assert not values.loc[("answer_s", "fibre"), "is_bound"]


def test_a_client_for_which_nobody_waited_has_no_time(tmp_path: Path) -> None:
    experiment = {
        "name": "quorum", "seed": 1, "rounds": 1, "population": 3, "selection": {"protocol": "random"},
        "classes": {"phone": {}, "fibre": {}}, "time": {"deadline_s": 5.0},
    }  # fmt: skip
    stages = [recorded.asked("train", 0.0, [0, 1, 2], [1.0, None, 2.0], outcome=[ANSWERED, LATE, ANSWERED])]
    made = recorded.write_run(
        tmp_path / "quorum", experiment, [recorded.RecordedRound(0.0, 2.5, stages, [0, 1, 2], [0])]
    )
    found = stragglers(rows_of([with_clients(made, [1.0] * 3, ("fibre", "phone"))]))
    assert isinstance(found, FigureWithData)
    values = found.data.set_index(["measure", "class"])["value"]
    assert np.isnan(values["answer_s", "phone"])
    assert values["is_slowest", "fibre"] == 1.0
