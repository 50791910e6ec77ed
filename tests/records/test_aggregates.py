"""What the server saw of the updates: recorded where asked for, equal bytes whatever happened to the run."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError, RunError
from testbed.experiment.schema import validated
from testbed.records import RunDirectory, RunRecords
from testbed.records.arrays import RoundAggregate, aggregate_files
from testbed.records.mirror import local_copy_for_reading, local_staging_dir
from tests.records.mirrored import Drifting, advance

ROUNDS = 6
BASE = {
    "name": "seen", "seed": 11, "rounds": ROUNDS, "population": 8, "selection": {"participants": 6},
    "aggregation": {"protocol": "plain"}, "time": {"compute": "modelled"},
    "availability": {"dropout": {"rate": 0.25, "stage": "random"}},
}  # fmt: skip


def run_on(path: Path, rounds: int = ROUNDS, *, finish: bool = True, **sections: Any) -> RunRecords:
    """Begin, or resume, the run up to this round."""
    experiment = validated(BASE | sections, "test")
    begun = (path / "experiment.yaml").is_file()
    records = RunDirectory.reopen(path) if begun else RunDirectory.create(path, experiment.plain())
    advance(federation_in_process(RunPlan(experiment, 0), Drifting(), records), rounds)
    if finish:
        records.finish()
    return RunRecords(path)


def bytes_of(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in aggregate_files(path)}


@pytest.mark.parametrize("protocol", ["plain", "secagg"])
def test_the_aggregates_are_the_survivors_weighted_mean_and_lead_from_model_to_model(
    tmp_path: Path, protocol: str
) -> None:
    run = run_on(
        tmp_path / "run", aggregation={"protocol": protocol, "weights": "samples"}, records={"aggregates": "all"}
    )
    completed = run.rounds.loc[run.rounds["outcome"] == "completed", "round"].tolist()
    assert len(completed) > 1
    assert (run.rounds["survivors"] < run.rounds["participants"]).any()
    model, workload = Drifting().initial_model(), Drifting()
    for number in completed:
        seen = run.aggregate(number)
        assert seen is not None
        assert (seen.model.dtype, seen.mean.dtype) == (np.float32, np.float64)
        assert np.array_equal(seen.model, model)
        rows = run.participation[(run.participation["round"] == number) & run.participation["survived"]]
        updates = [workload.train(client, model, number) for client in rows["client"]]
        weights = np.array([update.samples for update in updates])
        assert seen.weight == weights.sum()
        expected = weights @ np.array([update.delta for update in updates]) / weights.sum()
        assert np.abs(seen.mean - expected).max() < (1e-7 if protocol == "plain" else 1e-3)
        model = (model + seen.mean).astype(np.float32)
    assert np.array_equal(run.model, model)


def test_a_run_that_is_gone_on_with_has_the_same_files(tmp_path: Path) -> None:
    whole = run_on(tmp_path / "whole", records={"aggregates": "all"})
    for stop in range(1, ROUNDS):
        path = tmp_path / f"stopped-{stop}"
        run_on(path, stop, finish=stop % 2 == 0, records={"aggregates": "all"})
        run_on(path, records={"aggregates": "all"})
        assert bytes_of(path) == bytes_of(whole.path)


def test_what_a_session_left_that_died_before_its_checkpoint_is_not_read_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "died"
    whole = bytes_of(run_on(tmp_path / "whole", records={"aggregates": "all"}).path)
    run_on(path, 2, finish=False, records={"aggregates": "all"})
    (path / "aggregates" / "round-000003.npz").write_bytes(b"of another try")
    assert RunRecords(path).aggregate(3) is None
    assert bytes_of(run_on(path, records={"aggregates": "all"}).path) == whole
    directory = RunDirectory.reopen(path)
    checkpoint = directory.checkpoint()
    assert checkpoint is not None
    directory.append_round({}, checkpoint)  # the last round again, this time without an aggregate
    assert aggregate_files(path) == sorted(whole)[:-1]


def test_only_rounds_that_are_asked_for_and_complete(tmp_path: Path) -> None:
    assert aggregate_files(run_on(tmp_path / "none").path) == []
    some = run_on(tmp_path / "some", records={"aggregates": [2, 4]})
    assert [number for number in range(ROUNDS + 2) if some.aggregate(number)] == [2, 3, 4]
    skipping = run_on(
        tmp_path / "skipping", selection={"participants": 6},
        availability={"dropout": {"rate": 0.5, "stage": "check-in"}}, records={"aggregates": "all"},
    )  # fmt: skip
    rounds = skipping.rounds
    assert {"completed", "skipped"} <= set(rounds["outcome"])
    recorded = [number for number in rounds["round"] if skipping.aggregate(number)]
    assert recorded == rounds.loc[rounds["outcome"] == "completed", "round"].tolist()


def test_nothing_else_depends_on_it(tmp_path: Path) -> None:
    runs = [run_on(tmp_path / str(records), records={"aggregates": records}) for records in ("none", "all")]
    for table in ("rounds", "exchanges", "participation"):
        assert runs[0].frame(table).equals(runs[1].frame(table))
    assert "records" not in runs[0].experiment  # as before there was this section


def test_a_mirrored_run_takes_them_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Callable[[str], None]
) -> None:
    whole = bytes_of(run_on(tmp_path / "whole", records={"aggregates": "all"}).path)
    uri = (tmp_path / "remote").as_uri()
    machine("one")
    run_on(local_staging_dir(uri), 3, finish=False, records={"aggregates": "all"})
    local_staging_dir(uri)  # what was not pushed yet is
    machine("two")
    path = local_staging_dir(uri)
    assert bytes_of(path) == {name: whole[name] for name in sorted(whole) if int(name[-10:-4]) <= 3}
    run_on(path, records={"aggregates": "all"})
    machine("three")
    assert bytes_of(local_copy_for_reading(uri)) == whole
    machine("one")
    assert bytes_of(local_copy_for_reading(uri)) == whole


def test_bad_sections_and_damaged_files_are_one_line(tmp_path: Path) -> None:
    for wrong in ([0, 2], [3, 2], [1, ROUNDS + 1], "some", [1, 2, 3]):
        with pytest.raises(ExperimentError, match=r"records\.aggregates"):
            validated(BASE | {"records": {"aggregates": wrong}}, "test")
    run = run_on(tmp_path / "run", records={"aggregates": "all"})
    file = run.path / aggregate_files(run.path)[0]
    for content in (b"", b"junk", file.read_bytes()[:200]):
        file.write_bytes(content)
        with pytest.raises(RunError, match="damaged") as error:
            run.aggregate(int(file.stem[-6:]))
        assert "\n" not in str(error.value)
    shutil.rmtree(run.path / "aggregates")
    (run.path / "aggregates").write_bytes(b"")  # a file where the folder must be
    directory = RunDirectory.reopen(run.path)
    checkpoint = directory.checkpoint()
    assert checkpoint is not None
    with pytest.raises(RunError, match="--resume"):
        directory.append_round({}, checkpoint, RoundAggregate(np.zeros(2, np.float32), np.zeros(2), 1.0))
